// What param_sync's nodes say to each other: where they are, settings, then gradients and weights. A peer that says
// something else is found out.
#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"

#include "apps/param_sync/training/hello.cuh"
#include "apps/param_sync/bootstrap/rendezvous_messages.hpp"
#include "tests/fuzz/session.hpp"

#include <cstring>

namespace gpusock::fuzz::of_param_sync {
namespace {

using namespace param_sync;

constexpr std::uint32_t kFloats = 64;

__global__ void take_message(NodeState node, Socket socket, MessageHeader expected, float* floats, int* taken) {
  const bool header = receive_header(node, socket, expected, FailureKind::gather, 1);
  const bool whole = header && receive_floats(node, socket, floats, expected.floats, FailureKind::gather, 1);
  if (threadIdx.x == 0) *taken = whole ? 1 : 0;
}

/// A peer's bytes, honest ones with some changed.
template <class Message>
std::string near_honest(Input& input, const Message& honest, const std::string& behind) {
  std::string bytes(reinterpret_cast<const char*>(&honest), sizeof honest);
  bytes += behind;
  for (std::size_t changes = input.below(4); changes != 0; --changes) {
    const std::size_t at = input.below(bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ input.byte());
  }
  if (input.byte() == 1) bytes.resize(input.below(bytes.size() + 1));
  return bytes;
}

template <class Message>
bool from_bytes(const std::string& bytes, Message& message) {
  if (bytes.size() != sizeof message) return false;
  std::memcpy(&message, bytes.data(), sizeof message);
  return true;
}

/// It can be shown, and tried: a link or a type that there is not, connect() refuses.
void check_place(const ResolvedEndpoint& at) {
  FUZZ_CHECK((at.family == 4 || at.family == 6) && at.port != 0);
  FUZZ_CHECK(!at.to_string().empty() && !to_string(at.link).empty());
}

/// What is said where nodes meet: a greeting of one of five, and rank 0's answer. Whatever is taken can be gone by.
void meet(Input& input) {
  constexpr int kSize = 5;
  Greeting honest_greeting, greeting;
  honest_greeting.rank = 1 + input.byte() % (kSize - 1);
  honest_greeting.size = kSize;
  honest_greeting.listens = WireStream::here();
  if (from_bytes(near_honest(input, honest_greeting, ""), greeting) && can_be(greeting, kSize)) {
    FUZZ_CHECK(greeting.rank >= 1 && greeting.rank < kSize);
    check_place(greeting.listens);
  }
  Answer honest_answer, answer;
  for (ResolvedEndpoint& at : honest_answer.listens) at = WireStream::here();
  if (!from_bytes(near_honest(input, honest_answer, ""), answer)) return;
  const auto places = places_in(answer, kSize);
  FUZZ_CHECK(places.empty() || places.size() == kSize);
  for (const Endpoint& at : places) check_place(at);
}

}  // namespace

FUZZ_TARGET(param_sync) {
  Node node;
  node.start();
  Endpoint to = WireStream::here();
  to.link = LinkKind::tcp;
  const Socket socket = node.net.connect(this_thread(), to, Deadline::now());
  FUZZ_CHECK(socket >= 0);
  const auto wire = node.network.last();

  Hello ours, theirs;
  for (std::size_t i = 1; i < std::size(ours.value); ++i) ours.value[i] = i;
  ours.rank = 1;
  const std::string said = near_honest(input, ours, "");
  wire->to_node = said;
  wire->ended = said.size() < sizeof ours;
  const std::int64_t error = exchange(node.net, socket, ours, theirs, Deadline::never());
  FUZZ_CHECK((error == 0) == (said.size() == sizeof ours));
  const bool fits = error == 0 && theirs.magic == Hello::kMagic && ours.difference(theirs) == HelloField::none &&
                    theirs.rank == ours.rank;
  if (error == 0) {
    Hello same;
    std::memcpy(&same, said.data(), sizeof same);
    same.value[0] = ours.value[0];  // not used
    FUZZ_CHECK(fits == (std::memcmp(&same, &ours, sizeof ours) == 0));
  }

  if (fits) {
    MessageHeader expected;
    expected.kind = MessageKind::gradients;
    expected.layer = 1;
    expected.floats = kFloats;
    expected.clock = 7;
    const std::string gradients(kFloats * sizeof(float), '\x3f');
    const std::string message = near_honest(input, expected, gradients);
    wire->to_node = message;
    wire->ended = true;
    std::uint64_t failed = 0, stop = 0;
    Failure failure{};
    NodeState state;
    state.net = node.net;
    state.timeout_ns = 3'600'000'000'000;  // the end of the stream comes first
    state.failed = &failed;
    state.failure = &failure;
    state.stop = &stop;
    float floats[kFloats + 1] = {};
    int taken = -1;
    cpu_device::Stream stream;
    cpu_device::launch(stream, {1, 1, 0}, take_message, state, socket, expected, static_cast<float*>(floats), &taken);
    stream.synchronize();
    const bool header_fits = message.size() >= sizeof expected &&
                             std::memcmp(message.data(), &expected, offsetof(MessageHeader, reserved)) == 0;
    FUZZ_CHECK(taken == (header_fits && message.size() == sizeof expected + gradients.size() ? 1 : 0));
    FUZZ_CHECK((failed != 0) == (taken == 0));
    FUZZ_CHECK(floats[kFloats] == 0);
  }
  Session(node, socket).end();
  meet(input);
}

}  // namespace gpusock::fuzz::of_param_sync
