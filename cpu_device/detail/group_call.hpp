#pragma once
/// @file Calls that all threads of a group must make together. If only a part of a group makes one, the launch fails
/// with an error that says so, as soon as that is certain (group_calls.cpp).

#include "cpu_device/detail/cooperative_groups.hpp"

namespace cpu_device {

namespace detail {
void begin_block_call(const char* name);
/// True if the thread was in no call of lanes before; then end_lanes_call() must follow.
bool begin_lanes_call(unsigned mask, const char* name);
void end_lanes_call() noexcept;
}  // namespace detail

/// While it exists, the running thread is in a call that all threads of the group must make. `name` is the call's name
/// for messages, a literal. It has no effect outside of kernels.
template <class Group>
class GroupCall {
 public:
  GroupCall(const Group& group, const char* name) : begun_(detail::begin_lanes_call(mask_of(group), name)) {}
  ~GroupCall() {
    if (begun_) detail::end_lanes_call();
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

 private:
  static unsigned mask_of(const cooperative_groups::detail::LaneGroup& lanes) { return lanes.mask(); }

  bool begun_;
};

template <>
class GroupCall<cooperative_groups::thread_block> {
 public:
  GroupCall(const cooperative_groups::thread_block&, const char* name) { detail::begin_block_call(name); }
};

}  // namespace cpu_device
