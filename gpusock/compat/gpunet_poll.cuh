#pragma once
/// @file GPUnet's gpoll: its entries also say how many bytes there are.

#include "gpusock/compat/gpunet_state.cuh"

#include <poll.h>

#include <cstddef>

/// One socket of a gpoll call.
struct gpollfd {
  int fd;           ///< the socket; a negative one gets POLLNVAL, and gpoll does not wait for it
  short events;     ///< what to wait for: POLLIN, POLLOUT
  short revents;    ///< the events that gpoll found
  unsigned rbytes;  ///< bytes that grecv has at once
  unsigned wbytes;  ///< bytes that gsend takes at once
};

namespace gpusock::compat {

/// Looks at one entry. Returns true if it ends the wait.
__device__ inline bool look_at(const detail::Side& side, gpollfd& entry) {
  entry.rbytes = entry.wbytes = 0;
  if (entry.fd < 0) {  // as in GPUnet: it is reported, but does not end the wait
    entry.revents = POLLNVAL;
    return false;
  }
  entry.revents = static_cast<short>(detail::events_of(side, entry.fd, entry.events, false));
  SocketStats stats;
  if (gpunet_net().stats(entry.fd, stats) == 0) {
    entry.rbytes = static_cast<unsigned>(stats.bytes_unread);
    entry.wbytes = static_cast<unsigned>(stats.send_buffer - stats.bytes_unsent);
  }
  return entry.revents != 0;
}

/// True if an entry ends the wait now.
__device__ inline bool any_event(const detail::Side& side, const gpollfd* entries, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (entries[i].fd >= 0 && detail::events_of(side, entries[i].fd, entries[i].events, false) != 0) return true;
  }
  return false;
}

}  // namespace gpusock::compat

/// Block: waits until one of the sockets has an event that is asked for, or POLLHUP, POLLERR or POLLNVAL. `clocks`
/// limits the wait, in ticks of clock64() (nanoseconds on the CPU device); 0 or less: no limit. Returns 1, or 0 once
/// the time is over, or -ECANCELED, -EINVAL, -ENODEV.
__device__ inline int gpoll(gpollfd* entries, std::size_t count, int clocks) {
  using namespace gpusock;
  if (!compat::gpunet().ready) return -ENODEV;
  if (entries == nullptr && count != 0) return -EINVAL;
  constexpr std::int64_t kLookAgain = 2;
  const auto block = this_block();
  const detail::Side& side = detail::NetAccess::side(gpunet_net());
  detail::Wait wait(side, Deadline::never(), true);
  const long long start = clock64();
  block.sync();  // another thread may have written the entries
  for (;;) {
    int found = 0;
    for (std::size_t i = block.thread_rank(); i < count; i += block.num_threads())
      found += compat::look_at(side, entries[i]);
    found = detail::sum(block, found);
    const std::int64_t result = detail::by_leader(block, [&]() -> std::int64_t {
      if (detail::canceled(side)) return -ECANCELED;
      if (found != 0) return 1;
      const auto is_late = [&] { return clocks > 0 && clock64() - start > clocks; };
      if (is_late()) return 0;
      detail::wait_for_event(block, side, wait, [&] { return is_late() || compat::any_event(side, entries, count); });
      return kLookAgain;
    });
    if (result != kLookAgain) return static_cast<int>(result);
  }
}
