// All to all: each rank sends every other rank a part of its data, in records, and receives one from each. Kernels
// connect the ranks and exchange the data. Transpositions and exchanges between experts work this way.
//   all_to_all --ranks 4                                        (all ranks in this process, each with a context)
//   all_to_all --rank 0 --peers 10.0.0.1:7000,10.0.0.2:7000     (one rank; start the others in the same way)
#include <gpusock/exchange.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/server.cuh>

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;

constexpr unsigned kThreads = 64;

/// One rank's memory. Part i of `out` goes to rank i, and part i of `in` comes from it.
struct Rank {
  Net net;
  unsigned rank, ranks;
  std::uint64_t words;       ///< words of a part
  std::uint64_t timeout_ns;  ///< for the others to connect, and for each exchange
  Endpoint* peers;           ///< by rank; this rank's is where it listens
  Socket listener;
  Socket* sockets;  ///< by rank: the socket, or why there is none
  std::uint64_t *out, *in;
  unsigned long long* wrong;  ///< how many words are not what their sender wrote
  std::int32_t* failed;       ///< by rank: 0, or why the exchange with it failed
};

/// Connects this rank with all others.
__global__ void meet_all(Rank own) {
  gpusock::connect_all(own.net, own.listener, own.peers, own.rank, own.ranks, own.sockets,
                       Deadline::after_ns(own.timeout_ns));
  own.net.close(gpusock::this_thread(), own.listener);
}

/// Block i sends rank i its part, and receives this rank's part from it.
__global__ void exchange_all(Rank own) {
  const auto block = gpusock::this_block();
  const unsigned peer = blockIdx.x;
  const std::uint64_t bytes = own.words * sizeof *own.out;
  if (peer == own.rank) return;
  std::int64_t got = own.sockets[peer];
  if (got >= 0)
    got = gpusock::exchange(block, own.net, own.sockets[peer], own.out + peer * own.words, bytes,
                            own.in + peer * own.words, bytes, Deadline::after_ns(own.timeout_ns));
  if (block.thread_rank() == 0 && got != static_cast<std::int64_t>(bytes)) own.failed[peer] = got < 0 ? got : -EPROTO;
}

/// Returns word i of what `from` sends to `to` in an iteration.
__device__ std::uint64_t word_of(unsigned from, unsigned to, std::uint64_t i, unsigned iteration) {
  return (std::uint64_t{from} << 48 | std::uint64_t{to} << 32 | (i + iteration)) * 0x9E3779B97F4A7C15ull;
}

/// Block i writes what rank i will receive.
__global__ void fill(Rank own, unsigned iteration) {
  for (std::uint64_t i = threadIdx.x; i < own.words; i += blockDim.x)
    own.out[blockIdx.x * own.words + i] = word_of(own.rank, blockIdx.x, i, iteration);
}

/// Block i checks what has come from rank i.
__global__ void check(Rank own, unsigned iteration) {
  unsigned long long wrong = 0;
  for (std::uint64_t i = threadIdx.x; i < own.words && blockIdx.x != own.rank; i += blockDim.x)
    wrong += own.in[blockIdx.x * own.words + i] != word_of(blockIdx.x, own.rank, i, iteration);
  if (wrong != 0) atomicAdd(own.wrong, wrong);
}

struct Settings {
  unsigned ranks = 4, repeat = 10, timeout_s = 30;
  int rank = -1;
  std::string peers;
  std::uint64_t bytes = 1 << 20;
};

/// The endpoint is for records, over the best link that two ranks share.
Endpoint endpoint_of(const std::string& text) {
  return Endpoint::parse(text).with_type(gpusock::SocketType::seqpacket);
}

void throw_if(int error, const std::string& what) {
  if (error < 0) throw gpusock::Error(-error, what);
}

std::string name_of(unsigned rank, const Endpoint& at) {
  return "rank " + std::to_string(rank) + " at " + at.to_string();
}

