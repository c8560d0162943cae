#pragma once
/// @file The command line of our programs: one way to describe it, and the same exit statuses in all programs.
///
/// This is a thin layer over CLI11, which is compiled only here, not in every program (it takes seconds each time).

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

/// An argument that was just added, with its further properties.
class Argument {
 public:
  explicit Argument(void* option) : option_(option) {}

  Argument& required();
  /// Leaves it out of --help: other programs use it, not people.
  Argument& hidden();
  /// Sets the default that --help shows. Empty: --help shows none.
  Argument& shown_default(const std::string& text);
  /// Adds a check: `problem` gets the text of the value, and returns what is wrong with it, or an empty text.
  Argument& check(std::function<std::string(const std::string&)> problem);

 private:
  void* option_;  // CLI::Option
};

/// The arguments of a program, or of one of its commands. Values are references that parse() fills. What they hold
/// before that is the default, which --help shows. If an option is given twice, the last one counts, so that a user can
/// override a script's option.
class Arguments {
 public:
  /// The text `description` says what the program does; `footer` is the end of --help. If it does not explain the exit
  /// statuses, this adds the explanation.
  explicit Arguments(const std::string& description, const std::string& footer = {});
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  /// A required argument that is given without a name, such as ENDPOINT or FILE.
  Argument positional(const std::string& name, std::string& value, const std::string& help);
  Argument text(const std::string& name, std::string& value, const std::string& help);
  /// Adds --json [FILE], which is the same in all programs, for JsonOutput (program/run.hpp). Without FILE, `file` is
  /// "-". Without --json, it stays empty.
  Argument json(std::string& file, const std::string& help);
  Argument flag(const std::string& name, bool& value, const std::string& help);
  Argument number(const std::string& name, int& value, const std::string& help, int min, int max);
  Argument number(const std::string& name, unsigned& value, const std::string& help, unsigned min, unsigned max);
  Argument number(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                  std::uint64_t max);
  Argument number(const std::string& name, float& value, const std::string& help, float min, float max);
  Argument number(const std::string& name, double& value, const std::string& help, double min, double max);
  /// A number of bytes: 64, 4K, 1M (powers of 1024). --help does not show a default of 0.
  Argument bytes(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                 std::uint64_t max);
  /// Several numbers of bytes, with commas between them.
  Argument bytes(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help,
                 std::uint64_t min, std::uint64_t max);
  /// Several numbers that may be as large as those of bytes, with commas between them: 1,64,4K.
  Argument counts(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help,
                  std::uint64_t min, std::uint64_t max);
  /// One of `words`.
  Argument choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
                  const std::string& help);

  /// Adds a command, which has arguments of its own. The user must give exactly one command.
  Arguments& command(const std::string& name, const std::string& description);
  /// True if this command was given.
  bool given() const;

  /// Adds a check of all values together. `problem` is called after the values are read. It returns what is wrong, or
  /// an empty text. Several checks are called in the order in which they were added.
  void check(std::function<std::string()> problem);

  /// Reads the command line. Returns nothing if the program should go on. After --help, --version or misuse, returns
  /// the status to exit with at once. Reports misuse on stderr.
  std::optional<int> parse(int argc, char** argv);

 private:
  struct Impl;
  explicit Arguments(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What is wrong with options that together take `bytes` of memory, or an empty text. So a user's mistake gets an error
/// message, and the system does not have to kill the process. `product` names the options.
std::string problem_of_memory(std::uint64_t bytes, const std::string& product);

/// The parts of a text between commas. Any part may be empty. An empty text has no parts.
std::vector<std::string> split(const std::string& text);

}  // namespace gpusock::program
