#pragma once
/// @file The command line of our programs: one way to describe it, and one meaning of exit statuses.
///
/// A thin layer over CLI11, which is compiled once here instead of in every program (it costs seconds each time).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::program {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kMisuse = 2;

/// What else holds for an argument that was just added.
class Argument {
 public:
  explicit Argument(void* option) : option_(option) {}

  Argument& required();
  /// It is not in --help: for other programs, not for people.
  Argument& hidden();
  /// What --help says of the value where none is given; empty: nothing.
  Argument& shown_default(const std::string& text);
  /// `problem` gets the text of the value and says what is wrong with it, or nothing.
  Argument& check(std::function<std::string(const std::string&)> problem);

 private:
  void* option_;  // CLI::Option
};

/// The arguments of a program, or of one of its commands. Values are references that parse() fills; what they hold
/// before is the default, shown in --help. Of an option that is given twice the last one counts, so that a script's can
/// be overridden.
class Arguments {
 public:
  /// `description` says what the program does; `footer` ends --help. What exit statuses mean is added where it does not
  /// tell.
  explicit Arguments(const std::string& description, const std::string& footer = {});
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// A required argument without a name of its own, as ENDPOINT or FILE.
  Argument positional(const std::string& name, std::string& value, const std::string& help);
  Argument text(const std::string& name, std::string& value, const std::string& help);
  /// --json [FILE], the same in all programs: `file` is "-" where no FILE is given, and stays empty without --json. For
  /// JsonOutput (program/run.hpp).
  Argument json(std::string& file, const std::string& help);
  Argument flag(const std::string& name, bool& value, const std::string& help);
  Argument number(const std::string& name, int& value, const std::string& help, int min, int max);
  Argument number(const std::string& name, unsigned& value, const std::string& help, unsigned min, unsigned max);
  Argument number(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                  std::uint64_t max);
  Argument number(const std::string& name, float& value, const std::string& help, float min, float max);
  Argument number(const std::string& name, double& value, const std::string& help, double min, double max);
  /// Bytes: 64, 4K, 1M (powers of 1024). A default of 0 is not shown.
  Argument bytes(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                 std::uint64_t max);
  /// Several sizes in bytes, with commas between them.
  Argument bytes(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help,
                 std::uint64_t min, std::uint64_t max);
  /// One of these words.
  Argument choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
                  const std::string& help);

  /// Adds a command, which has arguments of its own. The user must give exactly one command.
  Arguments& command(const std::string& name, const std::string& description);
  /// True if this command was given.
  bool given() const;

  /// Adds a check of all values together. `problem` is called after the values are read. It returns what is wrong, or
  /// an empty text. Several checks are called in the order in which they were added.
  void check(std::function<std::string()> problem);

  /// Reads the command line. Returns the status to exit with at once: after --help, --version, or misuse, which is told
  /// on stderr. Returns nothing if the program should go on.
  std::optional<int> parse(int argc, char** argv);

 private:
  struct Impl;
  explicit Arguments(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What is wrong with options that together take so much memory, or nothing: so a user's slip gets an answer, instead
/// of a process that the system kills. `product` names the options.
std::string problem_of_memory(std::uint64_t bytes, const std::string& product);

/// The parts of a text between commas. Any part may be empty. An empty text has no parts.
std::vector<std::string> split(const std::string& text);

}  // namespace gpusock::program
