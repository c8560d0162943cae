#pragma once
// The parties of a conformance test: a context each, and what runs on it, in a kernel of any group scope or on a host
// thread. A test's body is a functor that a group calls: body(group, net).
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>

#include "tests/conformance/checked_net.cuh"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#if defined(GPUSOCK_DEVICE_CUDA)
#include <sched.h>
#endif

namespace gpusock::conformance {

/// How much is done, of what is done where time is no matter: GPUSOCK_TEST_SCALE, 0 to 1.
inline int scaled(int count, int least) {
  const char* scale = std::getenv("GPUSOCK_TEST_SCALE");
  return std::max(least, static_cast<int>(count * (scale == nullptr ? 1.0 : std::atof(scale))));
}

/// GPUSOCK_TEST_LINK names a link that takes the place of p2p: so the same tests hold for it.
inline std::string name_of(LinkKind link) {
  const char* instead = std::getenv("GPUSOCK_TEST_LINK");
  return instead != nullptr && link == LinkKind::p2p ? instead : std::string(to_string(link));
}

/// GPUSOCK_TEST_HOST names another address of this machine than loopback, so that the peers are at different devices
/// where connections to it come from another one.
inline std::string test_host() {
  const char* host = std::getenv("GPUSOCK_TEST_HOST");
  return host == nullptr ? "127.0.0.1" : host;
}

/// GPUSOCK_FABRIC_PROVIDER, GPUSOCK_RING, GPUSOCK_GPUDIRECT, GPUSOCK_HOST_RINGS and GPUSOCK_SPIN hold for tests whose
/// options are not from the environment, too; beyond loopback a secret is needed.
inline Options from_environment(Options options) {
  const Options environment = Options::from_env();
  options.fabric_provider = environment.fabric_provider;
  options.ring = environment.ring;
  options.gpudirect = environment.gpudirect;
  options.host_rings = environment.host_rings;
  options.host_connections_max = environment.host_connections_max;
  options.spin = environment.spin;
  if (options.secret.empty() && std::getenv("GPUSOCK_TEST_HOST") != nullptr) options.secret = "conformance";
  return options;
}

/// Where a test listens: on any port, so that tests can run beside each other.
inline Endpoint loopback(LinkKind link) { return Endpoint::parse(test_host() + ":0,link=" + name_of(link)); }

struct ThreadScope {
  static constexpr int kThreads = 1;
  static constexpr bool kKernel = true;
  static constexpr const char* kName = "Thread";
  __device__ static auto group() { return this_thread(); }
};
struct WarpScope {
  static constexpr int kThreads = 32;
  static constexpr bool kKernel = true;
  static constexpr const char* kName = "Warp";
  __device__ static auto group() { return this_warp(); }
};
struct BlockScope {
  static constexpr int kThreads = 96;
  static constexpr bool kKernel = true;
  static constexpr const char* kName = "Block";
  __device__ static auto group() { return this_block(); }
};
struct HostScope {
  static constexpr int kThreads = 1;
  static constexpr bool kKernel = false;
  static constexpr const char* kName = "HostThread";
  GPUSOCK_FN static auto group() { return this_thread(); }
};

template <class Scope, class Body>
__global__ void run_on_device(Body body, Net net) {
  body(Scope::group(), net);
}

/// One turn of a wait for a word of the test's own.
GPUSOCK_FN inline void pause() {
#if GPUSOCK_ON_GPU
  __nanosleep(500);
#elif GPUSOCK_KERNELS_ON_CPU
  cpu_device::relax(10'000);
#else
  sched_yield();
#endif
}

/// A word of a Mapped that one party raises and others wait for.
struct Flag {
  std::uint64_t value = 0;

  GPUSOCK_FN void raise(std::uint64_t to = 1) { detail::SystemRef(value).store(to, ringbuf::kRelease); }
  GPUSOCK_FN std::uint64_t load() { return detail::SystemRef(value).load(ringbuf::kAcquire); }
  /// True once it is at least `at`; false if that takes longer than a test may.
  GPUSOCK_FN bool wait(std::uint64_t at = 1) {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    while (load() < at) {
      if (clock_ns() > until_ns) return false;
      pause();
    }
    return true;
  }
  template <class Group>
  GPUSOCK_FN bool wait(const Group& group, std::uint64_t at = 1) {
    const bool raised = wait(at);
    group.sync();
    return raised;
  }
};

/// What a body leaves for the test to look at.
struct Report {
  Endpoint where;
  Flag listening;
  Flag reached[4];
  std::int64_t result[8] = {};
};

/// Gives parties that live at the same time GPUs in turn, as many as GPUSOCK_TEST_GPUS says: so the same tests hold for
/// kernels of two GPUs.
class GpuInTurn {
 public:
  GpuInTurn() {
    const char* gpus = std::getenv("GPUSOCK_TEST_GPUS");
    number_ = live().fetch_add(1) % (gpus == nullptr ? 1 : std::atoi(gpus));
  }
  ~GpuInTurn() { live().fetch_sub(1); }
  GpuInTurn(const GpuInTurn&) = delete;
  GpuInTurn& operator=(const GpuInTurn&) = delete;

  Options of(Options options) const {
    options.gpu = number_;
    return options;
  }

 private:
  static std::atomic<int>& live() {
    static std::atomic<int> parties{0};
    return parties;
  }
  int number_;
};

/// A context and what runs on it.
template <class Scope>
class Party {
  const GpuInTurn gpu_;

 public:
  explicit Party(const Options& options = Options())
      : context(gpu_.of(from_environment(options))), report_(context, 1), stream_(context) {}
  ~Party() {
    if (thread_.joinable()) {
      context.cancel();
      thread_.join();
    }
  }

  template <class Body>
  void start(const Body& body) {
    if constexpr (Scope::kKernel) {
      launch(context, {.grid = 1, .block = Scope::kThreads, .shared_bytes = 0, .stream = &stream_},
             run_on_device<Scope, Body>, body, context.net());
    } else {
      thread_ = std::thread([body, net = Net(context.net())] {
        Body copy = body;
        copy(this_thread(), net);
      });
    }
  }
  void join() {
    if constexpr (Scope::kKernel) {
      stream_.synchronize();
    } else {
      if (thread_.joinable()) thread_.join();
    }
  }

  Report& report() { return report_[0]; }
  std::int64_t result(int which) { return report().result[which]; }

  Context context;

 private:
  Mapped<Report> report_;
  Stream stream_;
  std::thread thread_;
};

template <class Group>
GPUSOCK_FN void note(const Group& group, Report* report, int which, std::int64_t value) {
  if (group.thread_rank() == 0) report->result[which] = value;
}

/// Listens, accepts one connection, runs `inner(group, net, socket)` on it, closes both.
template <class Inner>
struct Serve {
  Endpoint at;
  Report* report;
  Inner inner;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket listener = net.listen(group, at, 16, patience());
    if (group.thread_rank() == 0) {
      if (listener >= 0) net.getsockname(listener, report->where);
      report->result[7] = listener;
      report->listening.raise();
    }
    if (listener < 0) return;
    const Socket socket = net.accept(group, listener, patience());
    note(group, report, 6, socket);
    if (socket >= 0) {
      inner(group, net, socket, report);
      net.close(group, socket);
    }
    net.close(group, listener);
  }
};

/// Connects, runs `inner(group, net, socket)`, closes.
template <class Inner>
struct Visit {
  Endpoint to;
  Report* report;
  Inner inner;

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const Net& net) {
    const Socket socket = net.connect(group, to, patience());
    note(group, report, 6, socket);
    if (socket < 0) return;
    inner(group, net, socket, report);
    net.close(group, socket);
  }
};

