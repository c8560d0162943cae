// Ours (tests/support/mlx5) against rdma-core: libmlx5 posts the same writes to a queue of its own, and both queues,
// their records and their doorbells must hold the same bytes. The NIC's model of the other tests serves libmlx5's
// queues as well, so that it cannot share an error with it.
#include "fake_uverbs.hpp"
#include "pair.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace gpusock {
namespace {

using namespace rdma::mlx5;  // NOLINT
using test::Mlx5Nic;
using test::Mlx5Offsets;

// The header's structs: each segment is where its offset in an entry says.
constexpr std::uint32_t kRemote = sizeof(mlx5_wqe_ctrl_seg), kData = kRemote + sizeof(mlx5_wqe_raddr_seg);
static_assert(kRemote == kSegmentBytes && kData == 2 * kSegmentBytes && sizeof(mlx5_wqe_data_seg) == kSegmentBytes);
static_assert(offsetof(mlx5_wqe_ctrl_seg, opmod_idx_opcode) == Mlx5Offsets::kIndexAndOpcode);
static_assert(offsetof(mlx5_wqe_ctrl_seg, qpn_ds) == Mlx5Offsets::kNumberAndSegments);
static_assert(offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) == Mlx5Offsets::kFlags);
static_assert(kRemote + offsetof(mlx5_wqe_raddr_seg, raddr) == Mlx5Offsets::kRemoteAddress);
static_assert(kRemote + offsetof(mlx5_wqe_raddr_seg, rkey) == Mlx5Offsets::kRemoteKey);
static_assert(kData + offsetof(mlx5_wqe_data_seg, byte_count) == Mlx5Offsets::kBytes);
static_assert(kData + offsetof(mlx5_wqe_data_seg, lkey) == Mlx5Offsets::kLocalKey);
static_assert(kData + offsetof(mlx5_wqe_data_seg, addr) == Mlx5Offsets::kLocalAddress);
static_assert(kData + sizeof(mlx5_wqe_inl_data_seg) == Mlx5Offsets::kInlineData);
static_assert(offsetof(mlx5_err_cqe, vendor_err_synd) == Mlx5Offsets::kVendorSyndrome);
static_assert(offsetof(mlx5_err_cqe, syndrome) == Mlx5Offsets::kSyndrome);
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == Mlx5Offsets::kQueuePair);
static_assert(offsetof(mlx5_cqe64, wqe_counter) == Mlx5Offsets::kCounter);
static_assert(offsetof(mlx5_cqe64, op_own) == Mlx5Offsets::kOwner);
static_assert(sizeof(mlx5_cqe64) == kCompletionWords * 8);
static_assert(kBlockBytes == MLX5_SEND_WQE_BB && kRdmaWrite == MLX5_OPCODE_RDMA_WRITE && kInline == MLX5_INLINE_SEG);
static_assert(kNotify >> 32 == MLX5_WQE_CTRL_CQ_UPDATE && MLX5_SND_DBR == 1);
static_assert(kRequestDone == MLX5_CQE_REQ && kRequestFailed == MLX5_CQE_REQ_ERR && kNotWritten == MLX5_CQE_INVALID);
static_assert(Mlx5Nic::kFlushed == MLX5_CQE_SYNDROME_WR_FLUSH_ERR &&
              Mlx5Nic::kRemoteAccessError == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);

struct Close {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
  void operator()(ibv_qp* pair) const { ibv_destroy_qp(pair); }
};

/// libmlx5's queue pair, and what it consists of.
class Mlx5Golden : public testing::Test {
 protected:
  static constexpr std::uint32_t kRequests = 64;

