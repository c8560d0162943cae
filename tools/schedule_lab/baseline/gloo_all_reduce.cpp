/// @file Gloo's all-reduce of floats, on its tcp: the baseline of `param_sync bench --beside gloo`.
///
///     param_sync-gloo RANKS BYTES REPEATS
///
/// Starts a process for each rank; they meet by files in a folder that it makes. Prints the median time of the repeats
/// in seconds, each from when all ranks are there until the last one has the sum. Two warm-up runs do not count.

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

Context connect(int rank, int ranks, const std::string& folder) {
  gloo::transport::tcp::attr local;
  local.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(local);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(folder);
  context->connectFullMesh(store, device);
  return context;
}

using Reduction = void (*)(void*, const void*, const void*, std::size_t);

template <class T>
void all_reduce(const Context& context, std::vector<T>& data, std::vector<T>& result, Reduction reduction) {
  gloo::AllreduceOptions options(context);
  options.setInput(data.data(), data.size());
  options.setOutput(result.data(), result.size());
  options.setReduceFunction(reduction);
  gloo::allreduce(options);
}

/// Runs one rank. Rank 0 prints the median; the others print nothing. Returns the exit status.
int run_rank(int rank, int ranks, std::size_t bytes, int repeats, const std::string& folder) try {
  const Context context = connect(rank, ranks, folder);
  std::vector<float> data(bytes / sizeof(float), 1), sum(data.size());
  std::vector<double> times, own(1), slowest(1);
  for (int i = -2; i < repeats; ++i) {
    gloo::BarrierOptions all_there(context);
    gloo::barrier(all_there);
    const auto start = std::chrono::steady_clock::now();
    all_reduce<float>(context, data, sum, gloo::sum<float>);
    own[0] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    all_reduce<double>(context, own, slowest, gloo::max<double>);
    if (i >= 0) times.push_back(slowest[0]);
  }
  if (sum.back() != static_cast<float>(ranks)) throw std::runtime_error("the sum is wrong");
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("%.9f\n", times[times.size() / 2]);
  return std::fflush(stdout) == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "param_sync-gloo: rank %d: %s\n", rank, error.what());
  return 1;
}

/// Waits for all processes. True if all ended with status 0.
bool wait_for(const std::vector<pid_t>& processes) {
  bool well = true;
  for (const pid_t process : processes) {
    int status = 0;
    well = waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0 && well;
  }
  return well;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 4 ? std::atoi(argv[1]) : 0;
  const long long bytes = argc == 4 ? std::atoll(argv[2]) : 0;
  const int repeats = argc == 4 ? std::atoi(argv[3]) : 0;
  if (ranks < 1 || ranks > 64 || bytes < 4 || bytes > (1LL << 32) || repeats < 1) {
    std::fprintf(stderr, "usage: param_sync-gloo RANKS BYTES REPEATS\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "param_sync-gloo.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("param_sync-gloo: cannot make a folder in which ranks meet");
    return 1;
  }
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(run_rank(rank, ranks, static_cast<std::size_t>(bytes), repeats, folder));
    }
    processes.push_back(process);
  }
  const bool well = wait_for(processes);
  std::error_code unknown;
  std::filesystem::remove_all(folder, unknown);
  return well ? 0 : 1;
}
