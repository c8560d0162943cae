#pragma once
/// @file Two connected sockets on the model's memory, of cases that need no proxy.

#include "world.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gpusock::model {

/// Two sockets, the first one's tx ring being the second one's rx ring.
class Pair {
 public:
  explicit Pair(std::uint64_t capacity) {
    side_.table.proxy_words = proxy_words_;
    side_.table.setups = setups_;
    side_.table.requests = requests_;
    side_.table.options = options_;
    side_.table.abort = &abort_;
    side_.table.slots = 2;
    set_view_.watches = watches_;
    side_.sets = &set_view_;
    side_.slots = slots_;
    side_.hooks = &hooks();
    setups_[0].rings.tx = setups_[1].rings.rx = {{bytes_, capacity, 0}, &committed_, &consumed_, 0};
    setups_[0].rings.rx = setups_[1].rings.tx = {{back_, capacity, 0}, &back_committed_, &back_consumed_, 0};
    for (std::uint32_t i = 0; i < 2; ++i) {
      setups_[i].records = 1;
      proxy_words_[i].status = table::Status{1, 0, table::Phase::connected, 0}.pack();
      const Socket socket = table::make_handle(i, 1);
      handles_[i] = detail::adopt(side_, socket, detail::claim(side_, socket));
    }
  }

  Net net() const { return detail::NetAccess::make(side_, side_); }
  std::uint64_t asked() const { return requests_[0]; }
  std::uint64_t load_requests(int which = 0) { return detail::SystemRef(requests_[which]).load(ringbuf::kAcquire); }
  std::uint64_t load_committed() { return detail::SystemRef(committed_).load(ringbuf::kRelaxed); }
  /// Plays the proxy and the slot's next owner: once its last socket is closed, the slot is a socket of this
  /// generation.
  Socket open_again(std::uint32_t generation) {
    std::uint64_t asked = table::kRequestClose;
    if (generation != 3) asked |= table::kRequestOpen;  // the first was made open
    while (load_requests() != table::make_request(generation - 2, asked)) give_way();
    const Socket next = table::make_handle(0, generation);
    table::CallerSlot& slot = detail::claim(side_, next);
    detail::write_request(side_, next, slot, generation, table::kRequestOpen);
    return detail::adopt(side_, next, slot);
  }
  std::uint64_t options() const { return options_[0]; }
  Socket sender() const { return handles_[0]; }
  Socket receiver() const { return handles_[1]; }

  /// A record of so many bytes, all of them this letter.
  void send(char letter, std::size_t bytes) {
    const std::string record(bytes, letter);
    require(net().send(kMe, sender(), record.data(), bytes) == static_cast<std::int64_t>(bytes), "a record is sent");
  }

  /// The next record's letter.
  void receive(std::size_t bytes) {
    char record[64] = {};
    require(net().recv(kMe, receiver(), record, sizeof record) == static_cast<std::int64_t>(bytes),
            "a record comes whole");
    for (std::size_t i = 0; i < bytes; ++i) require(record[i] == record[0], "a record's bytes are one sender's");
    got += record[0];
  }

  /// Until nothing is reserved. (Who only tries again changes the count of callers, and so wakes others who do the
  /// same: for ever, where the one who has the reservation is never let go on.)
  void wait_until_free() {
    while (detail::DeviceRef(slots_[0].tx_held).load(ringbuf::kRelaxed) != 0) give_way();
  }
  void hand_over() { ringbuf::DeviceAtomics::Ref<std::uint64_t>(handed_over_).store(1, ringbuf::kRelease); }
  void take_over() {
    while (ringbuf::DeviceAtomics::Ref<std::uint64_t>(handed_over_).load(ringbuf::kAcquire) == 0) give_way();
  }

  std::string got;
  std::int64_t results[2] = {};
  std::uint64_t ended_at = ~std::uint64_t{0};

