// The side that connected.
#include "host_proxy/base/random.hpp"
#include "host_proxy/negotiation/handshake.hpp"

#include <bit>
#include <cerrno>

namespace gpusock::proxy {
namespace {

class ConnectorHandshake final : public Handshake {
 public:
  ConnectorHandshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked, ReadySink& sink,
                     bool kernels)
      : Handshake(stream, resources, asked, sink, false, kernels) {
    hello_.links = own_links();
    if (hello_.links == 0) {  // the named link is not available here
      fail(EPROTONOSUPPORT);
      return;
    }
    hello_.type = has_records() ? 1 : 0;
    hello_.record_ring_bytes = has_records() ? own_record_ring_bytes() : 0;
    hello_.nonce = random_bytes<32>();
    send(hello_);
  }

  State advance() override {
    if (state_ == State::waiting) flush();
    if (state_ == State::waiting && step_ == Step::reply) await_reply();
    while (state_ == State::waiting && step_ != Step::reply) {
      if (!(step_ == Step::message ? await_message() : await_setup())) break;
    }
    return state_;
  }

  bool peer_is_known() const override { return step_ != Step::reply; }

 private:
  enum class Step { reply, message, setup };

  void await_reply() {
    const auto reply = receive<Reply>();
    if (!reply) return;
    const bool proven = is_proven(*reply);
    if (reply->error == EPROTONOSUPPORT) {
      fail_without_link(0);
    } else if (reply->error != 0) {
      fail(peers_reason(reply->error));
    } else if (!proven) {
      refuse(EACCES);
    } else if (reply->links == 0 || (reply->links & ~hello_.links) != 0 || (reply->features & ~hello_.features) != 0 ||
               (has_records() && !can_make(reply->record_ring_bytes))) {
      refuse(EPROTO);
    } else {
      left_ = reply->links;
      request_.record_ring_bytes = has_records() ? reply->record_ring_bytes : 0;
      send_proven(Confirm{});
      step_ = Step::message;
    }
  }

  /// True if a message has come and the handshake goes on.
  bool await_message() {
    const auto received = receive_message();
    if (!received) return false;
    const NegotiationMessage& header = received->header;
    const bool answered = setup_ != nullptr && header.link == link_;
    if (header.kind == NegotiationMessage::kNone) {
      fail(peers_reason(header.error));
    } else if (header.kind == NegotiationMessage::kReady && answered) {
      state_ = State::done;
    } else if (header.kind == NegotiationMessage::kRefusal && answered) {  // the peer refuses our answer
      setup_.reset();
      remember_peers(*received);
    } else if (header.kind == NegotiationMessage::kRefusal && take_from_left(header.link)) {  // it offers none
      remember_peers(*received);
    } else if (header.kind == NegotiationMessage::kOffer && setup_ == nullptr && take_from_left(header.link)) {
      start_link(*maker_of(header.link), received->bytes);
      step_ = Step::setup;
    } else {
      fail(EPROTO);
    }
    return state_ == State::waiting;
  }

  bool await_setup() {
    const auto state = setup_->advance();
    if (state == LinkSetup::State::waiting) return false;
    step_ = Step::message;
    if (state == LinkSetup::State::ready) {
      send_message({.kind = NegotiationMessage::kAnswer, .link = link_}, setup_->message());
    } else {
      refuse_link();
    }
    return state_ == State::waiting;
  }

  /// Removes the link from those that are left. False if it is not among them: each link is tried only once.
  bool take_from_left(std::uint16_t link) {
    if (!std::has_single_bit(link) || (left_ & link) == 0) return false;
    left_ &= static_cast<std::uint16_t>(~link);
    return true;
  }

  /// Sends the error to the peer, and fails.
  void refuse(int error) {
    send_proven(Confirm{.error = static_cast<std::uint16_t>(error)});
    fail(error);
  }

  bool can_make(std::uint32_t ring_bytes) const {
    return is_ring_size(ring_bytes) && ring_bytes <= hello_.record_ring_bytes;
  }

  Hello hello_;
  Step step_ = Step::reply;
};

}  // namespace

std::unique_ptr<Handshake> make_connector_handshake(ByteStream& stream, const LinkResources& resources,
                                                    const Endpoint& asked, ReadySink& sink, bool kernels) {
  return std::make_unique<ConnectorHandshake>(stream, resources, asked, sink, kernels);
}

}  // namespace gpusock::proxy
