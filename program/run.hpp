#pragma once
/// @file A program's work after its command line: what it prints, and how it ends. What could not be written to
/// standard output, as on a full disk, is reported as a failure, as coreutils' programs do: a later reader must
/// not take a part for all.

#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace gpusock::program {

/// Prints to standard output. That it could not be written is told when the program ends: work goes on that does not
/// need it.
void print(const std::string& text);

/// True if all that was printed has been written.
bool flush_output();

/// Standard output cannot be written.
class OutputError : public std::runtime_error {
 public:
  OutputError() : std::runtime_error("cannot write standard output") {}
};

/// Prints what others wait for, at once. Throws OutputError.
void print_now(const std::string& text);

/// Returns `status` if all that was printed is written. Else writes the reason to stderr, and returns kFailure if
/// `status` was none. For a program's end.
int check_output(const std::string& program, int status);

/// Where --json FILE puts its text: into the file, or, where it is "-", to standard output; what print() gets then goes
/// to standard error, so that standard output has JSON alone.
class JsonOutput {
 public:
  /// Opens the file. Throws gpusock::Error: it cannot be written.
  explicit JsonOutput(const std::string& file);
  /// Writes at once. Throws gpusock::Error, or OutputError.
  void write(const std::string& text);
  /// Ends the file: some file systems tell only then that there was no room. Throws gpusock::Error.
  void close();

 private:
  void require_file();

  std::string name_;
  std::ofstream file_;
};

/// Writes all of a file, as JsonOutput does.
void write_file(const std::string& file, const std::string& text);

/// The arguments ask for something impossible, which is known only after the work has begun. The program exits with 2.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The status to end with, after check_output(): that of `work`; where it throws, which is told on stderr, kMisuse for
/// Misuse, else kFailure.
int run(const std::string& program, const std::function<int()>& work);

}  // namespace gpusock::program
