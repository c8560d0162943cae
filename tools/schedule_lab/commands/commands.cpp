#include "commands/commands.hpp"

#include "commands/prices.hpp"

#include "program/run.hpp"

#include <cerrno>
#include <vector>

namespace param_sync::commands {
namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
};

const std::vector<Command> kCommands = {
#if !PARAM_SYNC_ONLY_TRAINS  // builds for ThreadSanitizer leave these out: they have one thread
    {"schedule", schedule_command}, {"simulate", simulate_command}, {"predict", predict_command},
    {"bench", bench_command},       {"plot", plot_command},
#endif
};

const Command* find_command(const std::string& word) {
  for (const Command& command : kCommands) {
    if (word == command.name) return &command;
  }
  return nullptr;
}

}  // namespace

bool is_command(const std::string& word) { return find_command(word) != nullptr; }

int run_command(int argc, char** argv) {
  std::string name = std::string("param_sync ") + argv[1];
  const Command* command = find_command(argv[1]);
  argv[1] = name.data();  // the name that --help shows
  return command->run(argc - 1, argv + 1);
}

#if PARAM_SYNC_ONLY_TRAINS
ExchangePrices measured_prices(int, gpusock::LinkKind) {
  throw gpusock::Error(ENOSYS, "--prices measured: this build only trains; give five numbers instead");
}
#endif

}  // namespace param_sync::commands
