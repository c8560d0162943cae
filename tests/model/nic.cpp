// The queues of an mlx5 NIC (../support/mlx5) against a model of the NIC as another thread: it sees an entry and the
// bytes that the entry names once it sees the record, and the record once it sees the doorbell; and what is complete
// may be overwritten.
#include "cases.hpp"

#include "tests/support/mlx5/send_queue.hpp"
#include "tests/support/mlx5_nic.hpp"

#include <array>
#include <cstddef>
#include <string>

namespace gpusock::model {
namespace {

using test::Mlx5Nic;

constexpr std::uint32_t kBlocks = 2, kNumber = 9, kKey = 7;

struct Nic {
  Nic() {
    entries.fill(~std::uint64_t{0});
    completions.fill(~std::uint64_t{0});
  }

  std::array<std::uint64_t, kBlocks * rdma::mlx5::kBlockWords> entries, completions;
  std::uint64_t record = 0, doorbell = 0, completion_record = 0;
  std::uint64_t local = 0, remote = 0;  // plain
  rdma::mlx5::SendQueue queue{{entries.data(), kBlocks, &record, &doorbell, kNumber, 16}};
  rdma::mlx5::CompletionQueue done{{completions.data(), kBlocks, &completion_record}};
  Mlx5Nic nic{{reinterpret_cast<std::byte*>(entries.data()), kBlocks, &record, &doorbell, kNumber,
               reinterpret_cast<std::byte*>(completions.data()), kBlocks, &completion_record},
              {{kKey, 0, reinterpret_cast<std::byte*>(&local), 8}},
              {{kKey, 0, reinterpret_cast<std::byte*>(&remote), 8}}};

  void serve(std::uint64_t until) {
    while (nic.executed() != until) {
      if (!nic.step()) give_way();
      require(nic.error() == nullptr, nic.error() == nullptr ? "" : nic.error());
      if (nic.error() != nullptr) return;
    }
  }
  /// Waits for all that was posted.
  void wait() {
    rdma::mlx5::Completion completion;
    while (queue.completed() != queue.appended()) {
      while (done.poll(completion) == 0) give_way();
      require(queue.take(completion) == 0, "a completion is of what was posted");
    }
  }
};

/// The bytes of each write lie where those of the last one lay, and its entry in time where an earlier one did.
Case writes(bool eager) {
  return {eager ? "nic.it_looks_at_the_record_at_any_time" : "nic.it_looks_after_a_doorbell",
          [eager](Run& run) {
            auto& shared = run.make<Nic>();
            shared.nic.set_eager(eager);
            run.thread([&shared] {
              for (std::uint64_t i = 1; i <= 3; ++i) {
                shared.local = i;
                require(shared.queue.append({nullptr, 8, kKey, 0, kKey, false}, true) == 0, "there is room");
                shared.queue.ring();
                shared.wait();
              }
            });
            run.thread([&shared] { shared.serve(3); });
            run.at_end([&shared] { return std::to_string(shared.remote); });
          },
          {"3"}};
}

/// Two entries and two doorbells, which the NIC may see as one.
Case two_at_once() {
  return {"nic.two_writes_on_their_way",
          [](Run& run) {
            auto& shared = run.make<Nic>();
            run.thread([&shared] {
              for (const std::uint64_t value : {4, 5}) {
                require(shared.queue.append({&value, 8, 0, 0, kKey, true}, true) == 0, "there is room");
                shared.queue.ring();
              }
              shared.wait();
            });
            run.thread([&shared] { shared.serve(2); });
            run.at_end([&shared] { return std::to_string(shared.remote); });
          },
          {"5"}};
}

/// What an error's completion says is read before the NIC writes the next one there.
Case errors() {
  return {"nic.errors_are_read_before_they_are_overwritten",
          [](Run& run) {
            auto& shared = run.make<Nic>();
            run.thread([&shared] {
              for (std::uint16_t i = 0; i < 3; ++i) {
                while (!shared.nic.can_complete()) give_way();
                shared.nic.complete(Mlx5Nic::kFailed, i, static_cast<std::uint8_t>(i + 1), kNumber);
              }
            });
            run.thread([&shared] {
              rdma::mlx5::Completion completion;
              for (int i = 0; i < 3; ++i) {
                while (shared.done.poll(completion) == 0) give_way();
                require(completion.block == i && completion.syndrome == i + 1, "each error comes once, and whole");
              }
            });
          },
          {""}};
}

}  // namespace

std::vector<Case> nic_cases() { return {writes(false), writes(true), two_at_once(), errors()}; }

}  // namespace gpusock::model
