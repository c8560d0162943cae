#pragma once
/// @file A connected gpusock socket as a wire, and what the measured loops need of any wire.
///
/// A wire has these functions. The threads of a group call them together:
///   send(group, data, bytes)      all bytes; the count or a negated errno
///   receive(group, data, bytes)   all bytes; fewer at the end of the stream; or a negated errno
///   receive_some(group, data, bytes)  at least one byte; 0 at the end of the stream; or a negated errno
///   receive_now(group, data, bytes)   as receive_some(), but -EAGAIN if nothing is there
///   end_sending(group), close(group)

#include "message.cuh"

#include <gpusock/device.cuh>

namespace bench {

class SocketWire {
 public:
  GPUSOCK_FN SocketWire(const gpusock::Net& net, gpusock::Socket socket, gpusock::Deadline deadline)
      : net_(net), socket_(socket), deadline_(deadline) {}

  template <class Group>
  GPUSOCK_FN_OF_GROUP std::int64_t send(const Group& group, const void* data, std::uint64_t bytes) {
    return net_.send(group, socket_, data, bytes, gpusock::kWaitAll, deadline_);
  }
  template <class Group>
  GPUSOCK_FN_OF_GROUP std::int64_t receive(const Group& group, void* data, std::uint64_t bytes) {
    return net_.recv(group, socket_, data, bytes, gpusock::kWaitAll, deadline_);
  }
  template <class Group>
  GPUSOCK_FN_OF_GROUP std::int64_t receive_some(const Group& group, void* data, std::uint64_t bytes) {
    return net_.recv(group, socket_, data, bytes, 0, deadline_);
  }
  template <class Group>
  GPUSOCK_FN_OF_GROUP std::int64_t receive_now(const Group& group, void* data, std::uint64_t bytes) {
    return net_.recv(group, socket_, data, bytes, gpusock::kDontWait, deadline_);
  }
  template <class Group>
  GPUSOCK_FN void end_sending(const Group& group) {
    net_.shutdown(group, socket_, gpusock::Shutdown::write);
  }
  template <class Group>
  GPUSOCK_FN void close(const Group& group) {
    net_.close(group, socket_);
  }

 private:
  const gpusock::Net& net_;
  gpusock::Socket socket_;
  gpusock::Deadline deadline_;
};

/// A network (sides.cuh) of gpusock's own sockets.
class SocketNetwork {
 public:
  /// Connects to `to`; accepts at `listener`. All calls end at the job's limit.
  GPUSOCK_FN SocketNetwork(const gpusock::Net& net, const gpusock::Endpoint& to, gpusock::Socket listener,
                           const Job& job)
      : net_(net), to_(to), listener_(listener), deadline_(gpusock::Deadline::after_ns(job.limit_ns)) {}

  template <class Group>
  GPUSOCK_FN gpusock::Socket connect(const Group& group) const {
    return net_.connect(group, to_, deadline_);
  }
  template <class Group>
  GPUSOCK_FN gpusock::Socket accept(const Group& group) const {
    return net_.accept(group, listener_, deadline_);
  }
  template <class Group>
  GPUSOCK_FN gpusock::PollSet open_set(const Group& group) const {
    return net_.open_set(group);
  }
  template <class Group>
  GPUSOCK_FN int watch(const Group& group, gpusock::PollSet set, gpusock::Socket socket, std::uint64_t tag) const {
    return net_.watch(group, set, socket, gpusock::kPollIn, tag);
  }
  template <class Group>
  GPUSOCK_FN int wait(const Group& group, gpusock::PollSet set, gpusock::PollEvent* events, int max) const {
    return net_.wait(group, set, events, max, deadline_);
  }
  GPUSOCK_FN SocketWire wire(gpusock::Socket socket) const { return {net_, socket, deadline_}; }
  GPUSOCK_FN SocketWire wire(gpusock::Socket socket, std::uint64_t silence_ns) const {
    return {net_, socket, gpusock::Deadline::after_ns(silence_ns)};
  }

 private:
  const gpusock::Net& net_;
  const gpusock::Endpoint& to_;
  gpusock::Socket listener_;
  gpusock::Deadline deadline_;
};

/// Notes in the account why a side gives up. One thread calls it.
GPUSOCK_FN inline void give_up(Account& account, Step step, std::int64_t result) {
  account.failed_step = step;
  account.result = result;
}

/// True if all bytes were moved. If not, the account says so.
template <class Group>
GPUSOCK_FN bool all_moved(const Group& group, std::int64_t result, std::uint64_t wanted, Step step,
                          const Memory& memory) {
  if (result == static_cast<std::int64_t>(wanted)) return true;
  if (group.thread_rank() == 0) give_up(*memory.account, step, result);
  return false;
}

/// Tells the whole group the leader's decision. Makes two barriers.
template <class Group>
GPUSOCK_FN bool agree(const Group& group, const Memory& memory, bool leaders) {
  if (group.num_threads() == 1) return leaders;
  if (group.thread_rank() == 0) memory.account->more = leaders ? 1 : 0;
  group.sync();
  const bool agreed = memory.account->more != 0;
  group.sync();
  return agreed;
}

/// Notes a timed message that took from `from_ns` to `to_ns`. True if another message follows. One thread calls it.
GPUSOCK_FN inline bool note_sample(const Job& job, const Memory& memory, std::uint64_t started_ns,
                                   std::uint64_t from_ns, std::uint64_t to_ns) {
  Account& account = *memory.account;
  memory.samples_ns[account.messages++] = to_ns - from_ns;
  account.started_ns = started_ns;
  account.elapsed_ns = to_ns - started_ns;
  return account.messages < job.messages_max && account.elapsed_ns < job.duration_ns;
}

}  // namespace bench
