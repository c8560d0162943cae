#pragma once
/// @file Erasure codes: k coded chunks beside m data chunks, and any m of the m + k are enough (Reed and Solomon, 1960;
/// as a Cauchy matrix: Bloemer et al., 1995). ISA-L computes.

#include <gpusock/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#if GPUSOCK_WITH_ISAL
#include <isa-l/erasure_code.h>
#endif

namespace coded {

#if GPUSOCK_WITH_ISAL
inline constexpr bool kHasReedSolomon = true;
#else
inline constexpr bool kHasReedSolomon = false;
#endif

/// A code of `data` data chunks and `spare` coded ones, together at most 255. Row i of its matrix is chunk i; the first
/// `data` rows are those of the data chunks themselves.
class ReedSolomon {
 public:
  using Byte = unsigned char;
  static constexpr unsigned kChunksMax = 255;  // of GF(2^8)

  /// Throws gpusock::Error (ENOSYS) in a build without ISA-L.
  ReedSolomon(unsigned data, unsigned spare) : data_(data), spare_(spare) {
#if GPUSOCK_WITH_ISAL
    matrix_.resize(std::size_t{data + spare} * data);
    gf_gen_cauchy1_matrix(matrix_.data(), static_cast<int>(data + spare), static_cast<int>(data));
#else
    throw gpusock::Error(ENOSYS, "Reed-Solomon codes: this build has no ISA-L; install libisal-dev and build again");
#endif
  }

  /// Computes the coded chunks. `chunks`: the addresses of all of them, of `bytes` each, data chunks first.
  void encode(std::size_t bytes, std::span<Byte* const> chunks) const {
    multiply(bytes, matrix_.data() + std::size_t{data_} * data_, spare_, chunks.data(), chunks.data() + data_);
  }

  /// Computes the data chunks that have not come, in place. `chunks`: as above; `has_come`: of each chunk, with `data`
  /// of them or more. Returns false, and changes nothing, if fewer have come.
  bool decode(std::size_t bytes, std::span<Byte* const> chunks, const std::vector<bool>& has_come) const {
    std::vector<Byte*> taken, missing;
    std::vector<Byte> rows;  // of what is taken
    for (unsigned chunk = 0; chunk < data_ + spare_ && taken.size() < data_; ++chunk) {
      if (!has_come[chunk]) continue;
      taken.push_back(chunks[chunk]);
      const auto row = matrix_.begin() + std::ptrdiff_t{chunk} * data_;
      rows.insert(rows.end(), row, row + data_);
    }
    if (taken.size() < data_) return false;
    std::vector<Byte> inverse(rows.size()), wanted;
    if (!invert(rows, inverse)) return false;
    for (unsigned chunk = 0; chunk < data_; ++chunk) {
      if (has_come[chunk]) continue;
      missing.push_back(chunks[chunk]);
      const auto row = inverse.begin() + std::ptrdiff_t{chunk} * data_;
      wanted.insert(wanted.end(), row, row + data_);
    }
    multiply(bytes, wanted.data(), static_cast<unsigned>(missing.size()), taken.data(), missing.data());
    return true;
  }

 private:
#if GPUSOCK_WITH_ISAL
  bool invert(std::vector<Byte>& rows, std::vector<Byte>& inverse) const {
    return gf_invert_matrix(rows.data(), inverse.data(), static_cast<int>(data_)) == 0;
  }
  /// `to` are `count` chunks: the product of `rows` and the chunks `from`.
  void multiply(std::size_t bytes, const Byte* rows, unsigned count, Byte* const* from, Byte* const* to) const {
    if (count == 0) return;
    constexpr std::size_t kTableBytes = 32;  // of an element, as ISA-L says
    std::vector<Byte> tables(kTableBytes * data_ * count);
    ec_init_tables(static_cast<int>(data_), static_cast<int>(count), const_cast<Byte*>(rows), tables.data());
    ec_encode_data(static_cast<int>(bytes), static_cast<int>(data_), static_cast<int>(count), tables.data(),
                   const_cast<Byte**>(from), const_cast<Byte**>(to));
  }
#else
  bool invert(std::vector<Byte>&, std::vector<Byte>&) const { return false; }
  void multiply(std::size_t, const Byte*, unsigned, Byte* const*, Byte* const*) const {}
#endif

  unsigned data_, spare_;
  std::vector<Byte> matrix_;
};

}  // namespace coded
