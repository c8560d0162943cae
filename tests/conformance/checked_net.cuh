#pragma once
// The socket calls as the conformance tests make them: a call that returns an error which its docstring does not list
// fails the test. (Calls of kernels on a GPU are not checked: there is nowhere to fail.)
#include <gpusock/device.cuh>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <iterator>
#include <string_view>

namespace gpusock::conformance {

/// An error that a call's docstring lists.
struct Listed {
  std::string_view call;
  int error;
};

inline constexpr Listed kListed[] = {
#define LISTED(call, error) {#call, error},
#include "listed_errors.inc"  // from gpusock/device.cuh
#undef LISTED
};

/// Which of kListed calls have returned. Any thread notes one.
inline std::array<std::atomic<bool>, std::size(kListed)> returned;

/// Notes the error of a call, and fails the test if it is not listed.
inline void check_error(std::string_view call, std::int64_t result) {
  for (std::size_t i = 0; i < std::size(kListed); ++i) {
    if (kListed[i].error == -result && kListed[i].call == call) {
      returned[i].store(true, std::memory_order_relaxed);  // relaxed: read after the threads are joined
      return;
    }
  }
  ADD_FAILURE() << call << " returned " << result << ", which its docstring in gpusock/device.cuh does not list";
}

/// gpusock::Net with checked results.
class Net : public gpusock::Net {
 public:
  Net() = default;
  GPUSOCK_FN Net(const gpusock::Net& net) : gpusock::Net(net) {}

// By value: in kernels there is no reference to a host's constant, as a buffer's size.
#define CHECKED(call, arguments_type)                                                  \
  template <class... Arguments>                                                        \
  GPUSOCK_FN auto call(Arguments arguments_type... arguments) const {                  \
    return checked(#call, gpusock::Net::call(static_cast<Arguments&&>(arguments)...)); \
  }
  CHECKED(listen, )
  CHECKED(accept, )
  CHECKED(connect, )
  CHECKED(send, )
  CHECKED(recv, )
  CHECKED(reserve, )
  CHECKED(commit, )
  CHECKED(abort, )
  CHECKED(peek, )
  CHECKED(release, )
  CHECKED(poll, )
  CHECKED(open_set, )
  CHECKED(watch, )
  CHECKED(unwatch, )
  CHECKED(wait, )
  CHECKED(wake, )
  CHECKED(close_set, )
  CHECKED(shutdown, )
  CHECKED(close, )
  CHECKED(setsockopt, )
  // These write into an argument.
  template <class Group>
  GPUSOCK_FN Span reserve(const Group& group, Socket socket, std::size_t bytes, Span& rest,
                          Deadline deadline = Deadline::by_default()) const {
    return checked("reserve", gpusock::Net::reserve(group, socket, bytes, rest, deadline));
  }
  CHECKED(getsockname, &&)
  CHECKED(getpeername, &&)
  CHECKED(getsockopt, &&)
  CHECKED(stats, &&)
#undef CHECKED

 private:
  GPUSOCK_FN static std::int64_t error_of(std::int64_t result) { return result; }
  GPUSOCK_FN static std::int64_t error_of(const Span& span) { return span.size; }

  template <class Result>
  GPUSOCK_FN static Result checked(const char* call, const Result& result) {
#if GPUSOCK_ON_GPU
    (void)call;
#else
    if (error_of(result) < 0) check_error(call, error_of(result));
#endif
    return result;
  }
};

}  // namespace gpusock::conformance
