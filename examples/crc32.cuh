#pragma once
// CRC-32, as in zlib, gzip and Ethernet, computed by all threads of a block. Each thread takes a piece of the data, and
// moves its CRC to the offset of the piece: it multiplies it by a power of x modulo the polynomial. The sum (exclusive
// or) of all is the CRC of the whole.
#include <gpusock/device.cuh>

#include <cstdint>

namespace block_crc {

inline constexpr std::uint32_t kPolynomial = 0xEDB88320;  // lowest power in the highest bit, as everywhere here
inline constexpr std::uint32_t kStart = 0xFFFFFFFF;       // the first state; the CRC is the complement of the last one

/// The tables of a block, in shared memory.
struct Tables {
  std::uint32_t of_byte[256];
  std::uint32_t of_zeros[64];  ///< x^(8 * 2^k): the factor by which 2^k more bytes change a CRC
};

__device__ inline std::uint32_t times_x(std::uint32_t value) {
  return value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
}

__device__ inline std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1, b = times_x(b)) {
    if ((a >> 31) != 0) product ^= b;
  }
  return product;
}

/// Returns the CRC of data followed by so many zero bytes, from the CRC of the data.
__device__ inline std::uint32_t shift(const Tables& tables, std::uint32_t crc, std::uint64_t bytes) {
  for (int k = 0; bytes != 0; ++k, bytes >>= 1) {
    if ((bytes & 1) != 0) crc = multiply(crc, tables.of_zeros[k]);
  }
  return crc;
}

/// Fills the tables. All threads of the block call it.
template <class Block>
__device__ void prepare(const Block& block, Tables& tables) {
  for (unsigned byte = block.thread_rank(); byte < 256; byte += block.num_threads()) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    tables.of_byte[byte] = crc;
  }
  if (block.thread_rank() == 0) {
    tables.of_zeros[0] = 1u << (31 - 8);
    for (int k = 1; k < 64; ++k) tables.of_zeros[k] = multiply(tables.of_zeros[k - 1], tables.of_zeros[k - 1]);
  }
  block.sync();
}

/// Returns the state after `bytes` more bytes, in every thread. All threads of the block call it.
template <class Block>
__device__ std::uint32_t update(const Block& block, const Tables& tables, std::uint32_t state, const void* data,
                                std::uint64_t bytes) {
  __shared__ unsigned sum;
  if (block.thread_rank() == 0) sum = shift(tables, state, bytes);
  block.sync();
  const std::uint64_t piece = (bytes + block.num_threads() - 1) / block.num_threads();
  const std::uint64_t first = block.thread_rank() * piece;
  if (first < bytes) {
    const std::uint64_t last = first + piece < bytes ? first + piece : bytes;
    const auto* from = static_cast<const std::uint8_t*>(data);
    std::uint32_t crc = 0;
    for (std::uint64_t i = first; i < last; ++i) crc = tables.of_byte[(crc ^ from[i]) & 0xFF] ^ crc >> 8;
    atomicXor(&sum, shift(tables, crc, bytes - last));
  }
  block.sync();
  const std::uint32_t result = sum;
  block.sync();  // all must have read it before the next call writes
  return result;
}

}  // namespace block_crc
