#include "program/arguments.hpp"

#include "program/run.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <limits>
#include <list>
#include <sstream>
#include <type_traits>

namespace gpusock::program {
namespace {

constexpr const char* kStatuses =
    "Exit status: 0 success, 1 failure, 2 misuse: wrong arguments, or a GPUSOCK_... variable.";

CLI::Option& option_of(void* option) { return *static_cast<CLI::Option*>(option); }

/// The name that --help gives a value: N, BYTES, TEXT. CLI11 appends the rules of an option's validators to it, each
/// after a ':'.
std::string name_of_value(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

/// The rule for a value, as text: "1 to 100", "one of auto, on". Empty: any value is allowed.
std::string rules_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t end = type.find(':');
  std::string rules = end == std::string::npos ? "" : type.substr(end + 1);
  if (!rules.starts_with('{')) return rules;
  std::string words = "one of ";
  for (const char c : rules.substr(1, rules.find('}') - 1)) words += c == ',' ? std::string(", ") : std::string(1, c);
  return words;
}

/// Prints an option as `--nodes N`, and its rule and default after its description: `how many (1 to 64; default 2)`.
class Help : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 || option->get_positional() ? "" : " " + name_of_value(*option);
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return option->get_description();
    const std::string rules = rules_of(*option), start = option->get_default_str();
    std::string remarks = rules;
    const auto add = [&remarks](const std::string& remark) { remarks += (remarks.empty() ? "" : "; ") + remark; };
    if (!start.empty()) add("default " + start);
    if (option->get_required() && !option->get_positional()) add("required");
    return option->get_description() + (remarks.empty() ? "" : " (" + remarks + ")");
  }
};

/// A number as people write it: 1000000, not 1e+06.
template <class Value>
std::string in_digits(Value value) {
  std::ostringstream digits;
  digits << std::setprecision(10) << value;
  return digits.str();
}

/// The rule of a range, as text. The largest number of the type means that there is no upper bound.
template <class Value>
std::string range_rule(Value min, Value max) {
  const bool bounded = max < std::numeric_limits<Value>::max();
  return bounded ? in_digits(min) + " to " + in_digits(max) : "at least " + in_digits(min);
}

/// Like CLI::Range, but refuses NaN, and its texts are the same with every version of CLI11.
template <class Value>
CLI::Validator in_range(Value min, Value max) {
  const auto problem = [min, max](const std::string& text) -> std::string {
    Value value{};
    const bool converted = CLI::detail::lexical_cast(text, value);
    if constexpr (std::is_floating_point_v<Value>) {
      if (converted && std::isnan(value)) return "Value " + text + " is not a number";
    }
    if (converted && value >= min && value <= max) return {};
    std::ostringstream words;
    words << "Value " << text << " not in range " << min << " to " << max;
    return words.str();
  };
  return CLI::Validator(problem, range_rule(min, max));
}

template <class Value>
Argument add_number(CLI::App& app, const std::string& name, Value& value, const std::string& help, Value min,
                    Value max) {
  return Argument(app.add_option(name, value, help)->type_name("N")->capture_default_str()->check(in_range(min, max)));
}

/// A number of bytes as a user would give it on the command line: 4K, 1M.
std::string in_units(std::uint64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return std::to_string(bytes) + units[unit];
}

template <class Value>
CLI::Option& add_bytes(CLI::App& app, const std::string& name, Value& value, const std::string& help, std::uint64_t min,
                       std::uint64_t max) {
  const bool bounded = max < std::numeric_limits<std::uint64_t>::max();
  const std::string rule = bounded ? in_units(min) + " to " + in_units(max) : "at least " + in_units(min);
  return *app.add_option(name, value, help)
              ->type_name("BYTES")
              ->transform(CLI::AsSizeValue(false).description(""))
              ->check(in_range(min, max).description(rule));
}

/// The message about arguments that no option takes; empty if there are none. CLI11 would first report what is missing,
/// which is often missing only because a name is spelt wrong.
std::string stray_arguments(const CLI::App& app) {
  const std::vector<std::string> stray = app.remaining(true);
  if (stray.empty()) return {};
  // The text after an unknown option may be its value or a positional argument. Only the option is certainly wrong.
  const auto option = std::find_if(stray.begin(), stray.end(),
                                   [](const std::string& text) { return text.starts_with("-"); });
  if (option != stray.end()) return "there is no option " + *option;
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty() && app.get_subcommands().empty()) {
    std::string names;
    for (const CLI::App* command : commands) names += (names.empty() ? "" : ", ") + command->get_name();
    return "there is no command " + stray.front() + "; there are: " + names;
  }
  std::string all;
  for (const std::string& text : stray) all += " " + text;
  return (stray.size() == 1 ? "one argument too many:" : "too many arguments:") + all;
}

}  // namespace

Argument& Argument::required() {
  option_of(option_).required();
  return *this;
}

Argument& Argument::hidden() {
  option_of(option_).group("");
  return *this;
}

Argument& Argument::shown_default(const std::string& text) {
  option_of(option_).default_str(text);
  return *this;
}

Argument& Argument::check(std::function<std::string(const std::string&)> problem) {
  option_of(option_).check(std::move(problem));
  return *this;
}

struct Arguments::Impl {
  std::unique_ptr<CLI::App> own;  // set only for the program, whose CLI::App owns those of its commands
  CLI::App* app;
  std::string program;  // the program's name, set by parse()
  std::list<std::unique_ptr<Arguments>> commands;
  std::vector<std::function<std::string()>> problems;
};

