// The side that accepted.
#include "host_proxy/base/random.hpp"
#include "host_proxy/negotiation/handshake.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace gpusock::proxy {
namespace {

class AcceptorHandshake final : public Handshake {
 public:
  AcceptorHandshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked, ReadySink& sink,
                    bool kernels)
      : Handshake(stream, resources, asked, sink, true, kernels) {}

  State advance() override {
    if (state_ == State::waiting) flush();
    while (state_ == State::waiting && act()) {
    }
    return state_;
  }

  bool peer_is_known() const override { return step_ != Step::hello && step_ != Step::confirm; }

 private:
  enum class Step { hello, confirm, setup, answer, trial, ready };

  /// True if the next step may be possible.
  bool act() {
    switch (step_) {
      case Step::hello:
        return await_hello();
      case Step::confirm:
        return await_confirm();
      case Step::setup:
        return await_setup();
      case Step::answer:
        return await_answer();
      case Step::trial:
        return await_trial();
      case Step::ready:
        break;
    }
    if (flush()) state_ = State::done;
    return false;
  }

  bool await_hello() {
    const auto hello = receive<Hello>();
    if (!hello) return false;
    note(&*hello, sizeof *hello);
    Reply reply;
    reply.nonce = random_bytes<32>();
    reply.links = hello->links & own_links();
    if (reply.links == 0) reply.error = EPROTONOSUPPORT;
    if ((hello->type != 0) != has_records()) reply.error = EPROTOTYPE;
    if (has_records()) agree_on_rings(*hello, reply);
    if (reply.error != 0) reply.links = 0;
    left_ = reply.links;
    request_.only = std::has_single_bit(reply.links);
    send_proven(reply);
    if (reply.error == EPROTONOSUPPORT) {
      fail_without_link(hello->links);
    } else if (reply.error != 0) {
      fail(reply.error);
    }
    step_ = Step::confirm;
    return true;
  }

  /// Agrees on one size of rings, if each side makes its own: a record lies in one piece in the rings of both sides.
  void agree_on_rings(const Hello& hello, Reply& reply) {
    const std::uint32_t theirs = hello.record_ring_bytes;
    reply.record_ring_bytes = std::min(own_record_ring_bytes(), theirs);
    request_.record_ring_bytes = reply.record_ring_bytes;
    if (reply.error == 0 && (!std::has_single_bit(theirs) || theirs < kRingBytesMin)) reply.error = EPROTO;
  }

  bool await_confirm() {
    const auto confirm = receive<Confirm>();
    if (!confirm) return false;
    const bool proven = is_proven(*confirm);
    if (confirm->error != 0) {
      fail(peers_reason(confirm->error));
    } else if (!proven) {
      send_message({.kind = NegotiationMessage::kNone, .error = EACCES});
      fail(EACCES);
    } else {
      offer_next(EPROTONOSUPPORT);
    }
    return true;
  }

  /// Begins to offer the best link that was not tried yet. Fails with this error if none is left.
  void offer_next(int error) {
    for (LinkMaker* maker : resources_.makers) {
      if ((left_ & link_bit(maker->kind())) == 0) continue;
      start_link(*maker, {});
      left_ &= static_cast<std::uint16_t>(~link_);
      step_ = Step::setup;
      return;
    }
    send_message({.kind = NegotiationMessage::kNone, .error = static_cast<std::uint16_t>(error)});
    fail(error);
  }

  bool await_setup() {
    const auto state = setup_->advance();
    if (state == LinkSetup::State::waiting) return false;
    if (state == LinkSetup::State::ready) {
      send_message({.kind = NegotiationMessage::kOffer, .link = link_}, setup_->message());
      step_ = Step::answer;
    } else {
      offer_next(refuse_link());
    }
    return true;
  }

  bool await_answer() {
    const auto received = receive_message();
    if (!received) return false;
    const NegotiationMessage& header = received->header;
    if (header.link != link_ ||
        (header.kind != NegotiationMessage::kAnswer && header.kind != NegotiationMessage::kRefusal)) {
      fail(EPROTO);
    } else if (header.kind == NegotiationMessage::kRefusal) {
      setup_.reset();
      remember_peers(*received);
      offer_next(peers_reason(header.error));
    } else if (!setup_->take_answer(received->bytes)) {
      offer_next(refuse_link());
    } else {
      step_ = Step::trial;
    }
    return true;
  }

  /// Waits until the link has shown that it carries bytes. If it does not, the next link is offered.
  bool await_trial() {
    const auto state = setup_->advance();
    if (state == LinkSetup::State::waiting) return false;
    if (state == LinkSetup::State::ready) {
      send_message({.kind = NegotiationMessage::kReady, .link = link_});
      step_ = Step::ready;
    } else {
      offer_next(refuse_link());
    }
    return true;
  }

  Step step_ = Step::hello;
};

}  // namespace

std::unique_ptr<Handshake> make_acceptor_handshake(ByteStream& stream, const LinkResources& resources,
                                                   const Endpoint& asked, ReadySink& sink, bool kernels) {
  return std::make_unique<AcceptorHandshake>(stream, resources, asked, sink, kernels);
}

}  // namespace gpusock::proxy
