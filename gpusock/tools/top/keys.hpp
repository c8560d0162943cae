#pragma once
/// @file The keys that scroll the live table in a terminal.

#include <termios.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::top {

/// What a key asks for. `none`: nothing, or no key came in time.
enum class Wish { none, up, down, page_up, page_down, home, end, quit };

/// Removes the first key's bytes from `typed`, and returns what the key asks for. Returns `none` for a key that means
/// nothing here, and while an escape sequence is incomplete (then nothing is removed).
Wish take_key(std::string& typed);

/// Returns the first of the table's `lines` lines that a window of `rows` lines shows after this wish.
std::size_t scroll(std::size_t first, Wish wish, std::size_t lines, std::size_t rows);

/// Waits, and reads keys meanwhile, one by one and without an echo, if standard input is a terminal and this process is
/// in its foreground. The destructor restores the terminal.
class Keys {
 public:
  /// Reads no keys if `reads` is false: keys change nothing if standard output is not a terminal.
  explicit Keys(bool reads);
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  /// Waits for a key, at most `ns`. Returns `quit` once SIGINT or SIGTERM has come (the caller blocks both).
  Wish wait(std::uint64_t ns);

 private:
  void take_terminal();

  bool reads_;
  int signals_ = -1;  // a signalfd
  bool taken_ = false;
  termios before_{};
  std::string typed_;
};

}  // namespace gpusock::top
