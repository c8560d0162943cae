#pragma once
/// @file Calls that all threads of a group must make together. If only a part of a group makes one, the launch fails
/// with an error that says so, as soon as that is certain (group_calls.cpp).
///
/// A call that one thread can make for its group costs one meeting: when all threads of the group have arrived, the
/// leader makes the call, and the others go on with its result. In other shapes of the device (device_shape.hpp) all
/// threads make it, and meet in it as often as on a GPU.

#include "cpu_device/detail/cooperative_groups.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cpu_device {

namespace detail {

inline constexpr std::size_t kCallResultMax = 48, kCallAlignment = 16;

/// Returns true if end_lanes_call() must follow.
bool begin_call(const char* name, unsigned mask);
void end_lanes_call() noexcept;
void hand_result(unsigned mask, const void* result, std::size_t bytes);

inline unsigned lanes_of(const cooperative_groups::thread_block&) { return 0; }
inline unsigned lanes_of(const cooperative_groups::detail::LaneGroup& lanes) { return lanes.mask(); }

/// Returns null to the leader when all threads of the group have arrived. It then makes the call and hands its result
/// to all. To the others it returns the address of the result, when they have it.
inline const void* meet_for_call(const cooperative_groups::thread_block&, const char* name) {
  return cpu_device_meet(Meeting::block_call, 0, reinterpret_cast<std::uintptr_t>(name), 0);
}
inline const void* meet_for_call(const cooperative_groups::detail::LaneGroup& lanes, const char* name) {
  return cpu_device_meet(Meeting::lanes_call, lanes.mask(), reinterpret_cast<std::uintptr_t>(name), 0);
}

}  // namespace detail

/// While it exists, the running thread is in a call that all threads of the group must make, and make. `name` is the
/// call's name for messages, a literal. It has no effect outside of kernels.
class GroupCall {
 public:
  template <class Group>
  GroupCall(const Group& group, const char* name) : ends_(detail::begin_call(name, detail::lanes_of(group))) {}
  ~GroupCall() {
    if (ends_) detail::end_lanes_call();
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

 private:
  const bool ends_;
};

/// True if the leaders of groups make calls for all threads (DeviceShape). False outside of kernels.
inline bool leaders_call() noexcept { return detail::t_thread->block->leaders_make_calls; }

/// Returns what `call()` returns to the leader, when all threads of the group have arrived. Only if leaders_call().
/// `name`: as for GroupCall.
template <class Group, class Call>
inline auto call_for_group(const Group& group, const char* name, Call call) {
  using Result = decltype(call());
  static_assert(std::is_trivially_copyable_v<Result> && sizeof(Result) <= detail::kCallResultMax);
  Result result{};
  if (const void* of_leader = detail::meet_for_call(group, name)) {
    std::memcpy(&result, of_leader, sizeof result);
  } else {
    result = call();
    detail::hand_result(detail::lanes_of(group), &result, sizeof result);
  }
  return result;
}

/// The same for a call that also writes a variable which each thread has for itself. If the result is a negative
/// number, the call has failed, and the variables stay as they are.
template <class Group, class Call, class Variable>
inline auto call_for_group(const Group& group, const char* name, Call call, Variable& variable) {
  struct Both {
    decltype(call()) result;
    Variable variable;
  };
  const Both both = call_for_group(group, name, [&] {
    const auto result = call();
    return Both{result, variable};
  });
  if constexpr (std::is_integral_v<decltype(both.result)>) {
    if (both.result < 0) return both.result;
  }
  variable = both.variable;
  return both.result;
}

}  // namespace cpu_device