/// Runs one rank. After it listens, `introduce` gets its endpoint, and returns those of all ranks.
template <class Introduce>
void run_rank(const Settings& settings, unsigned rank, unsigned ranks, const Endpoint& at, Introduce introduce) {
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Mapped<Endpoint> peers(context, ranks);
  const gpusock::Listener listener = gpusock::open_listener(context, at);
  gpusock::Mapped<Socket> sockets(context, ranks);
  gpusock::Mapped<std::int32_t> failed(context, ranks);
  gpusock::Mapped<unsigned long long> wrong(context, 1);
  gpusock::DeviceBuffer<std::uint64_t> out(context, ranks * settings.bytes / 8),
      in(context, ranks * settings.bytes / 8);
  const Rank own{context.net(),
                 rank,
                 ranks,
                 settings.bytes / 8,
                 settings.timeout_s * 1'000'000'000ull,
                 peers.data(),
                 listener.socket,
                 sockets.data(),
                 out.data(),
                 in.data(),
                 wrong.data(),
                 failed.data()};
  const std::string who = "rank " + std::to_string(rank) + ": ";
  const std::vector<Endpoint> all = introduce(at.with_port(listener.where.port));
  std::copy(all.begin(), all.end(), peers.begin());
  gpusock::launch(context, {}, meet_all, own);
  context.synchronize();
  for (unsigned peer = 0; peer < ranks; ++peer) {
    if (peer == rank || sockets[peer] >= 0) continue;
    const std::string which = who + name_of(peer, peers[peer]);
    if (sockets[peer] != -ETIMEDOUT && sockets[peer] != -ECONNREFUSED)
      throw gpusock::Error(-sockets[peer], which + ", not connected");
    throw std::runtime_error(which + " did not come within " + std::to_string(settings.timeout_s) +
                             " s: start all ranks with the same --peers, or give them a longer --timeout-s");
  }
  const gpusock::LaunchShape blocks{.grid = ranks, .block = kThreads};
  double seconds = 0;
  for (unsigned iteration = 0; iteration < settings.repeat; ++iteration) {
    gpusock::launch(context, blocks, fill, own, iteration);
    context.synchronize();
    const std::uint64_t start_ns = gpusock::clock_ns();
    gpusock::launch(context, blocks, exchange_all, own);
    context.synchronize();
    seconds += static_cast<double>(gpusock::clock_ns() - start_ns) / 1e9;
    for (unsigned peer = 0; peer < ranks; ++peer) {
      throw_if(failed[peer], who + "exchanging with " + name_of(peer, peers[peer]));
    }
    gpusock::launch(context, blocks, check, own, iteration);
  }
  context.synchronize();
  if (wrong[0] != 0) throw std::runtime_error(who + std::to_string(wrong[0]) + " words are not what was sent");
  const double sent = static_cast<double>(settings.bytes) * (ranks - 1) * settings.repeat;
  std::printf("rank %u: sent and received %.1f MB each, %.1f MB/s, all as it was sent\n", rank, sent / 1e6,
              sent / 1e6 / seconds);
}

/// Runs all ranks in this process. They find each other through its memory.
void run_all(const Settings& settings) {
  std::vector<Endpoint> all(settings.ranks);
  std::vector<std::string> errors(settings.ranks);
  std::latch listening(settings.ranks);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < settings.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      bool introduced = false;
      try {
        run_rank(settings, rank, settings.ranks, endpoint_of("127.0.0.1:0"), [&](const Endpoint& at) {
          all[rank] = at;
          introduced = true;
          listening.arrive_and_wait();
          return all;
        });
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        if (!introduced) listening.count_down();  // the others' calls fail at their deadlines
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

/// Runs one rank. The others are other processes.
void run_one(const Settings& settings) {
  std::vector<Endpoint> all;
  for (const std::string& peer : gpusock::program::split(settings.peers)) all.push_back(endpoint_of(peer));
  const auto rank = static_cast<unsigned>(settings.rank);
  run_rank(settings, rank, static_cast<unsigned>(all.size()), all[rank], [&](const Endpoint&) { return all; });
}

std::string problem_of(const Settings& settings) {
  const auto peers = gpusock::program::split(settings.peers);
  if (settings.bytes % 8 != 0) return "--bytes must be a multiple of 8";
  if (settings.rank < 0) return peers.empty() ? "" : "--peers is for one rank: give its --rank, too";
  if (peers.size() > 64) return "there are at most 64 ranks";
  if (peers.size() > static_cast<std::size_t>(settings.rank)) return "";
  const std::string rank = "--rank " + std::to_string(settings.rank);
  if (peers.empty()) return rank + " needs --peers HOST:PORT,... of all ranks, its own included";
  return rank + " is none of those in --peers, which has " + std::to_string(peers.size()) +
         ": the first is rank 0. Name all ranks, this one included";
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments("Exchanges data between all ranks, in records, from kernels, and checks it.");
  Settings settings;
  arguments.number("--ranks", settings.ranks, "ranks in this process", 1, 64);
  arguments.number("--rank", settings.rank, "run this rank alone; needs --peers", 0, 63).shown_default("");
  arguments.text("--peers", settings.peers, "HOST:PORT of all ranks, with commas");
  arguments.bytes("--bytes", settings.bytes, "what each rank sends to each other one in an iteration", 8, 256 << 20);
  arguments.number("--repeat", settings.repeat, "how many times", 1, 1'000'000);
  arguments.number("--timeout-s", settings.timeout_s,
                   "seconds for the other ranks to come, and for each exchange with one", 1, 3600);
  arguments.check([&] { return problem_of(settings); });
  arguments.check([&] {
    return gpusock::program::problem_of_memory(2 * settings.ranks * settings.ranks * settings.bytes,
                                               "--ranks^2 x --bytes");
  });
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("all_to_all", [&] {
    if (settings.rank < 0) run_all(settings);
    if (settings.rank >= 0) run_one(settings);
    return EXIT_SUCCESS;
  });
}
