#pragma once
/// @file Which processors a thread may use, and which ones are near a device. The proxy's thread polls memory that the
/// GPU and the NIC write to; from a processor of another NUMA node, each look has to cross the interconnect between
/// processor sockets.

#include <pthread.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::proxy {

inline constexpr std::size_t kFewProcessors = 4;

/// True if the proxy's thread can have a processor to itself.
constexpr bool has_own_processor(std::size_t processors) { return processors > kFewProcessors; }

/// Which threads run the proxy's steps while callers wait for them.
struct ProxyPolicy {
  bool assists;  ///< callers that wait run the steps themselves
  bool spins;    ///< the proxy's thread does not nap while kernels run
};

/// Chooses the policy. `callers_can_wake`: false if kernels cannot wake the thread, as on a GPU. Kernels then wait for
/// the end of its naps, and host threads that assist would keep it asleep for a while. `processors`: how many this
/// process may use. `assist`, `spin`: what the user has chosen (Options::assist, Options::spin).
constexpr ProxyPolicy proxy_policy(bool callers_can_wake, std::size_t processors, std::optional<bool> assist = {},
                                   std::optional<bool> spin = {}) {
  const bool own = has_own_processor(processors);
  return {assist.value_or(callers_can_wake && !own), !callers_can_wake && spin.value_or(own)};
}

/// The processors of a list like "0-3,8", as Linux writes it (cpuset(7), "List format"); empty if it is not a list.
std::vector<int> parse_processors(std::string_view list);

/// The processors of a PCI device's NUMA node, from Linux's file /sys/bus/pci/devices/<address>/local_cpulist below
/// root. Empty if that gives none.
/// @param address "0000:17:00.0", in either case.
std::vector<int> processors_near(std::string_view address, const std::filesystem::path& root = "/");

/// Returns the processors in the list that the calling thread may use. Processors that the user has excluded are left
/// out.
std::vector<int> usable(const std::vector<int>& processors);

/// Keeps a thread on these processors, which usable() returned. Does nothing if there are none.
void keep_on(pthread_t thread, const std::vector<int>& usable) noexcept;

}  // namespace gpusock::proxy
