#pragma once
/// @file One connection's queue pair: this side's NIC writes bytes into the peer's ring, and after them the position
/// that the peer's callers poll. The peer's processor takes no part.
///
/// Writes of one queue pair are executed in order, and never twice, so positions and credit only grow. The memory of a
/// write may be reused once the write is complete: until then the NIC may have to send it again.
///
/// Rings may lie in device memory that the NICs reach (device_rings.hpp). This side's proxy then touches no byte of
/// them. The NIC writes bytes to the device and their position to host memory, and no rule orders writes to two
/// memories. So callers do not poll the word in host memory. If the device takes NICs' writes in order, the NIC first
/// writes the position into a word beside the ring, and callers poll that word (V8 in rdma/visibility.hpp). Otherwise
/// the proxy sees the word in host memory, makes the bytes visible (V4), and then stores the callers' word. In both
/// cases the proxy checks the word in host memory, and relies on this word alone.

#include "host_proxy/links/one_sided_transport.hpp"
#include "host_proxy/links/verbs/message.hpp"
#include "host_proxy/memory/segment.hpp"
#include "socket_table/socket_table.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/registration.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::verbs {

/// Shared by a maker's links: how many of them have writes under way.
struct Activity {
  std::size_t busy = 0;
};

/// A connection's resources, in this order, so that the queue pair is destroyed first, then the keys, then the memory.
struct Parts {
  std::shared_ptr<Segment> segment;
  rdma::Registration words;  ///< written by the peer
  rdma::Registration rx;     ///< written by the peer
  rdma::Registration tx;
  rdma::Registration kernels_word;  ///< written by the peer; empty: there is none
  std::unique_ptr<rdma::QueuePair> pair;
  PeerMemory peer;
};

class VerbsTransport final : public OneSidedTransport {
 public:
  /// The `rings` must be those of `parts`.
  VerbsTransport(Parts parts, std::shared_ptr<Activity> activity, const table::RingPair& rings);
  ~VerbsTransport() { abandon(); }

  std::string name() const override { return "verbs"; }
  bool is_silent() const override { return true; }
  bool commits() const override { return commits_; }
  bool callers_may_lead() const override { return static_cast<bool>(parts_.kernels_word); }
  /// Where this side's positions begin: the peer's NIC writes positions as this side counts them.
  std::vector<std::uint64_t> setup_words() const override { return {rx_start_}; }
  int take_word(std::uint64_t word) override;
  bool poll() override;
  void abandon() override;
  std::uint64_t write_bytes_max() const override;
  int write(const std::byte* from, std::uint64_t bytes) override;
  std::uint64_t arrived() const override;
  int make_visible() override;
  bool is_credit_due(std::uint64_t bytes) override;
  int send_credit(std::uint64_t consumed) override;

 private:
  /// A write, with its position, that is not known to be complete.
  struct Pending {
    std::uint32_t request = 0;  ///< number of its last request, as QueuePair counts
    std::uint64_t end = 0;      ///< position after its bytes
  };

  rdma::Write write_of_word(const std::uint64_t& value, std::uint64_t at) const;
  std::uint32_t requests_per_write() const { return 2 + parts_.peer.has_kernels_word; }
  void take_completions();

  Parts parts_;
  SegmentHeader& words_;
  std::shared_ptr<Activity> activity_;
  std::uint64_t rx_start_;
  bool commits_;
  std::uint32_t inline_bytes_;  // up to this size, a write of ring bytes is copied into its request
  std::uint64_t peer_start_ = 0;
  int looks_ = 0;  // since there was credit to send
  std::array<Pending, rdma::QueuePair::kDepth> pending_;
  std::size_t first_pending_ = 0;
  std::size_t pending_count_ = 0;
};

}  // namespace gpusock::proxy::verbs
