#include "program/arguments.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <list>

namespace gpusock::program {
namespace {

CLI::Option& option_of(void* option) { return *static_cast<CLI::Option*>(option); }

template <class Value>
Argument add_number(CLI::App& app, const std::string& name, Value& value, const std::string& help, Value min, Value max) {
  return Argument(app.add_option(name, value, help)->capture_default_str()->check(CLI::Range(min, max)));
}

template <class Value>
Argument add_bytes(CLI::App& app, const std::string& name, Value& value, const std::string& help, std::uint64_t min,
                   std::uint64_t max) {
  return Argument(app.add_option(name, value, help)->transform(CLI::AsSizeValue(false))->check(CLI::Range(min, max)));
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
  std::unique_ptr<CLI::App> own;  // the program's; a command's belongs to the program's
  CLI::App* app;
  std::list<std::unique_ptr<Arguments>> commands;
  std::function<std::string()> problem;
};

Arguments::Arguments(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

Arguments::Arguments(const std::string& description, const std::string& footer) : impl_(std::make_unique<Impl>()) {
  impl_->own = std::make_unique<CLI::App>(description);
  impl_->app = impl_->own.get();
  if (!footer.empty()) impl_->app->footer(footer);
  impl_->app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
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

Argument Arguments::flag(const std::string& name, bool& value, const std::string& help) {
  return Argument(impl_->app->add_flag(name, value, help));
}

Argument Arguments::number(const std::string& name, int& value, const std::string& help, int min, int max) {
  return add_number(*impl_->app, name, value, help, min, max);
}

Argument Arguments::number(const std::string& name, unsigned& value, const std::string& help, unsigned min, unsigned max) {
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
  return add_bytes(*impl_->app, name, value, help, min, max);
}

Argument Arguments::bytes(const std::string& name, std::vector<std::uint64_t>& values, const std::string& help, std::uint64_t min,
                          std::uint64_t max) {
  auto argument = add_bytes(*impl_->app, name, values, help, min, max);
  impl_->app->get_option(name)->multi_option_policy(CLI::MultiOptionPolicy::Throw)->delimiter(',');
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
  impl_->commands.push_back(std::unique_ptr<Arguments>(new Arguments(std::move(impl))));
  return *impl_->commands.back();
}

bool Arguments::given() const { return impl_->app->parsed(); }

void Arguments::check(std::function<std::string()> problem) { impl_->problem = std::move(problem); }

std::optional<int> Arguments::parse(int argc, char** argv) {
  try {
    impl_->app->parse(argc, argv);
    if (!impl_->problem) return std::nullopt;
    const std::string problem = impl_->problem();
    if (problem.empty()) return std::nullopt;
    std::string name = argc > 0 ? argv[0] : "";
    name.erase(0, name.rfind('/') + 1);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), problem.c_str());
    return kMisuse;
  } catch (const CLI::ParseError& error) {
    return impl_->app->exit(error) == 0 ? kSuccess : kMisuse;
  }
}

std::vector<std::string> split(const std::string& text) {
  return text.empty() ? std::vector<std::string>{} : CLI::detail::split(text, ',');
}

}  // namespace gpusock::program
