#pragma once
/// @file The receiving end, on the host.

#include "examples/coded_transfer/ends.hpp"
#include "examples/coded_transfer/lt_decoder.hpp"
#include "examples/coded_transfer/receiving.cuh"
#include "examples/coded_transfer/reed_solomon.hpp"
#include "examples/endpoints.hpp"
#include "examples/listening.cuh"

#include <gpusock/gpusock.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace coded {

/// What a receiver has found.
struct Outcome {
  Plan plan;
  std::vector<PathReport> paths;
  std::uint64_t taken = 0;  ///< chunks, until there were enough
  std::uint32_t inactive = 0;
  double seconds = 0, decode_seconds = 0;
};

/// The receiving end.
class ReceivingEnd {
  using Clock = std::chrono::steady_clock;

 public:
  explicit ReceivingEnd(const Options& options) : options_(options) {
    const std::string at = options.listen.empty() ? kHere : options.listen;
    listener_ = examples::listen(context_, examples::stream_endpoint(at), at, kPathsMax);
  }
  ~ReceivingEnd() { context_.cancel(); }  // the members' destructors wait for kernels

  gpusock::Endpoint where() const { return listener_.where; }

  /// Begins to accept all paths.
  void begin_to_meet() {
    gpusock::launch(context_, {.stream = &stream_}, accept_paths, context_.net(), listener_.socket, plan_.data(),
                    sockets_.data(), error_.data(), options_.patience_ms());
  }
  /// Waits until all have come, and makes the memory that the plan of the sender needs.
  void meet() {
    stream_.synchronize();
    if (error_[0] != 0) {
      throw gpusock::Error(-error_[0], "waiting for all paths of the sender; was it started with --connect?");
    }
    const Plan& plan = plan_[0];
    if (plan.spare != 0) ReedSolomon(plan.data_paths(), plan.spare);  // throws here if this build has none
    const auto [slow, factor] = pair_of(options_.slow, ':').value_or(Pair{kPathsMax, 1});
    for (std::uint32_t path = 0; path < plan.paths; ++path) {
      rates_[path] = path == slow ? std::max<std::uint64_t>(1, options_.rate / factor) : options_.rate;
    }
    const std::size_t words = plan.chunk_bytes / sizeof(std::uint64_t);
    chunks_.emplace(context_, (std::size_t{plan.slots()} + plan.paths) * words);
    in_group_.emplace(context_, plan.groups());
    arrivals_.emplace(context_, plan.slots());
    if (plan.is_lt != 0) lt_.emplace(plan.sources(), plan.seed);
  }
  /// Begins to take what comes.
  void begin() {
    began_ = Clock::now();
    gpusock::launch(context_, {.grid = plan_[0].paths, .block = kThreads, .stream = &stream_}, receive_paths,
                    Receiver{context_.net(), plan_[0], sockets_.data(), rates_.data(),
                             reinterpret_cast<std::byte*>(chunks_->data()), arrivals_->data(), counters_.data(),
                             in_group_->data(), end_.data(), options_.patience_ms(), reports_.data()});
  }

  /// Waits until enough has come, and decodes it. Throws if it does not come.
  Outcome end() {
    const Plan& plan = plan_[0];
    Outcome found{.plan = plan, .paths = {}};
    const End end = watch();
    found.seconds = seconds_since(began_);
    stream_.synchronize();
    // A block counts a chunk only after it has told of it, but others may have claimed earlier places in the list and
    // not yet written them. Now all have.
    if (!lt_) read_arrivals([](std::uint64_t) { return false; });
    found.taken = came_.size();
    found.paths.assign(reports_.begin(), reports_.begin() + plan.paths);
    if (end != End::enough) {
      throw std::runtime_error(lost_paths(found.paths) + ": --code " + name_of(plan) + " needs " +
                               (plan.is_lt != 0
                                    ? "one path that stays"
                                    : std::to_string(plan.data_paths()) + " of " + std::to_string(plan.paths) +
                                          " paths; take --code rs:K, which bears the loss of K, or lt"));
    }
    const auto began = Clock::now();
    const Words buffer = decode(found);
    found.decode_seconds = seconds_since(began);
    if (checksum_of(buffer.data(), buffer.size()) != plan.checksum) {
      throw gpusock::Error(EBADMSG, "the buffer is not the sender's");
    }
    return found;
  }

