#include "commands/mpi_baseline.hpp"

#include "schedule/schedule.hpp"

#include <fmt/format.h>

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <memory>

namespace param_sync::commands {
namespace {

/// A word of a shell's command line.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

}  // namespace

double mpi_all_reduce_s(int nodes, const std::string& link, std::uint64_t bytes, int repeats) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown).parent_path() / "param_sync-mpi";
  if (!fs::exists(program, unknown)) {
    throw schedule::Error(
        fmt::format("there is no {}: it is built where CMake finds MPI (libopenmpi-dev)", program.string()));
  }
  const std::string command = fmt::format("mpirun --allow-run-as-root --oversubscribe -n {} {} {} {} {}", nodes,
                                          link == "tcp" ? "--mca pml ob1 --mca btl self,tcp" : "",
                                          quoted(program.string()), bytes, repeats);
  const auto close = [](std::FILE* file) { pclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> output(popen(command.c_str(), "r"), close);
  if (!output) throw schedule::Error("cannot start " + command);
  double seconds = 0;
  const bool read = std::fscanf(output.get(), "%lf", &seconds) == 1;
  const int status = pclose(output.release());
  if (!read || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw schedule::Error(fmt::format("mpirun has failed (openmpi-bin has it): {}", command));
  }
  return seconds;
}

}  // namespace param_sync::commands
