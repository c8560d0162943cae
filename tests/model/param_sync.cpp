// The kernels of apps/param_sync, as they are: blocks of one thread, one layer, and a step or two of one node. Its peer
// is bytes in rings, or a thread. Whoever reads weights or gradients that another block writes without an order between
// them races.
#include "cases.hpp"
#include "wires.hpp"
#include "world.hpp"

#include "apps/param_sync/training/mirror.cuh"
#include "apps/param_sync/training/push.cuh"
#include "apps/param_sync/training/step.cuh"
#include "apps/param_sync/arithmetic/step_board.cuh"

#include <cerrno>
#include <string>

namespace gpusock::model {
namespace {

namespace ps = param_sync;

/// Rank 0 of one node or two. The layer has one weight, which is this node's, and one bias, the last node's.
struct OneNode {
  explicit OneNode(int nodes, std::uint32_t tiles_per_block = 1) {
    state.net = wires.net();
    state.layout.layers = 1;
    state.layout.nodes = nodes;
    state.layout.layer[0] = {1, 1, 0, tiles_per_block};
    state.optimizer = {1, 0, 1};
    state.timeout_ns = 1'000'000;
    state.weights = weights;
    state.gradients = gradients;
    state.velocity = velocity;
    state.staging = staging;
    state.counters = counters;
    state.timing = &timing;
    state.push_sockets = push_sockets;
    state.serve_sockets = serve_sockets;
    state.failed = &failed;
    state.failure = &failure;
    state.stop = &stop;
    state.step_progress = &step_progress;
  }

  // Kernels, by one of their blocks.
  void backward(unsigned block, unsigned blocks) {
    run_block(block, blocks, ps::backward_and_push, state, 0, 0, &input, &delta, 1);
  }
  float forward(std::uint64_t clock) {
    float output = 0;
    run_block(0, 1, ps::forward_when_ready, state, 0, clock, &input, 1, &output, &waited_ns);
    return output;
  }
  void mirror() { run_block(0, 1, ps::mirror_weights, state, 1); }
  void serve() { run_block(0, 1, ps::serve_shards, state, 1); }
  void await_weights() { run_block(0, 1, ps::wait_for_weights, state, 1); }

  // The peer's.
  void send(Socket socket, ps::MessageKind kind, float value) {
    const ps::MessageHeader header{.kind = kind, .floats = 1};
    require(wires.net().send(kMe, socket, &header, sizeof header) == sizeof header, "a header is sent");
    require(wires.net().send(kMe, socket, &value, sizeof value) == sizeof value, "a float is sent");
  }
  float receive(Socket socket) {
    struct {
      ps::MessageHeader header;
      float value;
    } message{};
    constexpr std::size_t kBytes = sizeof message.header + sizeof message.value;
    require(wires.net().recv(kMe, socket, &message, kBytes, kWaitAll) == kBytes, "a message is received");
    return message.value;
  }

