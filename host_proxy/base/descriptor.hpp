#pragma once
/// @file Descriptors of the operating system that close themselves; system calls that are repeated after a signal.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace gpusock::proxy {

/// A descriptor that closes itself. It is none of 0 to 2: if the program has closed one of these, the system may give
/// its number to a socket of gpusock, and what the program prints would go there.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(beyond_standard(number)) {}
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
  void reset(int number) {
    if (number_ >= 0) ::close(number_);
    number_ = beyond_standard(number);
  }

 private:
  /// The same file with a number above 2; the number itself if no other is free.
  static int beyond_standard(int number) {
    if (number < 0 || number > STDERR_FILENO) return number;
    const int error = errno;
    const int higher = ::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (higher >= 0) ::close(number);
    errno = error;
    return higher >= 0 ? higher : number;
  }

  int number_ = -1;
};

/// Makes a system call, and repeats it as long as signals interrupt it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace gpusock::proxy
