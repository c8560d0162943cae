#pragma once
/// @file A reliable connection (RC) between two NICs, and RDMA writes on it. The callers exchange the addresses of its
/// two ends by other means.
///
/// The send queue cannot overflow: it has room for kDepth requests, or fewer if the device allows fewer, and each
/// posted request takes an entry until it is known to be complete. A request asks for a completion if the caller wants
/// one (`notify`). At least one in every quarter of the depth does, since only the completion of a request frees the
/// entries of that request and of earlier ones.

#include "rdma/device.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace gpusock::rdma {

/// What one end of a connection must know about the other end.
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
  std::uint32_t local_key = 0;  ///< not used if `copied`
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  bool copied = false;  ///< post() copies `data`, which may change afterwards; bytes <= inline_bytes()
};

class QueuePair final : private CompletionSink {
 public:
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::size_t kBatchMax = 8;

  /// Throws std::system_error. Keeps `device` open.
  explicit QueuePair(std::shared_ptr<Device> device);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  QueuePairAddress address() const;
  /// Connects to the other end. After that, both ends can write to each other. Throws std::system_error.
  void connect(const QueuePairAddress& peer);
  /// Sets the function that is called when completed() or failed() may have changed. It may be empty.
  void set_on_progress(std::function<void()> on_progress) { on_progress_ = std::move(on_progress); }

  /// Maximum number of bytes of a copied write.
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  /// Number of writes that can be posted now.
  std::uint32_t room() const { return depth_ - outstanding(); }
  /// Number of writes that are not known to be complete.
  std::uint32_t outstanding() const { return posted_ - completed_; }

  /// Posts these writes, at most kBatchMax, in this order. `notify`: the last one asks for a completion. Returns 0 or a
  /// negated errno (-EAGAIN: there is no room for all of them, and none was posted).
  int post(std::span<const Write> writes, bool notify);

  /// Number of writes ever posted, and number of them that are known to be complete, both modulo 2^32. A write is
  /// complete when the other NIC has acknowledged it.
  std::uint32_t posted() const { return posted_; }
  std::uint32_t completed() const { return completed_; }

  /// True if the connection is broken: nothing can be sent or received any more.
  bool failed() const { return status_ != IBV_WC_SUCCESS || post_error_ != 0; }
  /// What broke the connection, as text for the user.
  std::string failure() const;

 private:
  void on_completion(std::uint32_t request, ibv_wc_status status) override;
  void on_completions_taken() override;
  ibv_qp* make(std::uint32_t depth);
  void initialize();

  std::shared_ptr<Device> device_;
  std::uint32_t depth_;
  CompletionQueues::Entries entries_;
  std::uint32_t inline_bytes_ = 0;
  ibv_qp* pair_ = nullptr;
  std::uint32_t psn_;
  std::function<void()> on_progress_;
  std::uint32_t posted_ = 0;
  std::uint32_t completed_ = 0;
  std::uint32_t unannounced_ = 0;  // requests posted since the last one that asked for a completion
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  int post_error_ = 0;
};

}  // namespace gpusock::rdma
