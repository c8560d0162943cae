#pragma once
/// @file A program's work after its command line: what it prints, and how it ends. What could not be written to
/// standard output, as on a full disk, is reported as a failure, as coreutils' programs do: a later reader must
/// not take a part for all.

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

/// `status`, where all that was printed is written; else kFailure (unless `status` is one of failure), and why is said
/// on stderr. Before a program ends.
int check_output(const std::string& program, int status);

/// What was asked for cannot be, as is known only when the work has begun.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The status to end with, after check_output(): that of `work`; where it throws, which is told on stderr, kMisuse for
/// Misuse, else kFailure.
int run(const std::string& program, const std::function<int()>& work);

}  // namespace gpusock::program
