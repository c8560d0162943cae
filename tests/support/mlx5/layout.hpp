#pragma once
/// @file How entries lie in the queues of an mlx5 NIC (ConnectX-4 and later). All words are big-endian.
///
/// Sources: <infiniband/mlx5dv.h> of rdma-core, whose names stand beside the values; the man page mlx5dv_wr_post(3);
/// providers/mlx5/qp.c and cq.c of rdma-core for how they are used.
///
/// An entry of the send queue fills whole blocks of 64 bytes, and may go on at the start of the queue:
///
///   word  bytes    what                                        struct
///   0     0-3      operation modifier, block's index, opcode   mlx5_wqe_ctrl_seg
///         4-7      queue pair's number, segments of 16 bytes
///   1     8-15     flags in byte 11, the rest 0 (no signature, no immediate data)
///   2     16-23    remote address                              mlx5_wqe_raddr_seg
///   3     24-31    remote key, 0
///   4, 5  32-47    bytes, local key, local address             mlx5_wqe_data_seg
///   or    32-35    bytes | kInline, then the bytes themselves  mlx5_wqe_inl_data_seg
///
/// An entry of the completion queue has 64 bytes (mlx5_cqe64), of which these matter here:
///
///   word  bytes    what
///   6     54, 55   vendor's syndrome, syndrome: only of an error (mlx5_err_cqe)
///   7     56-59    opcode of the request, queue pair's number
///         60, 61   index of the first block of the request (wqe_counter)
///         63       kind << 4 | owner bit (op_own)

#include "ringbuf/annotations.hpp"

#include <bit>
#include <cstdint>

namespace gpusock::rdma::mlx5 {

inline constexpr std::uint32_t kBlockBytes = 64;  ///< MLX5_SEND_WQE_BB
inline constexpr std::uint32_t kBlockWords = kBlockBytes / sizeof(std::uint64_t);
inline constexpr std::uint32_t kSegmentBytes = 16;
inline constexpr std::uint32_t kSegmentsMax = 63;  ///< the field has 6 bits (qp.c: qpn_ds & 0x3f)
inline constexpr std::uint32_t kSegmentsMask = 0x3f;
inline constexpr std::uint32_t kNumberMask = 0xffffff;  ///< of a queue pair's number, and of a position in a completion
                                                        ///< queue
/// Blocks are counted modulo 2^16, in entries, completions and the doorbell record.
inline constexpr std::uint64_t kIndexMask = 0xffff;
inline constexpr std::uint32_t kBlocksMax = 1 << 15;

inline constexpr std::uint32_t kRdmaWrite = 0x08;                 ///< MLX5_OPCODE_RDMA_WRITE
inline constexpr std::uint64_t kNotify = std::uint64_t{8} << 32;  ///< MLX5_WQE_CTRL_CQ_UPDATE, in its place in word 1
inline constexpr std::uint32_t kInline = 0x80000000;              ///< MLX5_INLINE_SEG

inline constexpr std::uint32_t kCompletionWords = 8;
inline constexpr std::uint64_t kRequestDone = 0;     ///< MLX5_CQE_REQ
inline constexpr std::uint64_t kRequestFailed = 13;  ///< MLX5_CQE_REQ_ERR
inline constexpr std::uint64_t kNotWritten = 15;     ///< MLX5_CQE_INVALID: what a new completion queue is filled with

/// A value as the NIC has it in memory, and back.
GPUSOCK_FN constexpr std::uint64_t big_endian(std::uint64_t value) {
  static_assert(std::endian::native == std::endian::little);
  value = (value & 0x00ff00ff00ff00ff) << 8 | (value >> 8 & 0x00ff00ff00ff00ff);
  value = (value & 0x0000ffff0000ffff) << 16 | (value >> 16 & 0x0000ffff0000ffff);
  return value << 32 | value >> 32;
}

}  // namespace gpusock::rdma::mlx5
