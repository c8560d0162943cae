// Notices on the control channel: each is told at most once, and nothing behind the end or a failure.
#include "host_proxy/links/control_channel.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/wire.hpp"

namespace gpusock::fuzz::of_control {
namespace {

struct Heard final : proxy::LinkEvents {
  void on_ended(std::uint64_t) override { FUZZ_CHECK(++ended == 1 && failed == 0); }
  void on_peer_read_shut_down() override {
    FUZZ_CHECK(++read_shut_down <= 2 && failed == 0);
  }  // by saying so, and by closing
  void on_failed(int error) override { FUZZ_CHECK(++failed == 1 && error > 0); }
  bool take_notice(std::uint64_t kind) {
    FUZZ_CHECK(failed == 0);
    return kind == 16 && ++notices < 4;
  }
  int ended = 0, read_shut_down = 0, failed = 0, notices = 0;
};

}  // namespace

FUZZ_TARGET(control) {
  auto wire = std::make_shared<Wire>();
  Heard heard;
  const bool has_notices = input.flag();
  auto made = std::make_unique<WireStream>(wire);
  WireStream& stream = *made;
  proxy::ControlChannel::TakeNotice take_notice;
  if (has_notices) take_notice = [&heard](std::uint64_t kind, std::uint64_t) { return heard.take_notice(kind); };
  proxy::ControlChannel channel(std::move(made), heard, std::move(take_notice));
  while (!input.empty()) {
    switch (input.below(8)) {
      case 0:
        channel.say_ended(input.take<std::uint64_t>());
        break;
      case 1:
        channel.say_read_shut_down();
        break;
      case 2:
        wire->room = input.below(64);
        break;
      case 3:
        wire->to_node += input.bytes(input.below(40));
        break;
      case 4:
        wire->ended = true;
        break;
      case 5:
        wire->reset = true;
        break;
      default: {
        const std::uint64_t notice[] = {input.below(18), input.take<std::uint16_t>()};
        if (!wire->ended) wire->to_node.append(reinterpret_cast<const char*>(notice), sizeof notice);
      }
    }
    stream.readable = stream.writable = true;
    channel.progress();
    FUZZ_CHECK(channel.failed() == (heard.failed != 0));
    FUZZ_CHECK(!channel.peer_closed() || heard.ended == 1);
  }
}

}  // namespace gpusock::fuzz::of_control
