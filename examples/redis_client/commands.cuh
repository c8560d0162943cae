#pragma once
/// @file The commands that the client sends. All commands of a kind have one size, so that each thread writes its own
/// into its place in the pipeline, side by side with the others.

#include "gpusock/types.hpp"

namespace redis {

enum class Command : int { set, get, mget, del };
inline constexpr int kCommands = 4;

/// Keys are "gpusock:" and ten digits, so that all have one size.
inline constexpr unsigned kKeyDigits = 10;
inline constexpr std::uint64_t kKeysMax = 10'000'000'000;

struct Plan {
  std::uint64_t keys;  ///< of all blocks together
  std::uint64_t value_bytes;
  unsigned pipeline;  ///< commands sent before their replies are read
  unsigned keys_of_mget;
  std::uint64_t timeout_ns;  ///< for the replies to one pipeline

  GPUSOCK_FN unsigned keys_of(Command command) const { return command == Command::mget ? keys_of_mget : 1; }
};

/// Appends text. If `to` is nullptr, it only counts.
class Words {
 public:
  GPUSOCK_FN explicit Words(char* to) : to_(to) {}

  GPUSOCK_FN void add(char c) {
    if (to_ != nullptr) to_[bytes_] = c;
    ++bytes_;
  }
  template <std::size_t kBytes>
  GPUSOCK_FN void add(const char (&literal)[kBytes]) {
    for (std::size_t i = 0; i + 1 < kBytes; ++i) add(literal[i]);
  }
  GPUSOCK_FN void add_number(std::uint64_t number, unsigned digits_min = 1) {
    char digits[20];
    unsigned count = 0;
    for (; number != 0 || count < digits_min; number /= 10) digits[count++] = static_cast<char>('0' + number % 10);
    while (count != 0) add(digits[--count]);
  }
  GPUSOCK_FN std::size_t bytes() const { return bytes_; }

 private:
  char* to_;
  std::size_t bytes_ = 0;
};

/// What is stored under the key: byte `index` of its value.
GPUSOCK_FN inline char value_byte(std::uint64_t key, std::uint64_t index) {
  return static_cast<char>('a' + (key * 31 + index * 7 + key * index) % 26);
}

/// Writes a command about the keys first, first + 1, ... (mget: wrapping around within [begin, end)); its size.
GPUSOCK_FN inline std::size_t write_command(char* to, Command command, const Plan& plan, std::uint64_t first,
                                            std::uint64_t begin, std::uint64_t end) {
  Words words(to);
  const unsigned keys = plan.keys_of(command);
  words.add('*');
  words.add_number(1 + keys + (command == Command::set ? 1 : 0));
  if (command == Command::set) words.add("\r\n$3\r\nSET\r\n");
  if (command == Command::get) words.add("\r\n$3\r\nGET\r\n");
  if (command == Command::mget) words.add("\r\n$4\r\nMGET\r\n");
  if (command == Command::del) words.add("\r\n$3\r\nDEL\r\n");
  for (unsigned i = 0; i < keys; ++i) {
    words.add("$18\r\ngpusock:");
    words.add_number(begin + (first - begin + i) % (end - begin), kKeyDigits);
    words.add("\r\n");
  }
  if (command == Command::set) {
    words.add('$');
    words.add_number(plan.value_bytes);
    words.add("\r\n");
    for (std::uint64_t i = 0; i < plan.value_bytes; ++i) words.add(value_byte(first, i));
    words.add("\r\n");
  }
  return words.bytes();
}

}  // namespace redis
