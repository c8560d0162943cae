#pragma once
/// @file A reliable connection (RC) between two NICs, and RDMA writes on it. Its ends agree on their addresses by
/// other means.
///
/// The send queue cannot overflow: it has room for `depth` requests, and what was posted and is not known to be
/// complete counts. Requests ask for a completion where the poster wants to know, and at least once every quarter of
/// the depth, since a place is free only when a later completion says so.

#include "rdma/device.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace gpusock::rdma {

/// What one end of a queue pair must know of the other.
struct QueuePairAddress {
  std::uint32_t number = 0;  ///< 24 bits
  std::uint32_t psn = 0;     ///< the first packet's sequence number, 24 bits
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
  bool ethernet = false;
};

/// One RDMA write.
struct Write {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;  ///< of nothing where `copied`
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  bool copied = false;  ///< `data` is copied when it is posted, and may be changed then; bytes <= inline_bytes()
};

class QueuePair final : private CompletionSink {
 public:
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::size_t kBatchMax = 8;

  /// Throws std::system_error. `device` is kept open.
  explicit QueuePair(std::shared_ptr<Device> device);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  QueuePairAddress address() const;
  /// Connects to the other end; from then on it takes writes, and may write. Throws std::system_error.
  void connect(const QueuePairAddress& peer);
  /// `on_progress` is called when completed() or failed() may have changed; an empty one is not.
  void set_on_progress(std::function<void()> on_progress) { on_progress_ = std::move(on_progress); }

  /// Bytes that a copied write may have.
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  /// Writes that can be posted now.
  std::uint32_t room() const { return depth_ - outstanding(); }
  /// Writes that are not known to be complete.
  std::uint32_t outstanding() const { return posted_ - completed_; }

  /// Posts these, at most kBatchMax, in this order; `notify`: the last one gets a completion. 0 or a negated errno
  /// (-EAGAIN: there is no room for all of them, and none was posted).
  int post(std::span<const Write> writes, bool notify);

  /// How many were posted ever, and how many of them are known to be complete: a write is complete when the other NIC
  /// has acknowledged it. Counts modulo 2^32.
  std::uint32_t posted() const { return posted_; }
  std::uint32_t completed() const { return completed_; }

  /// True if it is broken: nothing can be sent or received any more.
  bool failed() const { return status_ != IBV_WC_SUCCESS || post_error_ != 0; }
  /// What broke it, for people.
  std::string failure() const;

 private:
  void on_completion(std::uint32_t request, ibv_wc_status status) override;
  void on_completions_taken() override;
  ibv_qp* make(std::uint32_t depth);
  void initialize();

  std::shared_ptr<Device> device_;
  std::uint32_t depth_;
  CompletionQueues::Places places_;
  std::uint32_t inline_bytes_ = 0;
  ibv_qp* pair_ = nullptr;
  std::uint32_t psn_;
  std::function<void()> on_progress_;
  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t unannounced_ = 0;  // posted since the last that asked for a completion
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  int post_error_ = 0;
};

}  // namespace gpusock::rdma
