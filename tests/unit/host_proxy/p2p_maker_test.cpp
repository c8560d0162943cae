// How two processes agree on the p2p link where a device maps nothing while its kernels run: in host rings, or not at
// all.
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/unit/host_proxy/other_process.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpusock::proxy {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint64_t kOfferedRing = 4096;

/// The rings as this side's callers reach them, with their words.
table::RingPair words_of(const LinkSetup& setup) {
  table::RingPair rings;
  rings.tx.memory = setup.rings().callers_rings().tx;
  rings.rx.memory = setup.rings().callers_rings().rx;
  setup.use_own_words(rings);
  return rings;
}

class Unmoved final : public ReadySink {
  void on_ready() override {}
};

/// A connector's answer: this kind of memory, and nobody's.
Bytes answer_that_says(std::uint8_t used) {
  Bytes answer(17);
  answer[0] = std::byte{used};
  return answer;
}

/// What a process has of the p2p link.
struct Party {
  explicit Party(std::size_t connections = 1, const std::string& name = {}, std::uint32_t slots = 1,
                 std::uint64_t rest_ns = 0)
      : segments(platform, {kOfferedRing, kOfferedRing}, connections) {
    if (!name.empty()) {
      segments.use_host_rings(
          std::make_shared<HostRings>(platform, HostRings::Settings{name, slots, kOfferedRing, rest_ns}));
    }
    maker.emplace(network, segments);
    attached = platform->attached;
  }
  ~Party() { EXPECT_EQ(platform->attached, attached) << "the device was called while kernels might run"; }

  std::unique_ptr<LinkSetup> accept(std::uint64_t ring_bytes = 0) {
    LinkRequest request;
    request.acceptor = true;
    request.ring_bytes = ring_bytes;
    return maker->start(request, {}, sink);
  }
  std::unique_ptr<LinkSetup> connect(const Bytes& offer) { return maker->start({}, offer, sink); }
  /// True if nothing of the host rings is in use.
  bool has_a_slot() {
    HostRings::SlotLocator locator;
    return segments.host_rings()->take(kOfferedRing, locator) != nullptr;
  }

  Unmoved sink;
  PosixNetwork network;
  std::shared_ptr<PinningPlatform> platform = std::make_shared<PinningPlatform>();
  SegmentPool segments;
  std::optional<P2pMaker> maker;
  int attached = 0;
};

/// Two contexts of a GPU, or of two; and what a kernel of one asks of a kernel of the other.
class P2pOnAGpu : public testing::Test {
 protected:
  struct OnGpu {
    explicit OnGpu(std::shared_ptr<PinningPlatform> of, RingPlacement placement = RingPlacement::automatic)
        : platform(std::move(of)), segments(platform, {kOfferedRing, kOfferedRing}, 1, placement) {}

    std::unique_ptr<LinkSetup> accept(bool kernels = true) { return maker.start(request(true, kernels), {}, sink); }
    std::unique_ptr<LinkSetup> connect(const LinkSetup& acceptor, bool kernels = true) {
      return maker.start(request(false, kernels), acceptor.message(), sink);
    }
    static LinkRequest request(bool acceptor, bool kernels) {
      LinkRequest made;
      made.acceptor = acceptor;
      made.kernels = kernels;
      return made;
    }

    Unmoved sink;
    PosixNetwork network;
    std::shared_ptr<PinningPlatform> platform;
    SegmentPool segments;
    P2pMaker maker{network, segments};
  };
  static std::shared_ptr<PinningPlatform> gpu() {
    auto platform = std::make_shared<PinningPlatform>();
    platform->is_gpu = true;
    return platform;
  }
  /// Where the two then have their rings.
  static RingPlacement agree_on_rings(LinkSetup& acceptor, LinkSetup& connector) {
    EXPECT_EQ(connector.advance(), LinkSetup::State::ready) << connector.failure().reason;
    EXPECT_TRUE(acceptor.take_answer(connector.message()));
    return acceptor.rings().callers->placement();
  }
  /// The same, of rings that are in one piece.
  static RingPlacement agree(LinkSetup& acceptor, LinkSetup& connector) {
    const RingPlacement placement = agree_on_rings(acceptor, connector);
    EXPECT_EQ(acceptor.rings().callers, connector.rings().callers);
    return placement;
  }
  /// Two GPUs that reach each other's memory.
  struct TwoGpus {
    TwoGpus() {
      one->peers = {other.get()};
      other->peers = {one.get()};
    }
    std::shared_ptr<PinningPlatform> one = gpu(), other = gpu();
  };
};

TEST_F(P2pOnAGpu, KernelsOfOneGpuUseItsMemory) {
  const auto one = gpu();
  OnGpu here(one), there(one);
  {
    const auto acceptor = here.accept();
    const auto connector = there.connect(*acceptor);
    EXPECT_EQ(agree(*acceptor, *connector), RingPlacement::device);
    EXPECT_NE(here.segments.take(SegmentPool::Use::own, kOfferedRing), nullptr) << "host memory is free again";
    const table::RingPair a = words_of(*acceptor), b = words_of(*connector);
    const DeviceWords* const words = acceptor->rings().link->device_words();
    ASSERT_NE(words, nullptr);
    EXPECT_EQ(a.tx.committed, &words->tx_committed.value);
    EXPECT_EQ(a.rx.consumed, &words->rx_consumed.value);
    EXPECT_EQ(a.tx.committed, b.rx.committed);
    EXPECT_EQ(a.rx.consumed, b.tx.consumed);
    EXPECT_EQ(a.tx.host_committed(), &acceptor->rings().link->header().tx_committed.value);
    EXPECT_EQ(b.rx.host_consumed(), &acceptor->rings().link->header().tx_consumed.value);
    EXPECT_EQ(*a.tx.host_committed(), a.tx.start);
  }
  EXPECT_TRUE(here.segments.has_all());
}

/// Bytes are in the receiver's memory, and each word in the memory of who polls it.
TEST_F(P2pOnAGpu, KernelsOfTwoGpusUseTheMemoryOfBoth) {
  TwoGpus gpus;
  OnGpu here(gpus.one), there(gpus.other);
  {
    const auto acceptor = here.accept();
    const auto connector = there.connect(*acceptor);
    ASSERT_EQ(connector->advance(), LinkSetup::State::ready) << connector->failure().reason;
    ASSERT_TRUE(acceptor->take_answer(connector->message()));
    Segment& ours = *acceptor->rings().link;
    Segment& theirs = *connector->rings().link;
    EXPECT_EQ(&ours.platform(), gpus.one.get());
    EXPECT_EQ(&theirs.platform(), gpus.other.get());
    EXPECT_EQ(ours.placement(), RingPlacement::device);
    const table::RingPair a = words_of(*acceptor), b = words_of(*connector);
    EXPECT_EQ(a.rx.memory.data, ours.callers_rings().rx.data);
    EXPECT_EQ(a.rx.committed, &ours.device_words()->rx_committed.value);
    EXPECT_EQ(a.rx.consumed, &theirs.device_words()->tx_consumed.value) << "the sender polls it";
    EXPECT_EQ(b.rx.memory.data, theirs.callers_rings().rx.data);
    EXPECT_EQ(b.rx.committed, &theirs.device_words()->rx_committed.value);
    EXPECT_EQ(b.rx.consumed, &ours.device_words()->tx_consumed.value);
    EXPECT_EQ(a.rx.host_committed(), &ours.header().rx_committed.value);
    EXPECT_EQ(a.rx.host_consumed(), &theirs.header().tx_consumed.value);
    for (const auto& [tx, rx] : {std::pair(a.tx, b.rx), std::pair(b.tx, a.rx)}) {
      EXPECT_EQ(tx.memory.data, rx.memory.data);
      EXPECT_EQ(tx.memory.capacity, rx.memory.capacity);
      EXPECT_EQ(tx.committed, rx.committed);
      EXPECT_EQ(tx.consumed, rx.consumed);
      EXPECT_EQ(tx.committed_copy, rx.committed_copy);
      EXPECT_EQ(tx.consumed_copy, rx.consumed_copy);
      EXPECT_EQ(tx.start, rx.start);
      EXPECT_TRUE(tx.memory.words_are_kept && rx.memory.words_are_kept);
      EXPECT_EQ(*tx.host_committed(), tx.start);
      EXPECT_EQ(*tx.host_consumed(), tx.start);
    }
    EXPECT_TRUE(acceptor->remark().empty() && connector->remark().empty());
    EXPECT_EQ(there.segments.try_take_between_kernels(kOfferedRing, true), nullptr) << "the connection has it";
  }
  EXPECT_TRUE(here.segments.has_all());
  EXPECT_TRUE(there.segments.has_all());
}

/// Memory of two GPUs goes from connections of the two to others and back. The words in it go on; so each connection
/// starts after all that its words, wherever they are, may hold.
TEST_F(P2pOnAGpu, EachConnectionStartsAfterTheWordsOfBothGpus) {
  TwoGpus gpus;
  OnGpu here(gpus.one), beside(gpus.one), there(gpus.other);
  std::map<const std::uint64_t*, std::uint64_t> held;  // device words, and what they may hold
  const auto connect = [&](OnGpu& accepts, OnGpu& connects, std::uint64_t sent) {
    const auto acceptor = accepts.accept();
    const auto connector = connects.connect(*acceptor);
    EXPECT_EQ(agree_on_rings(*acceptor, *connector), RingPlacement::device);
    for (const table::RingPair& rings : {words_of(*acceptor), words_of(*connector)}) {
      for (const std::uint64_t* word : {rings.tx.committed, rings.rx.consumed}) {
        EXPECT_GE(rings.tx.start, held[word]);
      }
      for (std::uint64_t* copy : {rings.tx.committed_copy, rings.rx.consumed_copy}) *copy = rings.tx.start + sent;
      held[rings.tx.committed] = held[rings.rx.consumed] = rings.tx.start + sent;
    }
  };
  for (const std::uint64_t sent : {0ull, 1ull << 40, 7ull}) {
    connect(here, there, sent);
    connect(here, beside, sent + (1ull << 41));
    connect(there, here, sent + 3);
    connect(there, beside, sent);
  }
}

TEST_F(P2pOnAGpu, WhereGpusAreApartBothSidesKnowWhy) {
  const auto expect_host = [](OnGpu& here, OnGpu& there, const std::string& why) {
    const auto acceptor = here.accept();
    const auto connector = there.connect(*acceptor);
    EXPECT_EQ(agree(*acceptor, *connector), RingPlacement::host);
    EXPECT_EQ(connector->remark(), "p2p in GPU memory: " + why);
    EXPECT_EQ(acceptor->remark(), connector->remark());
  };
  TwoGpus gpus;
  OnGpu here(gpus.one), there(gpus.other);
  const auto all = there.segments.try_take_between_kernels(kOfferedRing, true);
  expect_host(here, there, "no such rings are free (Options::connections_max)");
  for (const auto& deaf : {gpus.one, gpus.other}) {
    const auto peers = std::exchange(deaf->peers, {});
    expect_host(here, there, "it is another device's");
    deaf->peers = peers;
  }
  const auto acceptor = here.accept(), of_host_thread = here.accept(false);
  EXPECT_EQ(agree(*acceptor, *there.connect(*acceptor, false)), RingPlacement::host);
  EXPECT_TRUE(acceptor->remark().empty()) << "a host thread connects: there is nothing better";
}

TEST_F(P2pOnAGpu, DeviceMemoryThatWasAskedForIsUsedAsFarAsPeersReachIt) {
  TwoGpus gpus;
  OnGpu here(gpus.one, RingPlacement::device), beside(gpus.one, RingPlacement::device);
  OnGpu there(gpus.other, RingPlacement::device), apart(gpu(), RingPlacement::device);
  const auto where = [](OnGpu& accepts, OnGpu& connects, bool kernels) {
    const auto acceptor = accepts.accept();
    return agree_on_rings(*acceptor, *connects.connect(*acceptor, kernels));
  };
  EXPECT_EQ(where(here, beside, true), RingPlacement::device);
  EXPECT_EQ(where(here, there, true), RingPlacement::device);
  EXPECT_EQ(where(here, apart, true), RingPlacement::host);
  EXPECT_EQ(where(here, beside, false), RingPlacement::host) << "a host thread connects";
}

TEST_F(P2pOnAGpu, AllOthersUseHostMemory) {
  const auto one = gpu(), other = gpu();
  const auto where = [](OnGpu& here, OnGpu& there, bool accepts_kernels, bool connects_kernels) {
    const auto acceptor = here.accept(accepts_kernels);
    return agree(*acceptor, *there.connect(*acceptor, connects_kernels));
  };
  OnGpu here(one), there(one), elsewhere(other), on_host(one, RingPlacement::host);
  EXPECT_EQ(where(here, there, true, false), RingPlacement::host) << "a host thread connects";
  EXPECT_EQ(where(here, there, false, true), RingPlacement::host) << "a host thread accepts";
  EXPECT_EQ(where(here, elsewhere, true, true), RingPlacement::host) << "another GPU";
  EXPECT_EQ(where(here, on_host, true, true), RingPlacement::host) << "GPUSOCK_RING=host";
  EXPECT_EQ(where(on_host, here, true, true), RingPlacement::host) << "GPUSOCK_RING=host";
}

TEST_F(P2pOnAGpu, WithoutFreeHostMemoryTheGpusIsEnough) {
  const auto one = gpu();
  OnGpu here(one), there(one);
  const auto taken = here.segments.take(SegmentPool::Use::own, kOfferedRing);
  const auto acceptor = here.accept();
  ASSERT_EQ(acceptor->advance(), LinkSetup::State::ready) << acceptor->failure().reason;
  EXPECT_EQ(agree(*acceptor, *there.connect(*acceptor)), RingPlacement::device);
  const auto late = here.accept();
  EXPECT_EQ(late->advance(), LinkSetup::State::failed) << "nor is there any in the GPU now";
}

TEST_F(P2pOnAGpu, AnAnswerThatTookNothingOnTheDeviceIsRefused) {
  OnGpu here(gpu());
  const auto acceptor = here.accept();
  EXPECT_FALSE(acceptor->take_answer(answer_that_says(3)));
  EXPECT_EQ(acceptor->failure().error, EPROTO);
}

class P2pBetweenProcesses : public testing::Test {
 protected:
  /// What is offered, as another process gets it: the ticket leads to nothing there.
  static Bytes offer_of(const LinkSetup& setup) {
    Bytes bytes(setup.message().begin(), setup.message().end());
    constexpr std::size_t kTicketAt = 40;
    bytes.at(kTicketAt) ^= std::byte{1};
    return bytes;
  }
  static constexpr std::size_t kMemberAt = 104;  // in an offer: whose arena it may be
  static Bytes answer_of(const LinkSetup& setup) { return {setup.message().begin(), setup.message().end()}; }
  static void expect_refusal(LinkSetup& setup, int error, const char* reason) {
    EXPECT_EQ(setup.advance(), LinkSetup::State::failed);
    EXPECT_EQ(setup.failure().error, error);
    EXPECT_NE(setup.failure().reason.find(reason), std::string::npos) << setup.failure().reason;
  }

  std::string name_ = "maker-test-" + std::to_string(getpid());
};

TEST_F(P2pBetweenProcesses, HostRingsAreUsedAndGivenBack) {
  Party here(1, name_), there(1, name_);
  {
    const auto acceptor = here.accept();
    ASSERT_EQ(acceptor->advance(), LinkSetup::State::ready);
    const auto connector = there.connect(offer_of(*acceptor));
    ASSERT_EQ(connector->advance(), LinkSetup::State::ready) << connector->failure().reason;
    ASSERT_TRUE(acceptor->take_answer(answer_of(*connector)));
    EXPECT_EQ(acceptor->advance(), LinkSetup::State::ready);
    acceptor->rings().callers->header().tx_committed.value = 7;
    EXPECT_EQ(connector->rings().callers->header().tx_committed.value, 7u);
    EXPECT_NE(here.segments.take(SegmentPool::Use::own, kOfferedRing), nullptr) << "its own memory is free again";
    EXPECT_FALSE(here.has_a_slot());
  }
  EXPECT_TRUE(here.has_a_slot());
  EXPECT_TRUE(here.segments.has_all());
}

TEST_F(P2pBetweenProcesses, InOneProcessTheyAreNotNeeded) {
  Party here(1, name_), there(1, name_);
  const auto acceptor = here.accept();
  const auto connector = there.connect(answer_of(*acceptor));  // the ticket as it is
  ASSERT_EQ(connector->advance(), LinkSetup::State::ready);
  ASSERT_TRUE(acceptor->take_answer(answer_of(*connector)));
  EXPECT_EQ(acceptor->rings().callers, connector->rings().callers);
  EXPECT_TRUE(here.has_a_slot());
}

TEST_F(P2pBetweenProcesses, TheReasonSaysWhatToDo) {
  Party with(1, name_), without(1), other(1, name_ + "-other");
  const auto from_with = with.accept(), from_without = without.accept();
  constexpr const char* kSameName = "GPUSOCK_HOST_RINGS is not the same name in both processes";
  expect_refusal(*without.connect(offer_of(*from_with)), EHOSTUNREACH, kSameName);
  expect_refusal(*with.connect(offer_of(*from_without)), EHOSTUNREACH, kSameName);
  expect_refusal(*other.connect(offer_of(*from_with)), EHOSTUNREACH, kSameName);
  expect_refusal(*without.connect(offer_of(*from_with)), EHOSTUNREACH, "(here: off)");
  std::filesystem::remove(HostRings::path_of(name_));
  Party after(1, name_);  // as where /dev/shm is another one
  expect_refusal(*after.connect(offer_of(*from_with)), EHOSTUNREACH, "not the same /dev/shm (containers: --ipc=host)");
  without.segments.have_no_host_rings("none: no room");
  expect_refusal(*without.connect(offer_of(*from_with)), EHOSTUNREACH, "(here: none: no room)");
}

TEST_F(P2pBetweenProcesses, FullHostRingsAreNamed) {
  Party here(2, name_), there(1, name_);
  const auto first = here.accept(), second = here.accept();
  const std::string more = "all 1 host rings are in use; start all with GPUSOCK_HOST_RINGS=" + name_ + ",connections=N";
  expect_refusal(*there.connect(offer_of(*second)), ENOBUFS, more.c_str());
  Party other(1, name_ + "-other");
  expect_refusal(*other.connect(offer_of(*second)), EHOSTUNREACH, "the same name in both");
}

TEST_F(P2pBetweenProcesses, HostRingsThatRestAreNamed) {
  constexpr std::uint64_t kRestsForEver = ~std::uint64_t{0};
  Party here(2, name_, 2, kRestsForEver), there(1, name_);
  const auto first = here.accept();
  OtherProcess([&] {
    static const auto its = std::make_shared<HostRings>(std::make_shared<PinningPlatform>(),
                                                        HostRings::Settings{name_, 2, kOfferedRing, 0});
    static HostRings::SlotLocator locator;
    static const auto segment = its->take(kOfferedRing, locator);
  }).end();
  const auto second = here.accept();
  const std::string rest =
      "all 2 host rings are in use, or rest for a second because their process has ended (1 of "
      "them): try again, or start all with GPUSOCK_HOST_RINGS=" +
      name_;
  expect_refusal(*there.connect(offer_of(*second)), ENOBUFS, rest.c_str());
}

TEST_F(P2pBetweenProcesses, RingsThatDoNotFitAreNamed) {
  const auto platform = std::make_shared<PinningPlatform>();
  const auto first = std::make_shared<HostRings>(platform, HostRings::Settings{name_, 1, kOfferedRing, 0});
  Party here(1), there(1, name_);
  SegmentPool large(platform, {2 * kOfferedRing, 2 * kOfferedRing}, 1);
  large.use_host_rings(first);
  P2pMaker maker(here.network, large);
  LinkRequest request;
  request.acceptor = true;
  request.ring_bytes = 2 * kOfferedRing;
  const auto acceptor = maker.start(request, {}, here.sink);
  expect_refusal(*there.connect(offer_of(*acceptor)), EHOSTUNREACH, "do not fit");
  request.ring_bytes = 0;  // its choice: as large as fits
  const auto small = maker.start(request, {}, here.sink);
  EXPECT_EQ(there.connect(offer_of(*small))->advance(), LinkSetup::State::ready);
}

TEST_F(P2pBetweenProcesses, HostRingsDoWithoutMemoryOfTheirOwn) {
  Party here(0, name_), there(0, name_);
  const auto acceptor = here.accept();
  ASSERT_EQ(acceptor->advance(), LinkSetup::State::ready);
  const auto connector = there.connect(offer_of(*acceptor));
  ASSERT_EQ(connector->advance(), LinkSetup::State::ready);
  EXPECT_TRUE(acceptor->take_answer(answer_of(*connector)));
  expect_refusal(*here.accept(), ENOBUFS, "no memory");
}

TEST_F(P2pBetweenProcesses, AnAnswerThatNamesOtherMemoryEndsIt) {
  Party here(1, name_);
  for (const Bytes& lie : {Bytes{}, answer_that_says(0), answer_that_says(2), answer_that_says(3), answer_that_says(4),
                           Bytes{std::byte{1}}, Bytes(18, std::byte{1})}) {
    const auto acceptor = here.accept();
    EXPECT_FALSE(acceptor->take_answer(lie)) << "nobody has joined";
    EXPECT_EQ(acceptor->failure().error, EPROTO);
  }
  Party bare(1), poor(0, name_);
  EXPECT_FALSE(bare.accept()->take_answer(answer_that_says(2))) << "there are no host rings";
  EXPECT_FALSE(poor.accept()->take_answer(answer_that_says(1))) << "there is no memory of its own";
}

TEST_F(P2pBetweenProcesses, AnOfferMayLieInEveryByte) {
  Party here(1, name_), there(1, name_);
  const auto acceptor = here.accept();
  const Bytes honest = offer_of(*acceptor);
  for (std::size_t at = 56; at < kMemberAt; ++at) {  // before: of the ticket
    Bytes lie = honest;
    lie[at] ^= std::byte{0x81};
    const auto connector = there.connect(lie);
    EXPECT_EQ(connector->advance(), LinkSetup::State::failed) << at;
  }
  EXPECT_EQ(there.connect(honest)->advance(), LinkSetup::State::ready);
}

/// Kernels of two processes on one GPU: the context that was made later has mapped the other's arena.
class P2pInArenas : public P2pBetweenProcesses {
 protected:
  /// A process whose proxy runs, as far as others see.
  class Process {
   public:
    explicit Process(const std::string& name, int gpu = 0, RingPlacement placement = RingPlacement::automatic)
        : segments(make_platform(gpu), {kOfferedRing, kOfferedRing}, 1, placement) {
      segments.use_host_rings(std::make_shared<HostRings>(platform, HostRings::Settings{name, 2, kOfferedRing, 0}));
      maker.emplace(network, segments);
      attached_ = platform->attached;
      server_ = std::thread([this] {
        while (!ends_) {
          const std::lock_guard lock(stepping);
          network.poll();
          maker->maintain(0);
        }
      });
    }
    ~Process() {
      ends_ = true;
      server_.join();
      EXPECT_EQ(platform->attached, attached_ + platform->attached_quietly)
          << "the device was called while kernels might run";
    }

    std::unique_ptr<LinkSetup> accept(bool kernels = true) { return start(true, kernels, {}); }
    std::unique_ptr<LinkSetup> connect(const LinkSetup& acceptor, bool kernels = true) {
      return start(false, kernels, offer_of(acceptor));
    }
    std::unique_ptr<LinkSetup> connect(const Bytes& offer) { return start(false, true, offer); }

    std::shared_ptr<PinningPlatform> platform;
    SegmentPool segments;
    Unmoved sink;
    PosixNetwork network;
    std::mutex stepping;  // what a proxy's lock is
    std::optional<P2pMaker> maker;

   private:
    std::shared_ptr<PinningPlatform> make_platform(int gpu) {
      platform = std::make_shared<PinningPlatform>();
      platform->is_gpu = platform->shares = true;
      platform->number = gpu;
      return platform;
    }
    std::unique_ptr<LinkSetup> start(bool acceptor, bool kernels, const Bytes& offer) {
      LinkRequest request;
      request.acceptor = acceptor;
      request.kernels = kernels;
      const std::lock_guard lock(stepping);
      return maker->start(request, offer, sink);
    }

    int attached_ = 0;
    std::atomic<bool> ends_ = false;
    std::thread server_;
  };

  /// Where the two have their rings, and why not elsewhere.
  static std::pair<RingPlacement, std::string> agree(LinkSetup& acceptor, LinkSetup& connector) {
    EXPECT_EQ(connector.advance(), LinkSetup::State::ready) << connector.failure().reason;
    EXPECT_TRUE(acceptor.take_answer(connector.message()));
    EXPECT_EQ(acceptor.rings().callers->placement(), connector.rings().callers->placement());
    EXPECT_EQ(acceptor.remark().empty(), connector.remark().empty());
    return {acceptor.rings().callers->placement(), connector.remark()};
  }
  void lie_in_every_byte(int gpu_of_other) {
    Process here(name_), there(name_, gpu_of_other), third(name_, gpu_of_other);
    const auto honest = offer_of(*here.accept());
    for (std::size_t at = kMemberAt; at < honest.size(); ++at) {
      const auto acceptor = here.accept();
      Bytes lie = offer_of(*acceptor);
      lie[at] ^= std::byte{0x81};
      const auto connector = there.connect(lie);
      EXPECT_EQ(agree(*acceptor, *connector).first, RingPlacement::host) << "nobody has such an arena";
    }
    for (std::size_t at = 0; at < sizeof(Arenas::Id) + 1; ++at) {
      const auto acceptor = here.accept();
      const auto connector = there.connect(*acceptor);
      ASSERT_EQ(connector->advance(), LinkSetup::State::ready);
      Bytes lie = answer_of(*connector);
      lie[at] ^= std::byte{0x81};
      EXPECT_FALSE(acceptor->take_answer(lie)) << at;
      EXPECT_EQ(acceptor->failure().error, EPROTO);
    }
  }

  /// A ring that starts now, as its two sides have it.
  static void expect_one_ring(const table::RingSetup& tx, const table::RingSetup& rx) {
    EXPECT_NE(tx.memory.data, rx.memory.data) << "each maps it by itself";
    EXPECT_EQ(tx.start, rx.start);
    EXPECT_GT(tx.start, 0u);
    EXPECT_TRUE(tx.memory.words_are_kept && rx.memory.words_are_kept);
    EXPECT_EQ(*tx.host_committed(), tx.start);
    EXPECT_EQ(*rx.host_consumed(), rx.start);
    *tx.committed = tx.start + 5;
    *rx.consumed = tx.start + 3;
    *tx.committed_copy = tx.start + 5;
    *rx.consumed_copy = tx.start + 3;
    tx.memory.data[0] = std::byte{1};
    tx.memory.data[kOfferedRing - 1] = std::byte{2};
    EXPECT_EQ(*rx.committed, tx.start + 5);
    EXPECT_EQ(*tx.consumed, tx.start + 3);
    EXPECT_EQ(*rx.host_committed(), tx.start + 5);
    EXPECT_EQ(*tx.host_consumed(), tx.start + 3);
    EXPECT_EQ(rx.memory.data[0], std::byte{1});
    EXPECT_EQ(rx.memory.data[kOfferedRing - 1], std::byte{2});
    rx.memory.data[0] = rx.memory.data[kOfferedRing - 1] = std::byte{0};
  }
};

TEST_F(P2pInArenas, KernelsOfOneGpuMeetInTheMemoryOfTheEarlierContext) {
  Process earlier(name_), later(name_);
  for (const bool earlier_accepts : {true, false, true}) {
    Process &accepts = earlier_accepts ? earlier : later, &connects = earlier_accepts ? later : earlier;
    const auto acceptor = accepts.accept();
    const auto connector = connects.connect(*acceptor);
    EXPECT_EQ(agree(*acceptor, *connector), std::pair(RingPlacement::device, std::string()));
    const table::RingPair a = words_of(*acceptor), b = words_of(*connector);
    expect_one_ring(a.tx, b.rx);
    expect_one_ring(b.tx, a.rx);
  }
  EXPECT_TRUE(earlier.segments.has_all());
  EXPECT_TRUE(later.segments.has_all());
}

/// Bytes are in the receiver's memory, and each word in the memory of who polls it. The copies are in the slot's page.
TEST_F(P2pInArenas, KernelsOfTwoGpusUseTheMemoryOfBoth) {
  Process earlier(name_), later(name_, 1);
  for (const bool earlier_accepts : {true, false, true}) {
    Process &accepts = earlier_accepts ? earlier : later, &connects = earlier_accepts ? later : earlier;
    const auto acceptor = accepts.accept();
    const auto connector = connects.connect(*acceptor);
    EXPECT_EQ(agree(*acceptor, *connector), std::pair(RingPlacement::device, std::string()));
    const table::RingPair a = words_of(*acceptor), b = words_of(*connector);
    const auto own_of = [](const LinkSetup& setup) { return setup.rings().callers->device_words(); };
    EXPECT_EQ(a.rx.committed, &own_of(*acceptor)->rx_committed.value);
    EXPECT_EQ(a.tx.consumed, &own_of(*acceptor)->tx_consumed.value);
    EXPECT_EQ(b.rx.committed, &own_of(*connector)->rx_committed.value);
    EXPECT_EQ(b.tx.consumed, &own_of(*connector)->tx_consumed.value);
    EXPECT_EQ(a.rx.memory.data, acceptor->rings().callers->callers_rings().rx.data);
    EXPECT_EQ(b.rx.memory.data, connector->rings().callers->callers_rings().rx.data);
    std::set<const std::uint64_t*> copies;
    for (const auto& [tx, rx] : {std::pair(a.tx, b.rx), std::pair(b.tx, a.rx)}) {
      expect_one_ring(tx, rx);
      copies.insert({tx.committed_copy, rx.consumed_copy});
    }
    EXPECT_EQ(copies.size(), 4u);
  }
  EXPECT_TRUE(earlier.segments.has_all());
  EXPECT_TRUE(later.segments.has_all());
}

/// Memory of two GPUs is used with others in between: each connection starts after all that its words may hold.
TEST_F(P2pInArenas, EachConnectionOfTwoGpusStartsAfterTheOneBefore) {
  Process here(name_), beside(name_), there(name_, 1);
  const auto connect = [&](Process& accepts, Process& connects, std::uint64_t sent) {
    const auto acceptor = accepts.accept();
    const auto connector = connects.connect(*acceptor);
    EXPECT_EQ(agree(*acceptor, *connector).first, RingPlacement::device);
    const table::RingPair sides[] = {words_of(*acceptor), words_of(*connector)};
    for (const table::RingPair& rings : sides) {
      for (const std::uint64_t* word : {rings.tx.committed, rings.tx.consumed, rings.rx.committed, rings.rx.consumed}) {
        EXPECT_GE(rings.tx.start, *word) << "what another connection left";
      }
    }
    for (const table::RingPair& rings : sides) {
      *rings.tx.committed = *rings.tx.committed_copy = rings.tx.start + sent;
      *rings.rx.consumed = *rings.rx.consumed_copy = rings.tx.start + sent;
    }
  };
  for (const std::uint64_t sent : {0ull, 1ull << 40, 7ull}) {
    connect(here, there, sent);
    connect(here, beside, sent + (1ull << 41));
    connect(there, here, sent + 3);
    connect(beside, there, sent);
  }
}

TEST_F(P2pInArenas, AllOthersUseHostRingsAndKnowWhy) {
  Process here(name_), there(name_), on_host(name_, 0, RingPlacement::host);
  here.platform->kernels_run = true;
  Process other_gpu(name_, 1);
  const auto where = [](Process& accepts, Process& connects, bool accepts_kernels = true,
                        bool connects_kernels = true) {
    const auto acceptor = accepts.accept(accepts_kernels);
    const auto connector = connects.connect(*acceptor, connects_kernels);
    EXPECT_EQ(connector->advance(), LinkSetup::State::ready) << connector->failure().reason;
    EXPECT_TRUE(acceptor->take_answer(connector->message()));
    EXPECT_EQ(acceptor->rings().callers->placement(), RingPlacement::host);
    EXPECT_EQ(connector->rings().callers->placement(), RingPlacement::host);
    return std::pair(acceptor->remark(), connector->remark());
  };
  const std::string why = "p2p in GPU memory: the peer is another process, ", none;
  const std::string nothing =
      why + "which shares no GPU memory for this connection: a host thread's, GPUSOCK_RING=host there, or see its log";
  const std::string ran_here =
      why + "on another GPU: kernels of this process ran when that context was made: make all contexts first";
  const std::string ran_there = why +
                                "on another GPU: its kernels ran when this context was made: make all contexts first";
  EXPECT_EQ(where(here, other_gpu), std::pair(ran_here, ran_there));
  EXPECT_EQ(where(other_gpu, here), std::pair(ran_there, ran_here));
  EXPECT_EQ(where(here, there, true, false), std::pair(nothing, none)) << "a host thread connects";
  EXPECT_EQ(where(here, there, false, true), std::pair(none, nothing)) << "a host thread accepts";
  EXPECT_EQ(where(here, on_host), std::pair(nothing, none)) << "GPUSOCK_RING=host";
  EXPECT_EQ(where(on_host, here), std::pair(none, nothing)) << "GPUSOCK_RING=host";
}

TEST_F(P2pInArenas, DeviceMemoryThatWasAskedForIsUsedToo) {
  Process here(name_, 0, RingPlacement::device), there(name_, 0, RingPlacement::device);
  const auto acceptor = here.accept();
  EXPECT_EQ(agree(*acceptor, *there.connect(*acceptor)).first, RingPlacement::device);
}

/// Host threads accept: they do not reach what the answer names.
TEST_F(P2pInArenas, AnAnswerOfArenasIsRefusedWhereNoneWasOffered) {
  Process here(name_), there(name_), on_other(name_, 1);
  for (Process* liar : {&there, &on_other}) {
    for (const std::uint8_t used : {4, 5}) {
      const auto acceptor = here.accept(false);
      const auto connector = liar->connect(*acceptor);
      ASSERT_EQ(connector->advance(), LinkSetup::State::ready);
      Bytes lie = answer_of(*connector);
      ASSERT_EQ(lie.size(), 17u);
      lie[0] = std::byte{used};
      const auto id = std::as_bytes(std::span(liar->segments.host_rings()->arenas().own_id()));
      std::copy(id.begin(), id.end(), lie.begin() + 1);
      EXPECT_FALSE(acceptor->take_answer(lie));
      EXPECT_EQ(acceptor->failure().error, EPROTO);
    }
  }
}

TEST_F(P2pInArenas, APeerMayLieInEveryByte) {
  for (const int gpu_of_other : {0, 1}) lie_in_every_byte(gpu_of_other);
}

}  // namespace
}  // namespace gpusock::proxy
