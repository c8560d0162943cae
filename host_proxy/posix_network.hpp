#pragma once
/// @file The operating system's TCP, and sleeping until it has something or somebody rings.

#include "host_proxy/network.hpp"

#include <cerrno>

namespace gpusock::proxy {

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(-1); }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }
  void reset(int number);

 private:
  int number_ = -1;
};

/// Makes a system call again as long as a signal interrupts it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class PosixNetwork final : public Network {
 public:
  PosixNetwork();  ///< throws Error (EMFILE)

  std::unique_ptr<Acceptor> listen(const Endpoint& at, int backlog, int& error) override;
  std::unique_ptr<ByteStream> connect(const Endpoint& to, int& error) override;
  void poll() override;

  /// Also wakes sleep() while `descriptor` is readable, and tells `sink` at each poll, until unwatch().
  void watch(int descriptor, ReadySink& sink);
  void unwatch(int descriptor);

  /// Sleeps until the network has something, ring() was called, or `timeout_ns` has passed.
  void sleep(std::uint64_t timeout_ns);

  /// As sleep(), but the network does not wake it.
  void sleep_until_rung(std::uint64_t timeout_ns);

  /// Wakes the sleeper, or keeps the next one from sleeping. Any thread.
  void ring() noexcept;

 private:
  void wait_for(int descriptor, std::uint64_t timeout_ns);

  Descriptor epoll_;
  Descriptor bell_;
};

}  // namespace gpusock::proxy
