#pragma once
/// @file The implementation of a group, for the classes that add operations to it.

#include "param_sync/executor/executor.hpp"
#include "param_sync/group.hpp"
#include "param_sync/parameters.hpp"
#include "param_sync/schedule/schedule.hpp"
#include "param_sync/update/sgd.hpp"
#include "param_sync/wire/hash.hpp"

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// Indices in the executor's list of schedules. The broadcast from root r has index kBroadcast + r.
enum GroupSchedule : std::size_t { kSmall, kLarge, kReduceScatter, kAllGather, kBroadcast };

/// Without measure(), sums of at most this size take the scheme with the least depth, as latency then costs more than
/// bytes.
inline constexpr std::size_t kSmallFloats = 8 << 10;
/// The same for ranks that share a host. There a byte costs a copy of memory, and each step waits until another process
/// runs: docs/measurements/2026-11-28-sums-of-one-host.
inline constexpr std::size_t kSmallFloatsOfHost = 64 << 10;

/// Up to so many ranks, large sums take `mesh`: as many bytes as `ring`, in two steps instead of 2 (P - 1). A rank has
/// 2 (P - 1) connections for it, and 4 for `ring`: docs/measurements/2026-11-28-mesh-or-ring.
inline constexpr int kMeshRanksMax = 6;

/// Returns kSmallFloats or kSmallFloatsOfHost, for ranks that listen at these addresses.
std::size_t small_floats_of(const std::vector<gpusock::Endpoint>& addresses);

/// Returns up to how many floats the scheme for small tensors is taken. `sizes` ascend; both schemes were timed at
/// each. Takes the boundary with the smallest loss over all sizes, so that one bad time does not decide.
std::size_t boundary_of(std::span<const std::size_t> sizes, std::span<const float> small_s,
                        std::span<const float> large_s);

/// Returns the scheme by which a group of so many ranks all-reduces large sums, if it may choose.
std::string large_scheme(int nodes);
/// Returns the scheme by which a group all-reduces small sums, or large ones. `large`: if it may choose.
std::string all_reduce_scheme(const GroupOptions& options, bool is_small, const std::string& large);
/// Returns the scheme's schedule. Throws gpusock::Error (EINVAL) if it is no all-reduce that suits these arguments.
schedule::Schedule all_reduce_of(const std::string& scheme, int nodes, bool deterministic);

executor::Settings settings_of(int rank, const GroupOptions& options);

/// The memory of measure(). It is allocated with the group: a later allocation may wait for kernels of other ranks of
/// this process, and these wait for this rank.
struct Measured {
  static constexpr std::size_t kFloats[] = {256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10};
  static constexpr std::size_t kSizes = std::size(kFloats);

  explicit Measured(gpusock::Context& context) : data(context, kFloats[kSizes - 1]), seconds(context, 2 * kSizes) {}

  gpusock::DeviceBuffer<float> data;
  gpusock::Mapped<float> seconds;  ///< times of the small scheme by size, then of the large one
};

/// The update as kernels have it.
inline Sgd sgd_of(const Update& update) {
  return Sgd::of({update.learning_rate, update.momentum, update.scale, update.nesterov, update.l1});
}

/// A hash that differs (except by chance) for other updates.
inline std::uint64_t hash_of(const Update& update) {
  const float numbers[] = {update.learning_rate, update.momentum, update.scale, static_cast<float>(update.nesterov),
                           update.l1};
  return fnv1a(numbers, sizeof numbers);
}

/// True if "auto" may choose between two schemes.
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
  bool listens = false;
  bool connected = false;
  std::uint32_t parameters_made = 0;
  std::size_t small_floats_max = kSmallFloats;
  std::optional<Measured> measured{};

  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  void connect(const std::vector<gpusock::Endpoint>& to);

  Operation start(std::size_t index, const Tensor& tensor, ReduceOp op, std::uint64_t timeout_ns);
  /// Returns how many words of 4 bytes a tensor has. Throws gpusock::Error (EINVAL) if it is no whole number.
  std::size_t words_of(const Tensor& tensor);

  /// Returns the executor. Throws gpusock::Error (ENOTCONN) if the group is not connected.
  executor::Executor& ready() {
    if (!connected) throw gpusock::Error(ENOTCONN, "an operation of a group that is not connected: call connect first");
    return executor;
  }
};

/// Tells all ranks of a group at which port each of them listens with another listener.
class PortExchange {
 public:
  /// `addresses`: where each of the ranks listens with the group's listener, once the group is connected.
  PortExchange(gpusock::Context& context, executor::Executor& executor, const std::vector<gpusock::Endpoint>& addresses,
               int ranks)
      : executor_(executor), addresses_(addresses), ports_(context, static_cast<std::size_t>(ranks)) {}

  /// Sets this rank's own port.
  void set(int rank, std::uint16_t port) { ports_[static_cast<std::size_t>(rank)] = port; }

  /// Returns the address of each rank's listener, by rank. An operation of the group that waits. Throws as these do.
  std::vector<gpusock::Endpoint> exchange(std::uint64_t timeout_ns) const {
    float* const words = reinterpret_cast<float*>(ports_.data());  // lanes move words of four bytes
    executor_.wait(executor_.start(kAllGather, words, ports_.size(), timeout_ns));
    std::vector<gpusock::Endpoint> all = addresses_;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i].with_port(static_cast<std::uint16_t>(ports_[i]));
    return all;
  }

 private:
  executor::Executor& executor_;
  const std::vector<gpusock::Endpoint>& addresses_;
  gpusock::Mapped<std::uint32_t> ports_;  // by rank
};

}  // namespace param_sync