/// Runs one inner body on each end of a connection, and waits for both.
template <class Server, class Client, class ServerInner, class ClientInner>
void converse(Server& server, Client& client, LinkKind link, ServerInner serve, ClientInner visit) {
  server.start(Serve<ServerInner>{loopback(link), &server.report(), serve});
  ASSERT_TRUE(server.report().listening.wait());
  ASSERT_GE(server.result(7), 0) << "listen";
  client.start(Visit<ClientInner>{server.report().where, &client.report(), visit});
  client.join();
  server.join();
  ASSERT_GE(client.result(6), 0) << "connect";
  ASSERT_GE(server.result(6), 0) << "accept";
}

/// A parameter of test suites: what calls, and on which link. A host thread is the peer.
template <class Scope, LinkKind link>
struct OnLink {
  using ScopeType = Scope;
  static constexpr LinkKind kLink = link;
};
struct OnLinkName {
  template <class Kind>
  static std::string GetName(int) {
    return std::string(to_string(Kind::kLink)) + "_" + Kind::ScopeType::kName;
  }
};
struct ScopeName {
  template <class Scope>
  static std::string GetName(int) {
    return Scope::kName;
  }
};

/// The scopes of a suite whose kernels are instantiated for each. nvcc takes long for a kernel, and a thread's code is
/// in a warp's.
#if defined(__CUDACC__)
using KernelScopes = testing::Types<WarpScope, BlockScope>;
#else
using KernelScopes = testing::Types<ThreadScope, WarpScope, BlockScope>;
#endif

/// Two parties on a link. `Kind`: an OnLink.
template <class Kind>
class PartiesOnLink : public testing::Test {
 protected:
  explicit PartiesOnLink(const Options& options) : party_(options), other_(options) {}

  Party<typename Kind::ScopeType> party_;
  Party<HostScope> other_;
};

/// The byte at an offset of a test's stream.
GPUSOCK_FN inline std::uint8_t byte_at(std::uint64_t offset) {
  return static_cast<std::uint8_t>((offset * 0x9E3779B97F4A7C15u) >> 56);
}

/// Sizes that drift: the same sequence in every thread of a group.
class Sizes {
 public:
  GPUSOCK_FN Sizes(std::uint64_t seed, std::uint64_t max) : state_(seed), max_(max) {}
  GPUSOCK_FN std::uint64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return 1 + (state_ >> 33) % max_;
  }

 private:
  std::uint64_t state_;
  std::uint64_t max_;
};

}  // namespace gpusock::conformance
