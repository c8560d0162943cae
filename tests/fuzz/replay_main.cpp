// Runs what fuzzers have found through all targets: each folder of the corpus is a target's.
//   fuzz_replay CORPUS            all of it
//   fuzz_replay TARGET FILE...    these inputs, to look at one
//   fuzz_replay --fuzz CORPUS     where libFuzzer is linked: all of it, and then each target goes on with inputs of
//   libFuzzer's
#include "tests/fuzz/target.hpp"

#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#ifdef GPUSOCK_LIBFUZZER
extern "C" int LLVMFuzzerRunDriver(int* count, char*** arguments,
                                   int (*run)(const std::uint8_t* data, std::size_t bytes));
#endif

namespace {

using gpusock::fuzz::Target;

char now_running[512] = "";  // for whoever reads why it ended

void say_where(int signal) {
  [[maybe_unused]] auto written = write(STDERR_FILENO, now_running, std::strlen(now_running));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void heed_signals() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, say_where);
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

#ifdef GPUSOCK_LIBFUZZER
/// Processor time that each target gets beyond its seeds.
constexpr std::clock_t kFuzzTime = CLOCKS_PER_SEC / 10;
/// Each of so many inputs of the corpus is a seed: libFuzzer takes several times as long for one as running it does.
constexpr std::size_t kInputsForSeed = 8;

struct Fuzzing {
  const Target* target = nullptr;
  std::size_t seeds = 0, runs = 0;
  std::clock_t end = 0;  // once the seeds have been run
} fuzzing;

int run_fuzzed(const std::uint8_t* data, std::size_t bytes) {
  if (fuzzing.runs == fuzzing.seeds) fuzzing.end = std::clock() + kFuzzTime;
  if (fuzzing.runs++ > fuzzing.seeds && std::clock() > fuzzing.end) {
    std::printf("%-16s %6zu seeds, %6zu new inputs\n", fuzzing.target->name, fuzzing.seeds,
                fuzzing.runs - fuzzing.seeds - 1);
    std::fflush(stdout);
    _exit(0);  // libFuzzer takes exit() in a target for a failure
  }
  fuzzing.target->run(gpusock::fuzz::Input({data, bytes}));
  return 0;
}

/// In a process of its own: libFuzzer does not return, and keeps what breaks a promise in this folder.
[[noreturn]] void fuzz(const Target& target, const std::filesystem::path& corpus) {
  std::string seeds = "-seed_inputs=";
  std::size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus / target.name)) {
    if (inputs++ % kInputsForSeed == 0) seeds += (fuzzing.seeds++ == 0 ? "" : ",") + entry.path().string();
  }
  fuzzing.target = &target;
  std::string arguments[] = {target.name,   seeds,          "-max_len=4096",
                             "-timeout=60", "-verbosity=0", std::string("-artifact_prefix=") + target.name + '-'};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  int count = static_cast<int>(pointers.size());
  char** list = pointers.data();
  std::exit(LLVMFuzzerRunDriver(&count, &list, run_fuzzed));
}

/// True if a process that does this ends with 0.
template <class Work>
bool holds(Work work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) work();
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

int fuzz_all(const std::filesystem::path& corpus) {
  std::string broken;
  const bool corpus_holds = holds([&] {
    heed_signals();
    std::exit(run_corpus(corpus));
  });
  if (!corpus_holds) broken += " the corpus";
  for (const Target& target : gpusock::fuzz::targets()) {
    if (!holds([&] { fuzz(target, corpus); })) broken += std::string(" ") + target.name;
  }
  if (broken.empty()) return 0;
  std::fprintf(stderr, "promises were broken (see above; the inputs are in %s):%s\n",
               std::filesystem::current_path().c_str(), broken.c_str());
  return 1;
}
#endif

}  // namespace

int main(int argc, char** argv) {
#ifdef GPUSOCK_LIBFUZZER
  if (argc == 3 && std::strcmp(argv[1], "--fuzz") == 0) return fuzz_all(argv[2]);
#endif
  heed_signals();
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
