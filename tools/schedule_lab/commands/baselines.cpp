#include "commands/baselines.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace param_sync::commands {
namespace {

struct Baseline {
  const char* name;
  const char* title;
  const char* program;
  const char* library;  ///< the library that CMake must find, and its package
  const char* to_run;   ///< error text for a failed run, with what may be missing
};

constexpr Baseline kBaselines[] = {
    {"mpi", "MPI", "param_sync-mpi", "MPI (libopenmpi-dev)", "mpirun has failed (openmpi-bin has it)"},
    {"gloo", "Gloo", "param_sync-gloo", "Gloo (libgloo-dev)", "Gloo's all-reduce has failed"},
};

const Baseline& baseline_of(const std::string& name) {
  return *std::find_if(std::begin(kBaselines), std::end(kBaselines),
                       [&](const Baseline& baseline) { return baseline.name == name; });
}

/// Returns the word, quoted for a shell's command line.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

std::string command_of(const Baseline& baseline, const std::string& program, int nodes, const std::string& link,
                       std::uint64_t bytes, int repeats) {
  if (std::string(baseline.name) == "gloo") return fmt::format("{} {} {} {}", quoted(program), nodes, bytes, repeats);
  return fmt::format("mpirun --allow-run-as-root --oversubscribe -n {} {} {} {} {}", nodes,
                     link == "tcp" ? "--mca pml ob1 --mca btl self,tcp" : "", quoted(program), bytes, repeats);
}

/// Returns the path of the baseline's program, which is in this program's folder.
std::filesystem::path program_of(const Baseline& baseline) {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / baseline.program;
}

}  // namespace

std::vector<std::string> beside_choices() {
  std::vector<std::string> names;
  for (const Baseline& baseline : kBaselines) names.emplace_back(baseline.name);
  names.emplace_back("all");
  return names;
}

std::vector<std::string> baselines_of(const std::string& choice) {
  std::vector<std::string> names;
  for (const Baseline& baseline : kBaselines) {
    if (choice == "all" || choice == baseline.name) names.emplace_back(baseline.name);
  }
  return names;
}

std::string title_of(const std::string& baseline) { return baseline_of(baseline).title; }

void require_baseline(const std::string& name) {
  const Baseline& baseline = baseline_of(name);
  const std::filesystem::path program = program_of(baseline);
  std::error_code unknown;
  if (!std::filesystem::exists(program, unknown)) {
    throw schedule::Error(
        fmt::format("there is no {}: it is built where CMake finds {}", program.string(), baseline.library));
  }
  if (name == "mpi" && std::system("command -v mpirun >/dev/null") != 0)
    throw schedule::Error("there is no mpirun: openmpi-bin has it");
}

double baseline_s(const std::string& name, int nodes, const std::string& link, std::uint64_t bytes, int repeats) {
  const Baseline& baseline = baseline_of(name);
  const std::string command = command_of(baseline, program_of(baseline).string(), nodes, link, bytes, repeats);
  const auto close = [](std::FILE* file) { pclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> output(popen(command.c_str(), "r"), close);
  if (!output) throw schedule::Error("cannot start " + command);
  double seconds = 0;
  const bool read = std::fscanf(output.get(), "%lf", &seconds) == 1;
  const int status = pclose(output.release());
  if (!read || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw schedule::Error(fmt::format("{}: {}", baseline.to_run, command));
  }
  return seconds;
}

}  // namespace param_sync::commands