  Wires wires;
  Socket push_sockets[2] = {-1, wires.handles[0]}, serve_sockets[2] = {-1, wires.handles[2]};
  const Socket owners_end = wires.handles[1], workers_end = wires.handles[3];
  float weights[2] = {1, 1}, gradients[2] = {}, velocity[2] = {}, staging[4] = {};
  const float input = 1, delta = 1;
  ps::LayerCounters counters[1] = {};
  ps::Timing timing = {};
  ps::Failure failure;
  ps::StepProgressWords step_progress;
  std::uint64_t failed = 0, stop = 0, waited_ns = 0;
  ps::NodeState state;
  float before = 0, after = 0;
};

std::string told(float value) { return std::to_string(static_cast<int>(value)); }

/// Two blocks compute a gradient; the one that completes it applies it, and the next forward kernel waits for the
/// weights.
Case gradient_of_two_blocks() {
  return {"param_sync.a_gradient_of_two_blocks",
          [](Run& run) {
            auto& node = run.make<OneNode>(1);
            for (unsigned block = 0; block < 2; ++block) run.thread([&node, block] { node.backward(block, 2); });
            run.thread([&] { node.after = node.forward(1); });
            run.at_end([&] { return told(node.after); });
          },
          {"0"},  // 1 - 1 each
          20'000};
}

/// A whole step of one of two nodes, whose peer is as early as can be: also weights that come before their time are not
/// written while the last ones are in use.
Case whole_step() {
  return {"param_sync.a_whole_step",
          [](Run& run) {
            auto& node = run.make<OneNode>(2, 2u);
            node.send(node.workers_end, ps::MessageKind::gradients, 2);
            node.send(node.owners_end, ps::MessageKind::weights, 5);
            run.thread([&] {
              node.before = node.forward(0);
              node.backward(0, 1);
              node.after = node.forward(1);
            });
            run.thread([&] { node.mirror(); });
            run.thread([&] { node.serve(); });
            run.at_end([&] {
              return told(node.before) + " then " + told(node.after) + ", pushed " +
                     told(node.receive(node.owners_end)) + ", published " + told(node.receive(node.workers_end)) +
                     ", stands at " + std::to_string(node.step_progress.gathered[1]) + " " +
                     std::to_string(node.step_progress.pulled[1]) + " " + std::to_string(node.step_progress.pushing[1]);
            });
          },
          {"2 then 3, pushed 1, published -2, stands at 1 1 2"},  // 1 + 1; the weight is 1 - (1 + 2), and 5 the bias
          1'500};
}

/// How long a step communicates is counted from its own first push, and read before the next step's: whichever block
/// has the last part.
Case time_of_a_step() {
  return {"param_sync.the_time_of_a_step",
          [](Run& run) {
            auto& node = run.make<OneNode>(2);
            node.staging[2] = 2;  // the peer's gradient has come
            node.counters[0].arrived = 1;
            node.timing.first_push_ns = 1;  // the step before
            run.thread([&] {
              node.backward(0, 2);  // pushes
              node.await_weights();
              node.timing.first_push_ns = 2;  // the next step
            });
            run.thread([&] { node.backward(1, 2); });  // has the node's own part
            run.thread([&] { node.mirror(); });
            run.thread([&] {
              require(node.receive(node.owners_end) == 1, "the gradient is pushed");
              node.send(node.owners_end, ps::MessageKind::weights, 5);
            });
            run.at_end([&] { return std::to_string(node.timing.communicating_ns) + " ns"; });
          },
          {"0 ns"},  // time stands still
          1'500};
}

/// Two blocks fail at the same time: one record is written, whole, and all waits end.
Case two_failures() {
  return {"param_sync.two_failures",
          [](Run& run) {
            auto& node = run.make<OneNode>(2);
            run.thread([&] { ps::fail(node.state, ps::FailureKind::push, 1, EPIPE); });
            run.thread([&] { ps::fail(node.state, ps::FailureKind::pull, 2, ECONNRESET); });
            run.thread([&] { node.await_weights(); });
            auto& got = run.make<ps::Failure>();
            run.thread([&] {
              while (!ps::has_failed(node.failure)) give_way();
              got = node.failure;
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
            auto& node = run.make<OneNode>(2);
            run.thread([&] { node.await_weights(); });
            run.thread([&] { ps::end_waits(node.stop); });
            run.at_end([&] { return std::to_string(node.failed); });
          },
          {"0"}};
}

/// The host looks how far a node is while kernels run.
Case progress_of_a_node() {
  return {"param_sync.the_progress_of_a_node",
          [](Run& run) {
            auto& node = run.make<OneNode>(2, 2u);
            node.send(node.owners_end, ps::MessageKind::weights, 5);
            run.thread([&] { node.backward(0, 1); });
            run.thread([&] { node.mirror(); });
            run.thread([&] {
              while (ps::published(node.step_progress.pulled[1]) != 1) give_way();
            });
            run.at_end([&] { return std::to_string(node.failed); });
          },
          {"0"},
          1'000};
}

/// What a peer owes does not come: the wait's own time limit ends it, and the host hears why.
Case late_weights() {
  return {"param_sync.weights_that_are_late",
          [](Run& run) {
            auto& node = run.make<OneNode>(2);
            run.let_time_pass();
            run.thread([&] { node.await_weights(); });
            run.thread([&] {
              while (!ps::has_failed(node.failure)) give_way();
              require(node.failure.kind == ps::FailureKind::late, "the record says so");
            });
            run.at_end([&] { return std::to_string(node.failure.error); });
          },
          {std::to_string(ETIMEDOUT)},
          20'000};
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

}  // namespace

std::vector<Case> param_sync_cases() {
  return {gradient_of_two_blocks(), whole_step(),         time_of_a_step(), two_failures(),
          end_of_a_run(),           progress_of_a_node(), late_weights(),   losses()};
}

}  // namespace gpusock::model
