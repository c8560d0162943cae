// What the two sides of a fabric link say to agree on it, from a peer that knows the secret and lies. libfabric says
// what there is; endpoints are in memory.
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/fabric/layout.hpp"
#include "host_proxy/links/fabric/maker.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/unit/fabric/memory_fabric.hpp"

#include <bit>
#include <cctype>
#include <string>

namespace gpusock::fuzz::of_fabric_setup {
namespace {

using namespace proxy;
using namespace proxy::fabric;
using State = LinkSetup::State;

struct NoSink final : ReadySink {
  void on_ready() override {}
};

/// A context's, with nothing but what this link needs.
struct Side {
  explicit Side(PosixNetwork& network)
      : segments(std::make_shared<HostPlatform>(), {4096, 4096}, 0), maker(network, segments, "") {}
  SegmentPool segments;
  FabricMaker maker;
};

LinkRequest request_of(bool acceptor) {
  LinkRequest request;
  request.acceptor = acceptor;
  request.only = true;  // also by providers that are software
  request.local = request.peer = Endpoint::parse("127.0.0.1:7");
  return request;
}

/// What an honest peer says, with some bytes changed, or anything.
std::string near_honest(Input& input, std::span<const std::byte> honest) {
  if (input.byte() == 0xff) return std::string(input.bytes(kLinkMessageBytesMax));
  std::string bytes(reinterpret_cast<const char*>(honest.data()), honest.size());
  for (std::size_t changes = input.below(8); changes != 0; --changes) {
    const std::size_t at = input.below(bytes.size());
    bytes[at] = static_cast<char>(input.byte());
  }
  if (input.byte() == 1) bytes.resize(input.below(kLinkMessageBytesMax + 1));
  return bytes;
}

std::span<const std::byte> span_of(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

/// Of a set-up that failed.
void check_failure(const LinkSetup& setup) {
  const LinkSetup::Failure failure = setup.failure();
  FUZZ_CHECK(failure.error > 0 && failure.error < 200 && !failure.reason.empty());
  for (const char letter : failure.reason) FUZZ_CHECK(std::isprint(static_cast<unsigned char>(letter)) != 0);
}

/// Of one that went well.
void check_memory(const LinkSetup& setup) {
  FUZZ_CHECK(setup.rings().callers != nullptr);
  const std::uint64_t ring = setup.rings().callers->ring_bytes();
  FUZZ_CHECK(std::has_single_bit(ring) && ring >= kRingBytesMin && ring <= kRingBytesMax);
}

}  // namespace

FUZZ_TARGET(fabric_setup) {
  static auto* network = new PosixNetwork;
  Discovery::of("")->wait();  // libfabric is asked once in a process
  MemoryFabric fabric(1);
  decorate_ports([&fabric](std::unique_ptr<FabricPort>) { return std::make_unique<MemoryPort>(fabric); });
  {
    NoSink sink;
    Side acceptor(*network), connector(*network);
    const auto offer = acceptor.maker.start(request_of(true), {}, sink);
    FUZZ_CHECK(offer->advance() == State::ready);  // any libfabric has tcp
    const std::string offered = near_honest(input, offer->message());
    const auto lied_to = connector.maker.start(request_of(false), span_of(offered), sink);
    if (lied_to->advance() == State::ready) {
      FUZZ_CHECK(offered.size() == sizeof(Offer) && lied_to->message().size() == sizeof(Answer));
      check_memory(*lied_to);
    } else {
      check_failure(*lied_to);
    }

    const std::string honest(reinterpret_cast<const char*>(offer->message().data()), offer->message().size());
    const auto answer = connector.maker.start(request_of(false), span_of(honest), sink);
    FUZZ_CHECK(answer->advance() == State::ready);
    const std::string answered = near_honest(input, answer->message());
    if (offer->take_answer(span_of(answered))) {
      FUZZ_CHECK(answered.size() == sizeof(Answer));
      check_memory(*offer);
    } else {
      check_failure(*offer);
    }
  }
  decorate_ports({});
  FUZZ_CHECK(fabric.regions.empty() && fabric.ports.empty());  // nothing stays registered
}

}  // namespace gpusock::fuzz::of_fabric_setup