  void SetUp() override {
    static test::FakeUverbs device;
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (count == 1) context_.reset(ibv_open_device(list[0]));
    if (list != nullptr) ibv_free_device_list(list);
    // What libibverbs asks of a kernel is no fixed interface: a later release may ask for more.
    if (context_ == nullptr) GTEST_SKIP() << "this libibverbs does not open the device of fake_uverbs.cpp";
    domain_.reset(ibv_alloc_pd(context_.get()));
    ASSERT_NE(domain_, nullptr);
    done_.reset(ibv_create_cq(context_.get(), 4 * kRequests, nullptr, nullptr, 0));
    ASSERT_NE(done_, nullptr);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = done_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = kRequests,
                  .max_recv_wr = 0,
                  .max_send_sge = 1,
                  .max_recv_sge = 0,
                  .max_inline_data = test::Mlx5Pair::kInlineBytes};
    pair_.reset(ibv_create_qp(domain_.get(), &wanted));
    ASSERT_NE(pair_, nullptr);
    ibv_qp_attr sending{};
    sending.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(pair_.get(), &sending, IBV_QP_STATE), 0);
    mlx5dv_obj objects{};
    objects.qp = {pair_.get(), &sent_};
    objects.cq = {done_.get(), &completed_};
    ASSERT_EQ(mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), 0);
    ASSERT_EQ(completed_.cqe_size, sizeof(mlx5_cqe64));
    ASSERT_EQ(sent_.sq.stride, kBlockBytes);
  }

  /// Posts these to libmlx5's queue, with one doorbell.
  void post(const std::vector<Write>& writes, bool notify) {
    std::vector<ibv_send_wr> requests(writes.size());
    std::vector<ibv_sge> pieces(writes.size());
    for (std::size_t i = 0; i < writes.size(); ++i) {
      pieces[i] = {reinterpret_cast<std::uint64_t>(writes[i].data), writes[i].bytes, writes[i].local_key};
      requests[i].next = i + 1 == writes.size() ? nullptr : &requests[i + 1];
      requests[i].sg_list = &pieces[i];
      requests[i].num_sge = 1;
      requests[i].opcode = IBV_WR_RDMA_WRITE;
      requests[i].send_flags = (notify ? unsigned{IBV_SEND_SIGNALED} : 0u) |
                               (writes[i].copied ? unsigned{IBV_SEND_INLINE} : 0u);
      requests[i].wr_id = ++posted_;
      requests[i].wr.rdma = {writes[i].remote_address, writes[i].remote_key};
    }
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(pair_.get(), requests.data(), &bad), 0);
  }

  /// A NIC that serves libmlx5's queues, and writes into `pair`'s memory.
  Mlx5Nic nic_for(test::Mlx5Pair& pair, std::uint64_t* record, std::uint64_t* doorbell) {
    Mlx5Nic::Queues queues{static_cast<std::byte*>(sent_.sq.buf),
                           sent_.sq.wqe_cnt,
                           record,
                           doorbell,
                           pair_->qp_num,
                           static_cast<std::byte*>(completed_.buf),
                           completed_.cqe_cnt,
                           reinterpret_cast<std::uint64_t*>(completed_.dbrec)};
    const auto address = reinterpret_cast<std::uint64_t>(pair.local.data());
    return {queues,
            {{pair.kLocalKey, address, pair.local.data(), pair.local.size()}},
            {{pair.kRemoteKey, pair.kRemoteAddress, pair.remote.data(), pair.remote.size()}}};
  }

  std::uint64_t* record() { return reinterpret_cast<std::uint64_t*>(sent_.dbrec); }
  std::uint64_t* doorbell() { return static_cast<std::uint64_t*>(sent_.bf.reg); }

  std::unique_ptr<ibv_context, Close> context_;
  std::unique_ptr<ibv_pd, Close> domain_;
  std::unique_ptr<ibv_cq, Close> done_;
  std::unique_ptr<ibv_qp, Close> pair_;
  mlx5dv_qp sent_{};
  mlx5dv_cq completed_{};
  std::uint64_t posted_ = 0;
};

constexpr std::uint32_t kLengths[] = {0, 1, 4, 8, 12, 13, 28, 29, 92, 93, 219, 220};

