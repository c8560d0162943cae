// What param_sync's nodes say to each other: where they are, settings, then messages of a schedule. A peer that says
// something else is found out.
#include "cpu_device/cuda.hpp"
#include "cpu_device/launch.hpp"

#include "param_sync/executor/lane.cuh"
#include "param_sync/update/sgd.hpp"
#include "param_sync/executor/hello.hpp"
#include "param_sync/wire/connecting.cuh"
#include "param_sync/bootstrap/rendezvous_messages.hpp"
#include "tests/fuzz/session.hpp"

#include <cstring>

namespace gpusock::fuzz::of_param_sync {
namespace {

using namespace param_sync;

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

/// A rank that receives one chunk from another.
struct Receiver {
  static constexpr std::uint32_t kFloats = 64;

  Receiver(const Net& net, Socket from) : socket(from) {
    run.net = net;
    run.ops = &op;
    run.lanes = &lane;
    run.lane_count = 1;
    run.sockets = &socket;
    run.socket_count = 1;
    run.data = floats;
    run.cut = {.floats = kFloats, .unit_floats = kFloats, .chunks = 1};
    run.number = 7;
    run.timeout_ns = 3'600'000'000'000;  // the end of the stream comes first
    run.progress = &progress;
    run.lanes_ended = &lanes_ended;
    run.failed = &failed;
    run.failure = &failure;
    run.completed = &completed;
  }

  const executor::LaneOp op{.kind = schedule::Kind::recv, .count = 1, .in = 0, .out = schedule::kNobody};
  const executor::LaneOps lane{0, 1};
  const Socket socket;
  float floats[kFloats + 1] = {};
  std::uint64_t progress = 0, lanes_ended = 0, failed = 0, completed = 0;
  FailureRecord<executor::ExecutionFailure> failure{};
  executor::Run run;
};

/// A message that is not the one of the schedule, or not whole, is no message; and nothing is written past the tensor.
void receive(Input& input, const Node& node, Socket socket, Wire& wire) {
  Receiver rank(node.net, socket);
  const executor::MessageHeader expected{.count = 1, .run = 7, .floats = Receiver::kFloats};
  const std::string gradients(Receiver::kFloats * sizeof(float), '\x3f');
  const std::string message = near_honest(input, expected, gradients);
  wire.to_node = message;
  wire.ended = true;
  cpu_device::Stream stream;
  cpu_device::launch(stream, {1, 1, 0}, executor::run_lanes<executor::Policies<Sgd>>, rank.run,
                     executor::Policies<Sgd>());
  stream.synchronize();
  const bool header_fits = message.size() >= sizeof expected &&
                           std::memcmp(message.data(), &expected, sizeof expected) == 0;
  const bool fits = header_fits && message.size() == sizeof expected + gradients.size();
  FUZZ_CHECK(executor::is_completed(rank.completed, 7) == fits);
  FUZZ_CHECK(is_recorded(rank.failure) != fits);
  FUZZ_CHECK(rank.floats[Receiver::kFloats] == 0);
}

/// It can be shown, and tried: a link or a type that there is not, connect() refuses.
void check_address(const ResolvedEndpoint& at) {
  FUZZ_CHECK((at.family == 4 || at.family == 6) && at.port != 0);
  FUZZ_CHECK(!at.to_string().empty() && !to_string(at.link).empty());
}

/// What is said where ranks meet: a greeting of one of five, and rank 0's answer. Whatever is taken can be gone by.
void meet(Input& input) {
  constexpr int kSize = 5;
  using bootstrap::Answer, bootstrap::Greeting;
  Greeting honest_greeting, greeting;
  honest_greeting.rank = 1 + input.byte() % (kSize - 1);
  honest_greeting.size = kSize;
  honest_greeting.listens = WireStream::here();
  if (from_bytes(near_honest(input, honest_greeting, ""), greeting) && bootstrap::can_be(greeting, kSize)) {
    FUZZ_CHECK(greeting.rank >= 1 && greeting.rank < kSize);
    check_address(greeting.listens);
  }
  Answer honest_answer, answer;
  for (ResolvedEndpoint& at : honest_answer.listens) at = WireStream::here();
  if (!from_bytes(near_honest(input, honest_answer, ""), answer)) return;
  const auto addresses = bootstrap::addresses_in(answer, kSize);
  FUZZ_CHECK(addresses.empty() || addresses.size() == kSize);
  for (const Endpoint& at : addresses) check_address(at);
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

  executor::ChannelHello ours, theirs;
  for (std::size_t i = 1; i < std::size(ours.value); ++i) ours.value[i] = i;
  ours.rank = 1;
  const std::string said = near_honest(input, ours, "");
  wire->to_node = said;
  wire->ended = said.size() < sizeof ours;
  const std::int64_t error = exchange_hellos(node.net, socket, ours, theirs, Deadline::never());
  FUZZ_CHECK((error == 0) == (said.size() == sizeof ours));
  const bool fits = error == 0 && ours.difference(theirs) == executor::ChannelHelloField::none &&
                    theirs.rank == ours.rank;
  if (error == 0) {
    executor::ChannelHello same;
    std::memcpy(&same, said.data(), sizeof same);
    same.value[0] = ours.value[0];  // not used
    same.channel = ours.channel;    // the same
    FUZZ_CHECK(fits == (std::memcmp(&same, &ours, sizeof ours) == 0));
  }

  if (fits) receive(input, node, socket, *wire);
  Session(node, socket).end();
  meet(input);
}

}  // namespace gpusock::fuzz::of_param_sync
