#include "rdma/queue_pair.hpp"

#include "rdma/error.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gpusock::rdma {
namespace {

/// Numbers of inline bytes per request to ask a NIC for, the largest first. A NIC with less room refuses, and the next
/// size is tried. The smallest one still holds the words that follow the bytes.
constexpr std::uint32_t kInlineWanted[] = {220, 64, 16};

/// The NIC waits 4.096 us * 2^16 = 268 ms for an acknowledgement and retries seven times: the connection fails if the
/// peer is unreachable for two to eight seconds (NICs may wait up to four times as long: InfiniBand Architecture
/// Specification, "Local ACK Timeout"). The peer asks at once for a lost packet if later packets arrive.
constexpr std::uint8_t kTimeout = 16;
constexpr std::uint8_t kRetries = 7;
/// Writes need no receive request, so a correct peer never reports that it is not ready. These retries are the limit.
constexpr std::uint8_t kNotReadyRetries = 3;
constexpr std::uint8_t kNotReadyTimer = 12;  // 0.64 ms

std::uint32_t random_psn() {
  std::uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value)
    value = 1;  // it need not be secret: it only keeps old packets out
  return value & 0xffffff;
}

void modify(ibv_qp* pair, ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = ibv_modify_qp(pair, &attributes, mask);
  if (error != 0) fail(error, std::string("bringing a queue pair into the state ") + to);
}

}  // namespace

QueuePair::QueuePair(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      depth_(std::min(kDepth, device_->send_requests_max())),
      entries_(device_->completions().take(depth_, *this)),
      psn_(random_psn()) {
  try {
    pair_ = make(depth_);
    initialize();
  } catch (...) {
    if (pair_ != nullptr) ibv_destroy_qp(pair_);
    device_->completions().give_back(entries_);
    throw;
  }
}

QueuePair::~QueuePair() {
  ibv_destroy_qp(pair_);
  device_->completions().give_back(entries_);
}

ibv_qp* QueuePair::make(std::uint32_t depth) {
  int error = EINVAL;
  for (const std::uint32_t bytes : kInlineWanted) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = device_->completions().queue(entries_);
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {
        .max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = bytes};
    if (ibv_qp* pair = ibv_create_qp(device_->domain(), &wanted)) {
      inline_bytes_ = std::max(bytes, std::min(wanted.cap.max_inline_data, kInlineWanted[0]));
      return pair;
    }
    error = errno;
    if (error == ENOMEM) break;
  }
  fail(error, "making a queue pair on RDMA device " + device_->port().device);
}

void QueuePair::initialize() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = device_->port().pkey_index;
  attributes.port_num = device_->port().number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(pair_, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

QueuePairAddress QueuePair::address() const {
  const Port& port = device_->port();
  return {pair_->qp_num, psn_, port.gid, port.lid, port.mtu, port.ethernet};
}

void QueuePair::connect(const QueuePairAddress& peer) {
  const Port& port = device_->port();
  if (peer.ethernet != port.ethernet) fail(EPROTONOSUPPORT, "one side has RoCE and the other InfiniBand");
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = std::min(port.mtu, peer.mtu);
  ready.dest_qp_num = peer.number;
  ready.rq_psn = peer.psn;
  ready.min_rnr_timer = kNotReadyTimer;
  ready.ah_attr.port_num = port.number;
  ready.ah_attr.dlid = peer.lid;
  if (port.ethernet || peer.gid.global.subnet_prefix != port.gid.global.subnet_prefix) {
    ready.ah_attr.is_global = 1;
    ready.ah_attr.grh = {
        .dgid = peer.gid, .flow_label = 0, .sgid_index = port.gid_index, .hop_limit = 64, .traffic_class = 0};
  }
  modify(pair_, ready,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         "RTR (ready to receive)");
  ibv_qp_attr sending{};
  sending.qp_state = IBV_QPS_RTS;
  sending.timeout = kTimeout;
  sending.retry_cnt = kRetries;
  sending.rnr_retry = kNotReadyRetries;
  sending.sq_psn = psn_;
  modify(pair_, sending,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS (ready to send)");
}

int QueuePair::post(std::span<const Write> writes, bool notify) {
  if (failed()) return -ECONNRESET;
  if (writes.empty() || writes.size() > kBatchMax) return -EINVAL;
  if (writes.size() > room()) return -EAGAIN;
  std::array<ibv_send_wr, kBatchMax> requests{};
  std::array<ibv_sge, kBatchMax> pieces{};
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const Write& write = writes[i];
    const bool last = i + 1 == writes.size();
    pieces[i] = {reinterpret_cast<std::uint64_t>(write.data), write.bytes, write.local_key};
    ibv_send_wr& request = requests[i];
    const bool announced = (last && notify) || ++unannounced_ >= depth_ / 4;
    if (announced) unannounced_ = 0;
    request.wr_id = make_request_id(entries_.sink, posted_ + static_cast<std::uint32_t>(i) + 1);
    request.next = last ? nullptr : &requests[i + 1];
    request.sg_list = &pieces[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = (announced ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                         (write.copied ? unsigned{IBV_SEND_INLINE} : 0u);
    request.wr.rdma = {write.remote_address, write.remote_key};
  }
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_, requests.data(), &bad); error != 0) {
    post_error_ = error;  // final: room() has shown that the queue is not full
    return -error;
  }
  posted_ += static_cast<std::uint32_t>(writes.size());
  return 0;
}

void QueuePair::on_completion(std::uint32_t request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS) {
    if (request - completed_ <= outstanding()) completed_ = request;
  } else if (status_ == IBV_WC_SUCCESS) {
    status_ = status;  // the first error says what happened; the later ones are of flushed requests
  }
}

void QueuePair::on_completions_taken() {
  if (on_progress_) on_progress_();
}

std::string QueuePair::failure() const {
  return status_ != IBV_WC_SUCCESS ? ibv_wc_status_str(status_) : std::strerror(post_error_);
}

}  // namespace gpusock::rdma
