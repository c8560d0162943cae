#pragma once
/// @file What a group is made of, for the classes that add operations to it.

#include "param_sync/executor/executor.hpp"
#include "param_sync/group.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// Places in the executor's list of schedules; broadcasts follow, by root.
enum GroupSchedule : std::size_t { kSmall, kLarge, kReduceScatter, kAllGather, kBroadcast };

/// Without measure(): up to this size a sum takes the scheme with fewer rounds, as rounds then cost more than bytes.
inline constexpr std::size_t kSmallFloats = 8 << 10;

/// Up to how many floats the scheme for small tensors is to be taken, where both were timed at these sizes, which
/// ascend: the boundary that loses least, so that one bad time does not decide.
std::size_t boundary_of(std::span<const std::size_t> sizes, std::span<const float> small_s,
                        std::span<const float> large_s);

/// By which scheme a group all-reduces so many floats.
std::string all_reduce_scheme(const GroupOptions& options, std::size_t count);
/// Its schedule. Throws gpusock::Error (EINVAL).
schedule::Schedule all_reduce_of(const std::string& scheme, int nodes, bool deterministic);

executor::Settings settings_of(int rank, const GroupOptions& options);

/// What measure() sums, in memory that is made with the group: later, making some may wait for the kernels of other
/// ranks of this process, which wait for this one.
struct Measured {
  static constexpr std::size_t kFloats[] = {256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10};
  static constexpr std::size_t kSizes = std::size(kFloats);

  explicit Measured(gpusock::Context& context) : data(context, kFloats[kSizes - 1]), seconds(context, 2 * kSizes) {
    data.copy_in(std::vector<float>(data.size()));
  }

  gpusock::DeviceBuffer<float> data;
  gpusock::Mapped<float> seconds;  ///< of both schemes, by size
};

/// True where "auto" has a choice.
inline bool has_choice(const GroupOptions& options) { return options.all_reduce == "auto" && !options.deterministic; }

struct Group::Impl {
  Impl(gpusock::Context& of, int own_rank, int all, const GroupOptions& given);

  gpusock::Context& context;
  int rank;
  int nodes;
  GroupOptions options;
  executor::Executor executor;
  gpusock::Endpoint listens_at{};
  std::vector<gpusock::Endpoint> addresses{};
  bool connected = false;
  std::uint32_t parameters_made = 0;
  std::size_t small_floats_max = kSmallFloats;
  std::optional<Measured> measured{};

  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  void connect(const std::vector<gpusock::Endpoint>& to);

  /// Throws gpusock::Error (ENOTCONN).
  executor::Executor& ready() {
    if (!connected) throw gpusock::Error(ENOTCONN, "an operation of a group that is not connected: call connect first");
    return executor;
  }
};

}  // namespace param_sync
