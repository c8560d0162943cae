#pragma once
/// @file Calls that all threads of a group must make together. If only a part of a group makes one, the launch fails
/// with an error that says so, as soon as that is certain (group_calls.cpp).
///
/// A call that one thread can make for its group costs one meeting: when all threads of the group have arrived, the
/// leader makes the call, and the others go on with its result. In other shapes of the device (device_shape.hpp) all
/// threads make it, and meet in it as often as on a GPU.

#include "cpu_device/detail/cooperative_groups.hpp"

#include <cstddef>
#include <type_traits>

namespace cpu_device {

namespace detail {

/// Where a thread wants the result of its group's call.
struct CallResult {
  void* at;
  std::size_t bytes;
};

struct CallBegun {
  bool first;  ///< for lanes: the thread was in no call of lanes before; then end_lanes_call() must follow
  bool once;   ///< the leader makes the call for all
};
CallBegun begin_block_call(const char* name);
CallBegun begin_lanes_call(unsigned mask, const char* name);
void end_lanes_call() noexcept;
/// Returns true to the leader, the thread of rank 0, when all threads of the group have arrived. It then makes the call
/// and hands its result to all. To the others it returns false when they have the result.
bool arrive_at_block_call(const CallResult& result);
bool arrive_at_lanes_call(unsigned mask, const CallResult& result);
void hand_result_to_block();
void hand_result_to_lanes(unsigned mask);

inline bool arrive(const cooperative_groups::thread_block&, const CallResult& result) {
  return arrive_at_block_call(result);
}
inline bool arrive(const cooperative_groups::detail::LaneGroup& lanes, const CallResult& result) {
  return arrive_at_lanes_call(lanes.mask(), result);
}
inline void hand_result(const cooperative_groups::thread_block&) { hand_result_to_block(); }
inline void hand_result(const cooperative_groups::detail::LaneGroup& lanes) { hand_result_to_lanes(lanes.mask()); }

}  // namespace detail

/// While it exists, the running thread is in a call that all threads of the group must make. `name` is the call's name
/// for messages, a literal. It has no effect outside of kernels.
template <class Group>
class GroupCall {
 public:
  GroupCall(const Group& group, const char* name) : group_(group), begun_(begin(group, name)) {}
  ~GroupCall() {
    if (!kOfBlock && begun_.first) detail::end_lanes_call();
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  /// True if the group's leader makes the call for all.
  bool once() const { return begun_.once; }

  /// For once(): returns what `call()` returns to the leader, when all threads of the group have arrived.
  template <class Call>
  auto make(Call call) const {
    using Result = decltype(call());
    static_assert(std::is_trivially_copyable_v<Result>);
    Result result{};
    const detail::CallResult wanted{&result, sizeof result};
    if (detail::arrive(group_, wanted)) {
      result = call();
      detail::hand_result(group_);
    }
    return result;
  }
  /// The same for a call that also writes a variable which each thread has for itself. If the result is a negative
  /// number, the call has failed, and the variables stay as they are.
  template <class Call, class Variable>
  auto make(Call call, Variable& variable) const {
    struct Both {
      decltype(call()) result;
      Variable variable;
    };
    const Both both = make([&] {
      const auto result = call();
      return Both{result, variable};
    });
    if constexpr (std::is_integral_v<decltype(both.result)>) {
      if (both.result < 0) return both.result;
    }
    variable = both.variable;
    return both.result;
  }

 private:
  static constexpr bool kOfBlock = std::is_same_v<Group, cooperative_groups::thread_block>;

  static detail::CallBegun begin(const Group& group, const char* name) {
    if constexpr (kOfBlock) {
      return detail::begin_block_call(name);
    } else {
      return detail::begin_lanes_call(group.mask(), name);
    }
  }

  const Group group_;
  const detail::CallBegun begun_;
};

}  // namespace cpu_device
