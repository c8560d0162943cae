#include "host_proxy/links/fabric/peer_endpoint.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>

namespace gpusock::proxy::fabric {

PeerEndpoint::PeerEndpoint(std::unique_ptr<FabricPort> port, const Identity& pair, std::string name)
    : port_(std::move(port)), pair_(pair), name_(std::move(name)) {}

/// Closes the endpoint before the memory that it may be reading and writing is unmapped.
PeerEndpoint::~PeerEndpoint() {
  if (port_->closes_only_idle()) {
    revoke();  // writes that arrive now fail, and complete nothing
    for (int turn = 0; turn < kLastReads && poll(); ++turn) continue;
  }
  port_->close();
  leftovers_.clear();
}

int PeerEndpoint::find_address(std::span<const std::byte> address, std::uint64_t& peer) {
  for (const Address& known : addresses_) {
    if (std::equal(known.bytes.begin(), known.bytes.end(), address.begin(), address.end())) {
      peer = known.peer;
      return 0;
    }
  }
  if (addresses_.size() == kAddressesMax) return -ENOBUFS;
  const int result = port_->add_peer(address, peer);
  if (result == 0) addresses_.push_back({{address.begin(), address.end()}, peer});
  return result;
}

std::uint32_t PeerEndpoint::add(FabricTransport& transport) {
  if (exhausted())
    throw Error(ENOBUFS,
                "all " + std::to_string(kConnectionsMax) + " connections that fit between two contexts are in use");
  std::list<Leftover> node(1);
  if (free_.capacity() <= transports_.size()) free_.reserve(2 * transports_.size() + 1);
  std::uint32_t index = next_index_;
  if (free_.empty()) {
    transports_.push_back(nullptr);
    ++next_index_;
  } else {
    index = free_.back();
    free_.pop_back();
  }
  transports_[index] = &transport;
  leftover_nodes_.splice(leftover_nodes_.end(), node);
  ++connections_;
  ++connections_made_;
  return index;
}

void PeerEndpoint::remove(std::uint32_t index, FabricMemory memory, bool settled, int writes) {
  std::erase(refused_, transports_[index]);
  transports_[index] = nullptr;
  --connections_;
  if (settled && writes == 0) {
    free_.insert(free_.begin(), index);  // the index that was freed first is used next
    leftover_nodes_.pop_front();
    return;
  }
  leftover_nodes_.front() = {index, writes, std::move(memory), 0};
  leftovers_.splice(leftovers_.end(), leftover_nodes_, leftover_nodes_.begin());
  forget_leftovers();
}

void PeerEndpoint::revoke() {
  for (Leftover& leftover : leftovers_) {
    leftover.memory.target.reset();
    leftover.memory.source.reset();
  }
}

/// Memory that this side is still writing from stays registered; memory that the peer may write does not.
void PeerEndpoint::maintain(std::uint64_t now_ns) {
  for (Leftover& leftover : leftovers_) {
    if (leftover.until_ns == 0) leftover.until_ns = now_ns + kLeftoverNs;
    if (now_ns >= leftover.until_ns) leftover.memory.target.reset();
  }
  std::erase_if(leftovers_,
                [](const Leftover& leftover) { return leftover.memory.target == nullptr && leftover.writes == 0; });
}

void PeerEndpoint::forget_leftovers() {
  while (leftovers_.size() > kLeftoverMax && leftovers_.front().writes == 0) leftovers_.pop_front();
}

int PeerEndpoint::write(const FabricWrite& write, FabricTransport& transport) {
  const int result = port_->write(write);
  if (result == -EAGAIN && std::find(refused_.begin(), refused_.end(), &transport) == refused_.end())
    refused_.push_back(&transport);
  return result;
}

bool PeerEndpoint::poll() {
  bool any = true;
  try {
    any = take_completions();
  } catch (const std::exception&) {
    fail_all(ENOMEM, {});
  }
  if (!refused_.empty()) {  // a fabric that is still connecting returns -EAGAIN, and reports no event when it is
                            // connected
    const auto refused = std::move(refused_);
    refused_.clear();
    for (FabricTransport* transport : refused) transport->retry();
  }
  return any;
}

bool PeerEndpoint::take_completions() {
  completions_.clear();
  const bool any = port_->read(completions_);
  for (const Completion& completion : completions_) take(completion);
  return any;
}

/// Works even if there is no memory to allocate.
void PeerEndpoint::fail_all(int error, const std::string& reason) {
  broken_ = true;
  for (FabricTransport* each : transports_) {
    if (each != nullptr) each->fail(error, reason);
  }
}

bool PeerEndpoint::may_sleep() { return refused_.empty() && port_->descriptor() >= 0 && port_->may_sleep(); }

/// A write is over: its memory may be used again, whether the write succeeded or not.
void PeerEndpoint::note_written(std::uint64_t token) {
  if (FabricTransport* transport = transport_of(token >> 8)) {
    transport->on_written(static_cast<std::uint32_t>(token & 0xff));
    return;
  }
  for (Leftover& leftover : leftovers_) {
    if (leftover.index == token >> 8) --leftover.writes;
  }
  forget_leftovers();
}

void PeerEndpoint::take(const Completion& completion) {
  if (completion.kind == Completion::Kind::arrived) {
    const auto data = CompletionData::unpack(completion.data);
    if (FabricTransport* transport = transport_of(data.index))
      transport->on_arrived(data);  // without a transport, the write was for a connection that has ended
    return;
  }
  FabricTransport* transport = completion.token == Completion::kNoToken ? nullptr : transport_of(completion.token >> 8);
  if (completion.token != Completion::kNoToken) {
    note_written(completion.token);
    if (completion.kind == Completion::Kind::failed && transport != nullptr)
      transport->fail(ECONNRESET, completion.reason);
    return;
  }
  try_log(LogLevel::warn, [&] { return "a fabric endpoint (" + name_ + ") failed: " + completion.reason; });
  fail_all(ECONNRESET, completion.reason);
}

}  // namespace gpusock::proxy::fabric
