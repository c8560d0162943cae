// The kernels of apps/param_sync/training, as they are: blocks of one thread, and one layer of one node. How they meet
// resident lanes: executor.cpp.
#include "cases.hpp"
#include "world.hpp"

#include "apps/param_sync/arithmetic/step_board.cuh"
#include "apps/param_sync/publishing/snapshots.cuh"
#include "apps/param_sync/training/pool_words.cuh"
#include "apps/param_sync/training/step.cuh"

#include <cerrno>
#include <string>

namespace gpusock::model {
namespace {

namespace ps = param_sync;

/// A node whose layer waits for weights that do not come.
struct OneNode {
  OneNode() {
    state.exchange_count = 1;
    state.timeout_ns = 1'000'000;
    state.failed = &failed;
    state.failure = &failure;
    state.stop = &stop;
    state.exchanges = &words;
  }
  void await_weights() { run_block(0, 1, ps::wait_for_weights, state, 1); }

  ps::executor::ExchangeWords words = {};
  ps::FailureRecord<ps::Failure> failure;
  std::uint64_t failed = 0, stop = 0;
  ps::NodeState state;
};

/// Two blocks fail at the same time: one record is written, whole, and all waits end.
Case two_failures() {
  return {"param_sync.two_failures",
          [](Run& run) {
            auto& node = run.make<OneNode>();
            run.thread([&] { ps::fail(node.state, ps::FailureKind::send, 1, EPIPE); });
            run.thread([&] { ps::fail(node.state, ps::FailureKind::receive, 2, ECONNRESET); });
            run.thread([&] { node.await_weights(); });
            auto& got = run.make<ps::Failure>();
            run.thread([&] {
              while (!ps::is_recorded(node.failure)) give_way();
              got = node.failure.what;
            });
            run.at_end([&] { return std::to_string(got.rank) + " " + std::to_string(got.error); });
          },
          {"1 " + std::to_string(EPIPE), "2 " + std::to_string(ECONNRESET)},
          20'000};
}

/// The host ends the run: kernels that wait end, and none of them calls it a failure.
Case end_of_a_run() {
  return {"param_sync.the_host_ends_a_run",
          [](Run& run) {
            auto& node = run.make<OneNode>();
            run.thread([&] { node.await_weights(); });
            run.thread([&] { ps::end_waits(node.stop); });
            run.at_end([&] { return std::to_string(node.failed); });
          },
          {"0"}};
}

/// What a peer owes does not come: the wait's own time limit ends it, and the host hears why.
Case late_weights() {
  return {"param_sync.weights_that_are_late",
          [](Run& run) {
            auto& node = run.make<OneNode>();
            run.let_time_pass();
            run.thread([&] { node.await_weights(); });
            run.thread([&] {
              while (!ps::is_recorded(node.failure)) give_way();
              require(node.failure.what.kind == ps::FailureKind::late, "the record says so");
            });
            run.at_end([&] { return std::to_string(node.failure.what.error); });
          },
          {std::to_string(ETIMEDOUT)},
          20'000};
}

/// A kernel that opens connections hands a socket over to one that tells last words by it.
Case opened_socket() {
  struct Opening {
    std::int64_t socket = -1;
    int hello = 0;
  };
  return {"param_sync.a_socket_that_was_opened",
          [](Run& run) {
            auto& opening = run.make<Opening>();
            run.thread([&] {
              opening.hello = 1;
              ps::SharedSocket(opening.socket).set(7);
            });
            run.thread([&] {
              while (!ps::SharedSocket(opening.socket).is_open()) give_way();
              require(opening.hello == 1, "the hello was exchanged");
            });
            run.at_end([&] { return std::to_string(opening.socket); });
          },
          {"7"}};
}

/// The host looks at the losses of the steps that it was told of.
Case losses() {
  struct Steps {
    ps::StepBoard board{};
    float losses[2] = {};
    std::uint64_t seen = 0;
  };
  return {"param_sync.losses_of_steps",
          [](Run& run) {
            auto& steps = run.make<Steps>();
            run.thread([&] {
              for (int i = 0; i < 2; ++i) {
                steps.losses[i] = 1;
                steps.board.publish(static_cast<std::uint64_t>(i) + 1);
              }
            });
            run.thread([&] {
              steps.seen = steps.board.published();
              for (std::uint64_t i = 0; i < steps.seen; ++i) require(steps.losses[i] == 1, "the losses are there");
              while (steps.board.published() < 2) give_way();
              require(steps.losses[1] == 1, "and at last all of them");
            });
            run.at_end([&] { return std::to_string(steps.seen); });
          },
          {"0", "1", "2"}};
}

/// The host ends a node's connections once its last word was said: what the kernel did before has been done.
Case last_word() {
  struct Ending {
    std::uint64_t said = 0;
    int told = 0;
  };
  return {"param_sync.the_last_word_is_said",
          [](Run& run) {
            auto& node = run.make<Ending>();
            run.thread([&] {
              node.told = 1;
              ps::note_said(node.said);
            });
            run.thread([&] {
              while (!ps::has_said(node.said)) give_way();
              require(node.told == 1, "the peers were told");
            });
            run.at_end([&] { return std::to_string(node.told); });
          },
          {"1"}};
}

/// Two blocks use a layer's weights in a pool, in two steps: the stager copies those of the second step when both have
/// used those of the first one.
Case pool_of_device_memory() {
  struct Pool {
    std::uint64_t opened = 0, ended = 0;
    int weights = 0;
  };
  return {"param_sync.a_pool_of_device_memory",
          [](Run& run) {
            constexpr std::uint64_t kSteps = 2, kUsers = 2;
            auto& pool = run.make<Pool>();
            run.thread([&] {
              for (std::uint64_t step = 0; step < kSteps; ++step) {
                while (!ps::has_ends(pool.ended, kUsers * step)) give_way();
                pool.weights = static_cast<int>(step) + 1;
                ps::open_stay(pool.opened, step + 1);
              }
            });
            for (std::uint64_t block = 0; block < kUsers; ++block) {
              run.thread([&] {
                for (std::uint64_t step = 0; step < kSteps; ++step) {
                  while (!ps::has_opened(pool.opened, step + 1)) give_way();
                  require(pool.weights == static_cast<int>(step) + 1, "they are those of the step");
                  ps::note_end(pool.ended);
                }
              });
            }
            run.at_end([&] { return std::to_string(pool.ended); });
          },
          {"4"},
          20'000};
}

/// A training publishes weights, and a reader takes the newest ones: always a whole version, and no older one than
/// before. Where the only other slot is read, the training goes on without publishing.
Case snapshots() {
  struct Shared {
    std::uint64_t word = 0, versions[2] = {};
    float slots[2] = {};
    ps::Snapshots snapshots{&word, slots, versions, 1, 2};
    std::uint64_t seen = 0;
  };
  return {"param_sync.weights_for_readers",
          [](Run& run) {
            auto& shared = run.make<Shared>();
            run.thread([&] {
              for (std::uint64_t version = 1; version <= 3; ++version) {
                const int slot = shared.snapshots.begin_write();
                if (slot < 0) continue;
                shared.snapshots.of(slot)[0] = static_cast<float>(version);
                shared.versions[slot] = version;
                shared.snapshots.publish(slot);
              }
            });
            run.thread([&] {
              for (int turn = 0; turn < 2; ++turn) {
                const int slot = shared.snapshots.begin_read();
                const std::uint64_t version = shared.versions[slot];
                require(shared.snapshots.of(slot)[0] == static_cast<float>(version), "a version is whole");
                require(version >= shared.seen, "none is older than the one before");
                shared.seen = version;
                shared.snapshots.end_read(slot);
              }
            });
            run.at_end([&] { return std::to_string(shared.seen); });
          },
          {"0", "1", "2", "3"},
          20'000};
}

}  // namespace

std::vector<Case> param_sync_cases() {
  return {two_failures(), end_of_a_run(), late_weights(),          opened_socket(),
          losses(),       last_word(),    pool_of_device_memory(), snapshots()};
}

}  // namespace gpusock::model
