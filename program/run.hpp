#pragma once
/// @file A program's work after its command line: what it prints, and how it ends. If standard output cannot be
/// written, for example because a disk is full, the program reports a failure, as the coreutils do. Otherwise a later
/// reader would take a part of the output for all of it.

#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace gpusock::program {

/// Prints to standard output. If it cannot be written, the program reports that only when it ends, because its work may
/// not need the output.
void print(const std::string& text);

/// True if all that was printed has been written.
bool flush_output();

/// Thrown if standard output cannot be written.
class OutputError : public std::runtime_error {
 public:
  OutputError() : std::runtime_error("cannot write standard output") {}
};

/// Prints at once, for output that others wait for. Throws OutputError.
void print_now(const std::string& text);

/// For the end of a program. Returns `status` if all that was printed has been written. Otherwise writes the reason to
/// stderr, and returns kFailure if `status` is kSuccess, else `status`.
int check_output(const std::string& program, int status);

/// The output of --json FILE: the file, or standard output if FILE is "-". In the latter case, print() writes to
/// standard error, so that standard output has only JSON.
class JsonOutput {
 public:
  /// Opens the file. What it holds stays there until the first write(): a program that fails keeps the results of the
  /// run before. Throws gpusock::Error if it cannot be written.
  explicit JsonOutput(const std::string& file);
  /// Removes a file that the constructor has made, if no write() has succeeded: a disk may be full.
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;
  /// Writes at once. Throws gpusock::Error, or OutputError.
  void write(const std::string& text);
  /// Closes the file. Throws gpusock::Error: some file systems report only then that there was no room.
  void close();

 private:
  void require_file();

  std::string name_;
  std::ofstream file_;
  bool is_new_ = false;
  bool is_empty_ = true;  ///< no write() has succeeded
};

/// Writes a whole file, as JsonOutput does.
void write_file(const std::string& file, const std::string& text);

/// Thrown if the arguments ask for something impossible, but the program finds out only after its work has begun. The
/// program exits with 2.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls `work` and returns the status to exit with, after check_output(): that of `work`, kMisuse if it throws Misuse,
/// or kFailure if it throws anything else. Reports exceptions on stderr.
int run(const std::string& program, const std::function<int()>& work);

}  // namespace gpusock::program
