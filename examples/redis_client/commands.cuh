#pragma once
/// @file The commands that the client sends. All commands of a kind have one size, so that each thread writes its own
/// at its offset in the pipeline, side by side with the others.

#include "gpusock/text.cuh"

namespace redis {

using gpusock::TextBuffer;

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
  std::uint64_t command_bytes[kCommands];

  GPUSOCK_FN unsigned keys_of(Command command) const { return command == Command::mget ? keys_of_mget : 1; }
};

/// Returns byte `index` of the value that is stored under the key.
GPUSOCK_FN inline char value_byte(std::uint64_t key, std::uint64_t index) {
  return static_cast<char>('a' + (key * 31 + index * 7 + key * index) % 26);
}

GPUSOCK_FN inline void write_key(TextBuffer& to, std::uint64_t key) {
  to << "$18\r\ngpusock:";
  for (std::uint64_t unit = kKeysMax / 10; unit != 0; unit /= 10) to << static_cast<char>('0' + key / unit % 10);
  to << "\r\n";
}

/// Writes a command about the keys first, first + 1, ... (mget: wrapping around within [begin, end)).
GPUSOCK_FN inline void write_command(TextBuffer& to, Command command, const Plan& plan, std::uint64_t first,
                                     std::uint64_t begin, std::uint64_t end) {
  const unsigned keys = plan.keys_of(command);
  to << '*' << 1 + keys + (command == Command::set ? 1 : 0);
  if (command == Command::set) to << "\r\n$3\r\nSET\r\n";
  if (command == Command::get) to << "\r\n$3\r\nGET\r\n";
  if (command == Command::mget) to << "\r\n$4\r\nMGET\r\n";
  if (command == Command::del) to << "\r\n$3\r\nDEL\r\n";
  for (unsigned i = 0; i < keys; ++i) write_key(to, begin + (first - begin + i) % (end - begin));
  if (command != Command::set) return;
  to << '$' << plan.value_bytes << "\r\n";
  for (std::uint64_t i = 0; i < plan.value_bytes; ++i) to << value_byte(first, i);
  to << "\r\n";
}

}  // namespace redis