  // What a peer and the proxy do, of cases with one caller.
  void write_header(std::uint64_t position, std::uint32_t bytes, std::uint32_t span) {
    detail::SystemRef(*ringbuf::header_at({bytes_, 64, 0}, position))
        .store(ringbuf::RecordHeader{bytes, span}.pack(), ringbuf::kRelaxed);
  }
  void arrive(std::uint64_t committed) { detail::SystemRef(committed_).store(committed, ringbuf::kRelease); }
  void end_at(std::uint64_t final_position) {
    proxy_words_[1].rx_final = final_position;
    const table::Status status{1, 0, table::Phase::connected, table::kStatusEnded};
    detail::SystemRef(proxy_words_[1].status).store(status.pack(), ringbuf::kRelease);
  }
  /// Nobody else will come: waits are short. What the proxy is told is counted.
  void is_alone() {
    counting_ = hooks();
    counting_.self = this;
    counting_.ring_doorbell = [](void* self, std::uint32_t) {
      auto& pair = *static_cast<Pair*>(self);
      ++pair.rings;
      pair.told_committed_ = pair.load_committed();
    };
    counting_.ring_for_credit = [](void* self) {
      auto& pair = *static_cast<Pair*>(self);
      ++pair.credits;
      pair.told_consumed_ = pair.load_consumed();
    };
    counting_.relax = [](void* self, std::uint64_t, std::uint64_t, bool) {
      auto& pair = *static_cast<Pair*>(self);
      if (pair.meanwhile != nullptr) std::exchange(pair.meanwhile, nullptr)(pair);
    };
    side_.hooks = &counting_;
  }
  void (*meanwhile)(Pair&) = nullptr;  ///< what somebody does at the caller's first turn of waiting
  /// The proxy moves the bytes; and sockets may be streams.
  void needs_proxy(bool records) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      setups_[i].link_needs_proxy = 1;
      setups_[i].records = records ? 1 : 0;
      handles_[i] = detail::adopt(side_, table::make_handle(i, 1), slots_[i]);
    }
  }
  /// Whoever was told last found all that was done there.
  bool knows_credit() { return told_consumed_ == load_consumed(); }
  bool knows_commits() { return told_committed_ == load_committed(); }
  void take(std::uint64_t consumed) { detail::SystemRef(consumed_).store(consumed, ringbuf::kRelease); }
  std::int64_t look() {
    char record[64];
    return net().recv(kMe, receiver(), record, sizeof record, kDontWait);
  }
  std::int16_t poll(Socket socket, std::int16_t events) {
    PollEntry entry{socket, events, 0};
    return net().poll(kMe, &entry, 1, Deadline::now()) == 0 ? std::int16_t{0} : entry.revents;
  }
  const detail::Side& side() const { return side_; }
  detail::Side& side() { return side_; }
  /// What kernels reach across a bus where the rings are in host memory: the words, the setups and the bytes.
  void lies_across_bus(Traffic& traffic) {
    traffic.add(bytes_, sizeof bytes_), traffic.add(back_, sizeof back_);
    for (std::uint64_t* word : {&committed_, &consumed_, &back_committed_, &back_consumed_})
      traffic.add(word, sizeof *word);
    tables_lie_across_bus(traffic);
  }
  /// p2p between kernels of one GPU: bytes and words are in its memory, and copies of the words in the host's.
  void words_are_on_device() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (table::RingSetup* ring : {&setups_[i].rings.tx, &setups_[i].rings.rx}) {
        ring->memory.words_are_kept = true;
        ring->committed_copy = &copies_[ring->committed == &committed_ ? 0 : 1];
        ring->consumed_copy = &copies_[ring->committed == &committed_ ? 2 : 3];
      }
      handles_[i] = detail::adopt(side_, table::make_handle(i, 1), slots_[i]);
    }
  }
  /// verbs with the NIC writing into the receiver's GPU: the bytes, and the word that tells of them.
  void is_written_by_nic(std::uint64_t bias, Traffic& traffic) {
    table::RingSetup& ring = setups_[1].rings.rx;
    ring.memory.words_are_kept = true;
    ring.memory.bias = bias;
    ring.committed_copy = &copies_[0];
    ring.consumed_copy = nullptr;
    handles_[1] = detail::adopt(side_, table::make_handle(1, 1), slots_[1]);
    traffic.add(&consumed_, sizeof consumed_);
    copies_lie_across_bus(traffic);
  }
  void copies_lie_across_bus(Traffic& traffic) {
    traffic.add(copies_, sizeof copies_);
    tables_lie_across_bus(traffic);
  }
  /// p2p between kernels of two GPUs: what one side's GPU does not have. Bytes and `committed` are the receiver's, and
  /// `consumed` is the sender's.
  void lies_elsewhere(Traffic& traffic, bool for_sender) {
    if (for_sender) {
      traffic.add(bytes_, sizeof bytes_), traffic.add(&committed_, sizeof committed_);
      traffic.add(&back_consumed_, sizeof back_consumed_);
    } else {
      traffic.add(back_, sizeof back_), traffic.add(&back_committed_, sizeof back_committed_);
      traffic.add(&consumed_, sizeof consumed_);
    }
    copies_lie_across_bus(traffic);
  }
  /// How far the sender has come, as the proxy reads it.
  std::uint64_t load_host_committed() {
    return detail::SystemRef(*setups_[0].rings.tx.host_committed()).load(ringbuf::kRelaxed);
  }
  /// How far the receiver has come, the same.
  std::uint64_t load_host_consumed() {
    return detail::SystemRef(*setups_[1].rings.rx.host_consumed()).load(ringbuf::kRelaxed);
  }
  /// Streams through the proxy, whose words kernels poll in their own memory: the rest of what lies across the bus.
  void lies_across_bus_but_polled(Traffic& traffic, bool for_sender) {
    traffic.add(bytes_, sizeof bytes_), traffic.add(back_, sizeof back_);
    traffic.add(for_sender ? &committed_ : &consumed_, sizeof(std::uint64_t));
    traffic.add(for_sender ? &back_consumed_ : &back_committed_, sizeof(std::uint64_t));
    host_tables_lie_across_bus(traffic);
  }
  void tables_lie_across_bus(Traffic& traffic) {
    traffic.add(&abort_, sizeof abort_);
    traffic.add(proxy_words_, sizeof proxy_words_);
    host_tables_lie_across_bus(traffic);
  }
  void host_tables_lie_across_bus(Traffic& traffic) {
    traffic.add(requests_, sizeof requests_), traffic.add(options_, sizeof options_);
    traffic.add(watches_, sizeof watches_);
    traffic.add(setups_, sizeof setups_);
  }
  table::CallerSlot& sending_slot() { return slots_[0]; }
  int rings = 0, credits = 0;

 private:
  std::uint64_t load_consumed() { return detail::SystemRef(consumed_).load(ringbuf::kRelaxed); }

  detail::Hooks counting_{};
  std::uint64_t told_committed_ = 0, told_consumed_ = 0;
  std::uint64_t handed_over_ = 0;
  alignas(8) std::byte bytes_[1024] = {};
  alignas(8) std::byte back_[64] = {};
  std::uint64_t committed_ = 0, consumed_ = 0, back_committed_ = 0, back_consumed_ = 0, abort_ = 0;
  std::uint64_t copies_[4] = {};
  std::uint64_t requests_[2] = {}, options_[2] = {}, watches_[2] = {};
  table::PollSetView set_view_;
  table::ProxyWords proxy_words_[2];
  table::SocketSetup setups_[2];
  table::CallerSlot slots_[2];
  Socket handles_[2] = {};
  detail::Side side_;
};

}  // namespace gpusock::model