TEST_F(Mlx5Golden, QueueRecordAndDoorbellHoldTheSameBytes) {
  test::Mlx5Pair pair(sent_.sq.wqe_cnt);  // for its memory, and for the NIC that lets libmlx5 go on
  SendQueueMemory memory = pair.memory;
  memory.number = pair_->qp_num;
  SendQueue queue(memory);
  Mlx5Nic theirs = nic_for(pair, record(), doorbell());
  const std::size_t bytes_of_queue = sent_.sq.wqe_cnt * kBlockBytes;
  std::uint64_t blocks = 0;
  const std::uint64_t laps = 3 * sent_.sq.wqe_cnt, wrap = 1 << 16;
  for (std::uint32_t i = 0; blocks < wrap + 100; ++i) {  // three laps, and past the end of the index
    while (blocks >= laps && blocks < wrap - 100) {      // uncompared, to come there
      const std::vector<Write> writes(16, pair.write(0, 220, true));
      post(writes, true);
      for (const Write& write : writes) ASSERT_EQ(queue.append(write, true), 0);
      queue.ring();
      theirs.run();
      ibv_wc done[16];
      ASSERT_EQ(ibv_poll_cq(done_.get(), 16, done), 16);
      blocks += 64;
      ASSERT_EQ(queue.take({.number = pair_->qp_num, .block = static_cast<std::uint16_t>(blocks - 4)}), 0);
    }
    std::vector<Write> writes;
    std::uint32_t in_batch = 0;
    for (std::uint32_t j = 0; j <= i % 3; ++j) {
      writes.push_back(pair.write(i % 100 + j, kLengths[(i + j * 5) % std::size(kLengths)], (i / 2 + j) % 2 == 0));
      in_batch += SendQueue::blocks_of(writes.back());
    }
    SCOPED_TRACE("batch " + std::to_string(i));
    std::memset(sent_.sq.buf, 0xee, bytes_of_queue);  // nothing is under way
    std::memset(memory.entries, 0xee, bytes_of_queue);
    post(writes, true);
    for (const Write& write : writes) ASSERT_EQ(queue.append(write, true), 0);
    queue.ring();
    // What fills the last segment of copied bytes is of no meaning.
    std::uint64_t at = blocks;
    for (const Write& write : writes) {
      for (std::uint32_t byte = 36 + write.bytes; write.copied && write.bytes != 0 && byte % kSegmentBytes != 0;
           ++byte) {
        const std::uint64_t offset = (at * kBlockBytes + byte) & (bytes_of_queue - 1);
        static_cast<std::byte*>(sent_.sq.buf)[offset] = reinterpret_cast<std::byte*>(memory.entries)[offset] = {};
      }
      at += SendQueue::blocks_of(write);
    }
    blocks += in_batch;
    ASSERT_EQ(std::memcmp(sent_.sq.buf, memory.entries, bytes_of_queue), 0);
    ASSERT_EQ(*record(), *memory.doorbell_record);
    ASSERT_EQ(*doorbell(), *memory.doorbell);
    // libmlx5 gets its completions from the model, and reads in them what was posted.
    theirs.run();
    ASSERT_EQ(theirs.error(), nullptr);
    ibv_wc done[3];
    ASSERT_EQ(ibv_poll_cq(done_.get(), 3, done), static_cast<int>(writes.size()));
    for (std::size_t j = 0; j < writes.size(); ++j) {
      ASSERT_EQ(done[j].status, IBV_WC_SUCCESS);
      ASSERT_EQ(done[j].wr_id, posted_ - writes.size() + 1 + j);
    }
    const std::uint64_t last = blocks - SendQueue::blocks_of(writes.back());
    ASSERT_EQ(queue.take({.number = pair_->qp_num, .block = static_cast<std::uint16_t>(last)}), 0);
    ASSERT_EQ(queue.completed(), blocks);
    for (const Write& write : writes)
      ASSERT_TRUE(pair.arrived(write.remote_address - pair.kRemoteAddress, write.bytes));
  }
}

}  // namespace
}  // namespace gpusock