Arguments::Arguments(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

Arguments::Arguments(const std::string& description, const std::string& footer) : impl_(std::make_unique<Impl>()) {
  impl_->own = std::make_unique<CLI::App>(description);
  impl_->app = impl_->own.get();
  const bool tells_statuses = footer.find("Exit status") != std::string::npos;
  impl_->app->footer(footer + (tells_statuses ? "" : std::string(footer.empty() ? "" : "\n") + kStatuses));
  impl_->app->formatter(std::make_shared<Help>());  // commands that are added later use it too
  impl_->app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto version = [impl = impl_.get()] { return impl->program + " (gpusock) " GPUSOCK_VERSION; };
  impl_->app->set_version_flag("--version", version, "Print the version and exit");
}

Arguments::~Arguments() = default;

Argument Arguments::positional(const std::string& name, std::string& value, const std::string& help) {
  return Argument(impl_->app->add_option(name, value, help)->required());
}

Argument Arguments::text(const std::string& name, std::string& value, const std::string& help) {
  auto* option = impl_->app->add_option(name, value, help);
  if (!value.empty()) option->capture_default_str();
  return Argument(option);
}

Argument Arguments::json(std::string& file, const std::string& help) {
  const auto take = [&file](const std::vector<std::string>& given) {
    file = given.empty() || given.front().empty() ? "-" : given.front();
    return true;
  };
  auto* option = impl_->app->add_option(
      "--json", take, help + "; without FILE, or with -: standard output, which then has nothing else");
  return Argument(option->expected(0, 1)->type_name("[FILE]"));
}

Argument Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  return Argument(impl_->app->add_flag(name, value, help));
}

Argument Arguments::number(const std::string& name, int& value, const std::string& help, int min, int max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::number(const std::string& name, unsigned& value, const std::string& help, unsigned min,
                           unsigned max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::number(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                           std::uint64_t max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::number(const std::string& name, float& value, const std::string& help, float min, float max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::number(const std::string& name, double& value, const std::string& help, double min, double max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::bytes(const std::string& name, std::uint64_t& value, const std::string& help, std::uint64_t min,
                          std::uint64_t max) {
  CLI::Option& option = add_bytes(*impl_->app, name, value, help, min, max);
  if (value != 0) option.default_str(in_units(value));
  return Argument(&option);
}

Argument Arguments::bytes(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help,
                          std::uint64_t min, std::uint64_t max) {
  CLI::Option& option = add_bytes(*impl_->app, name, values, help, min, max);
  option.multi_option_policy(CLI::MultiOptionPolicy::Throw)->delimiter(',');
  std::string start;
  for (const std::uint64_t value : values) start += (start.empty() ? "" : ",") + in_units(value);
  if (!start.empty()) option.default_str(start);
  return Argument(&option);
}

Argument Arguments::counts(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help,
                           std::uint64_t min, std::uint64_t max) {
  const Argument argument = bytes(name, values, help, min, max);
  impl_->app->get_option(name)->type_name("N,...");
  return argument;
}

Argument Arguments::choice(const std::string& name, std::string& value, const std::vector<std::string>& words,
                           const std::string& help) {
  Argument argument = text(name, value, help);
  impl_->app->get_option(name)->check(CLI::IsMember(words));
  return argument;
}

Arguments& Arguments::command(const std::string& name, const std::string& description) {
  auto impl = std::make_unique<Impl>();
  impl->app = impl_->app->add_subcommand(name, description);
  impl_->app->require_subcommand(1);
  impl_->app->set_help_all_flag("--help-all", "Print this help and that of each command, and exit");
  impl_->commands.push_back(std::unique_ptr<Arguments>(new Arguments(std::move(impl))));
  return *impl_->commands.back();
}

bool Arguments::given() const { return impl_->app->parsed(); }

void Arguments::check(std::function<std::string()> problem) { impl_->problems.push_back(std::move(problem)); }

std::optional<int> Arguments::parse(int argc, char** argv) {
  std::string& name = impl_->program = argc > 0 ? argv[0] : "";
  name.erase(0, name.rfind('/') + 1);
  try {
    impl_->app->parse(argc, argv);
    for (const auto& problem : impl_->problems) {
      const std::string says = problem();
      if (says.empty()) continue;
      std::fprintf(stderr, "%s: %s\n", name.c_str(), says.c_str());
      return kMisuse;
    }
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const auto kind = static_cast<CLI::ExitCodes>(error.get_exit_code());
    const bool counted = kind == CLI::ExitCodes::RequiredError || kind == CLI::ExitCodes::ExtrasError;
    if (const std::string stray = counted ? stray_arguments(*impl_->app) : ""; !stray.empty()) {
      return impl_->app->exit(CLI::ParseError(stray, kMisuse));
    }
    std::ostringstream help;
    if (impl_->app->exit(error, help, std::cerr) != 0) return kMisuse;
    print(help.str());
    return check_output(name, kSuccess);
  }
}

std::string problem_of_memory(std::uint64_t bytes, const std::string& product) {
  constexpr std::uint64_t kMiB = 1 << 20, kMax = 4096 * kMiB;
  if (bytes <= kMax) return {};
  return product + ": together they take " + std::to_string(bytes / kMiB) + " MiB of memory, more than the " +
         std::to_string(kMax / kMiB) + " MiB that there are for them: make one of them smaller";
}

std::vector<std::string> split(const std::string& text) {
  if (text.empty()) return {};
  auto parts = CLI::detail::split(text, ',');  // it leaves out the empty part after a last comma
  if (text.back() == ',') parts.emplace_back();
  return parts;
}

}  // namespace gpusock::program
