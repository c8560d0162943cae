// Runs what fuzzers have found through all targets: each folder of the corpus is a target's.
//   fuzz_replay CORPUS            all of it
//   fuzz_replay TARGET FILE...    these inputs, to look at one
#include "tests/fuzz/target.hpp"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

namespace {

using gpusock::fuzz::Target;

char now_running[512] = "";  // for whoever reads why it ended

void say_where(int signal) {
  [[maybe_unused]] auto written = write(STDERR_FILENO, now_running, std::strlen(now_running));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Target& target, const std::filesystem::path& file) {
  std::snprintf(now_running, sizeof now_running, "while running: fuzz_replay %s %s\n", target.name, file.c_str());
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    std::fprintf(stderr, "fuzz_replay: cannot read %s\n", file.c_str());
    std::exit(1);
  }
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  target.run(gpusock::fuzz::Input({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
}

int run_corpus(const std::filesystem::path& corpus) {
  std::size_t inputs = 0, without = 0;
  for (const Target& target : gpusock::fuzz::targets()) {
    std::size_t own = 0;
    target.run(gpusock::fuzz::Input({}));
    if (std::filesystem::is_directory(corpus / target.name)) {
      for (const auto& entry : std::filesystem::directory_iterator(corpus / target.name)) {
        run(target, entry.path());
        ++own;
      }
    }
    std::printf("%-16s %4zu inputs\n", target.name, own);
    if (own == 0) ++without;
    inputs += own;
  }
  std::printf("%zu inputs, %zu targets\n", inputs, gpusock::fuzz::targets().size());
  return without == 0 ? 0 : 1;  // a folder that is missing or misspelt proves nothing
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, say_where);
  if (argc == 2) return run_corpus(argv[1]);
  for (const Target& target : gpusock::fuzz::targets()) {
    if (argc < 3 || std::strcmp(target.name, argv[1]) != 0) continue;
    for (int i = 2; i < argc; ++i) run(target, argv[i]);
    return 0;
  }
  std::fprintf(stderr, "usage: fuzz_replay CORPUS | fuzz_replay TARGET FILE...; targets:");
  for (const Target& target : gpusock::fuzz::targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}