 private:
  static double seconds_since(Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  }

  /// Reads of arrivals in their order, up to one that is not yet written. Stops after one for which `is_last(word)`,
  /// and then returns true.
  template <class IsLast>
  bool read_arrivals(IsLast is_last) {
    while (came_.size() < arrivals_->size()) {
      const std::uint64_t word = Shared<std::uint64_t>((*arrivals_)[came_.size()]).load(cuda::memory_order_acquire);
      if (word == 0) return false;
      came_.push_back(word);
      if (is_last(word)) return true;
    }
    return false;
  }

  /// Waits until there are enough, or cannot be. With LT it is the host that finds out, and tells the kernels.
  End watch() {
    const Shared<End> end(end_[0]);
    for (;;) {
      const End seen = end.load(cuda::memory_order_acquire);
      const bool is_enough = read_arrivals([&](std::uint64_t word) { return lt_ && lt_->add(Arrival::number(word)); });
      if (is_enough || (lt_ && came_.size() == arrivals_->size())) {
        const End said = is_enough ? End::enough : End::hopeless;
        end.store(said, cuda::memory_order_release);
        return said;
      }
      if (seen != End::none) return seen;
      if (stream_.idle()) stream_.synchronize();  // throws if a kernel has failed
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  Words decode(Outcome& found) {
    const Plan& plan = found.plan;
    const std::size_t words = plan.chunk_bytes / sizeof(std::uint64_t);
    Words slots(chunks_->size()), buffer(plan.sources() * words);
    chunks_->copy_out(slots);
    if (lt_) {
      found.inactive = lt_->inactive();
      lt_->decode(
          words, [&](std::uint32_t i) { return &slots[Arrival::slot(came_[i]) * words]; }, buffer.data());
      return buffer;
    }
    if (plan.spare != 0) {
      const ReedSolomon code(plan.data_paths(), plan.spare);
      std::vector<std::vector<bool>> has_come(plan.groups(), std::vector<bool>(plan.paths));
      for (const std::uint64_t word : came_) {
        has_come[Arrival::slot(word) / plan.paths][Arrival::slot(word) % plan.paths] = true;
      }
      for (std::uint32_t group = 0; group < plan.groups(); ++group) {
        if (!code.decode(plan.chunk_bytes, chunks_of(plan, slots, group), has_come[group])) {
          throw std::logic_error("group " + std::to_string(group) + " is not whole");
        }
      }
    }
    for (std::uint32_t i = 0; i < plan.sources(); ++i) {
      std::copy_n(&slots[plan.slot_of(i) * words], words, &buffer[i * words]);
    }
    return buffer;
  }

  const Options& options_;
  gpusock::Context context_{gpusock::Options::from_env()};
  gpusock::Listener listener_{};
  gpusock::Mapped<Plan> plan_{context_, 1};
  gpusock::Mapped<gpusock::Socket> sockets_{context_, kPathsMax};
  gpusock::Mapped<std::uint64_t> rates_{context_, kPathsMax};
  gpusock::Mapped<PathReport> reports_{context_, kPathsMax};
  gpusock::Mapped<Counters> counters_{context_, 1};
  gpusock::Mapped<End> end_{context_, 1};
  gpusock::Mapped<int> error_{context_, 1};
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> chunks_;
  std::optional<gpusock::DeviceBuffer<unsigned>> in_group_;
  std::optional<gpusock::Mapped<std::uint64_t>> arrivals_;
  std::optional<LtDecoder> lt_;
  Words came_;
  Clock::time_point began_;
  gpusock::Stream stream_{context_};
};

}  // namespace coded
