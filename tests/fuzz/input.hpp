#pragma once
/// @file What a fuzzer hands to a target, taken apart: numbers and runs of bytes, zeros once it is used up.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gpusock::fuzz {

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  /// A value as it lies in memory.
  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::size_t count = std::min(sizeof value, bytes_.size());
    if (count != 0) std::memcpy(&value, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  bool flag() { return (byte() & 1) != 0; }
  /// Less than `limit`, which is at most 65536.
  std::size_t below(std::size_t limit) { return (limit <= 256 ? byte() : take<std::uint16_t>()) % limit; }

  /// A number near a border: `anchor` and a little more or less, or any at all.
  std::uint64_t near(std::uint64_t anchor) {
    const std::uint8_t kind = byte();
    if (kind == 0xff) return take<std::uint64_t>();
    return anchor + static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(kind)) *
                                               (kind % 3 == 0 ? 64 : 1));
  }

  std::string_view bytes(std::size_t count_max) {
    const std::size_t count = std::min(count_max, bytes_.size());
    const std::string_view run(reinterpret_cast<const char*>(bytes_.data()), count);
    bytes_ = bytes_.subspan(count);
    return run;
  }
  std::string_view rest() { return bytes(bytes_.size()); }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace gpusock::fuzz
