#pragma once
// Two connected sockets of host threads, or of a host thread and a kernel.
#include "gpusock/gpusock.hpp"
#include "tests/support/patience.hpp"

#include <string>

namespace gpusock::test {

/// A flag of a kernel's wait: the kernel ends when the host raises it.
__global__ inline void wait_for_flag(std::uint64_t* flag) {
  while (detail::SystemRef(*flag).load(ringbuf::kAcquire) == 0) __nanosleep(1000);
}
inline void raise(std::uint64_t& flag) { detail::SystemRef(flag).store(1, ringbuf::kRelease); }

__global__ inline void connect_kernel(Net net, Endpoint to, Socket* socket) {
  *socket = net.connect(this_thread(), to, patience());
}

/// A listener of a context's host threads.
class HostListener {
 public:
  HostListener(Context& context, const std::string& link) : net_(context.net()) {
    socket = net_.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=" + link), 8, patience());
    net_.getsockname(socket, at);
    at.link = parse_link(link);
  }
  Socket accept() const { return net_.accept(this_thread(), socket, patience()); }

  Socket socket;
  Endpoint at;

 private:
  Net net_;
};

}  // namespace gpusock::test
