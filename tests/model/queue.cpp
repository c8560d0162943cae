// The queue of handles (ringbuf/handle_queue.hpp): each handle is taken once, by somebody who then sees what was
// prepared for it, and whose entry is not overwritten before.
#include "cases.hpp"

#include "ringbuf/handle_queue.hpp"

#include <algorithm>
#include <string>

namespace gpusock::model {
namespace {

struct Queue {
  explicit Queue(std::uint64_t capacity = 2)
      : producer(entries, capacity, &published), consumer(entries, capacity, &published, &taken) {}

  void push(std::int32_t handle) {
    prepared[handle] = handle;
    producer.push(handle);
  }

  /// -1 or a handle, whose preparation is there.
  std::int32_t take() {
    const std::int32_t handle = consumer.try_take();
    if (handle >= 0) use(handle);
    return handle;
  }

  void use(std::int32_t handle) {
    require(handle < 4, "what is taken was pushed");
    if (handle >= 4) return;
    require(prepared[handle] == handle, "what is taken was prepared");
    prepared[handle] = -1;  // a second taker would race with this one
  }

  /// Gives a handle back to the producer, as a request on its socket does.
  void give_back(int turn) { ringbuf::SystemAtomics::Ref<std::uint64_t>(returned[turn]).store(1, ringbuf::kRelease); }
  /// What the proxy and callers do between two steps that matter here.
  void do_something_else() { came_back(3); }
  bool came_back(int turn) {
    return ringbuf::SystemAtomics::Ref<std::uint64_t>(returned[turn]).load(ringbuf::kAcquire) != 0;
  }

  std::uint64_t entries[2] = {};
  std::uint64_t published = 0, taken = 0;
  ringbuf::HandleProducer<> producer;
  ringbuf::HandleConsumer<> consumer;
  std::int32_t prepared[4] = {};  // plain
  std::uint64_t returned[4] = {};
  std::int32_t got[3] = {-1, -1, -1};
};

std::string found(const Queue& queue, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += queue.got[i] < 0 ? "-" : std::to_string(queue.got[i]);
  return text;
}

/// Two are pushed, and three look once each.
Case three_takers() {
  return {"queue.three_takers_of_two",
          [](Run& run) {
            auto& queue = run.make<Queue>();
            run.thread([&] {
              queue.push(1);
              queue.push(2);
            });
            for (int i = 0; i < 3; ++i) run.thread([&queue, i] { queue.got[i] = queue.take(); });
            run.at_end([&] { return found(queue, 3); });
          },
          {"---", "1--", "-1-", "--1", "12-", "21-", "1-2", "2-1", "-12", "-21"}};
}

/// An entry is used again: two handles through one entry, the second pushed once the first has come back.
Case an_entry_is_used_again() {
  return {"queue.an_entry_is_used_again",
          [](Run& run) {
            auto& queue = run.make<Queue>(1u);
            run.thread([&] {
              queue.push(0);
              while (!queue.came_back(0)) give_way();
              queue.push(1);
            });
            for (int i = 0; i < 2; ++i) {
              run.thread([&queue, i] {
                while ((queue.got[i] = queue.take()) < 0) give_way();
                if (queue.got[i] == 0) queue.give_back(0);
              });
            }
            run.at_end([&] { return found(queue, 2); });
          },
          {"01", "10"}};
}

/// As above, with an entry between them: who takes the first handle is still at it when the second one has come back,
/// and the entry of the first is another's. What it takes is the first all the same: an entry is read before it is
/// claimed.
Case a_slow_taker() {
  return {"queue.a_slow_taker",
          [](Run& run) {
            auto& queue = run.make<Queue>();
            run.thread([&] {
              queue.push(0);
              queue.push(1);
              while (!queue.came_back(1)) give_way();
              queue.push(2);
            });
            for (int i = 0; i < 2; ++i) {
              run.thread([&queue, i] {
                while ((queue.got[i] = queue.take()) < 0) give_way();
                if (queue.got[i] == 1) queue.give_back(1);
              });
            }
            run.at_end([&] { return found(queue, 2); });
          },
          {"01", "10"}};
}

/// What an earlier listener has left is skipped: it may be overwritten, and only what came later is taken.
Case leftovers() {
  return {"queue.leftovers_are_skipped",
          [](Run& run) {
            auto& queue = run.make<Queue>();
            run.thread([&] {
              queue.producer.push(0);  // nobody is to take it
              queue.do_something_else();
              queue.give_back(0);  // as the listener's status does: says from where on the queue is its
              queue.push(1);
              queue.push(2);
            });
            run.thread([&] {
              while (!queue.came_back(0)) give_way();
              queue.consumer.skip_to(1);
              queue.give_back(1);
              while ((queue.got[0] = queue.take()) < 0) give_way();
            });
            run.thread([&] {
              while (!queue.came_back(1)) give_way();
              while ((queue.got[1] = queue.take()) < 0) give_way();
            });
            run.at_end([&] { return found(queue, 2); });
          },
          {"12", "21"}};
}

/// A look from aside (poll): what it has seen can be taken, unless another took it.
Case emptiness() {
  return {"queue.a_look_at_whether_it_is_empty",
          [](Run& run) {
            auto& queue = run.make<Queue>();
            run.thread([&] { queue.push(1); });
            run.thread([&] {
              const bool empty = queue.consumer.empty();
              queue.got[0] = queue.take();
              require(empty || queue.got[0] == 1, "what poll has seen accept finds");
              if (queue.got[0] == 1) require(queue.consumer.empty(), "what was taken is gone");
            });
            run.at_end([&] { return found(queue, 1); });
          },
          {"-", "1"}};
}

}  // namespace

std::vector<Case> queue_cases() {
  return {three_takers(), an_entry_is_used_again(), a_slow_taker(), leftovers(), emptiness()};
}

}  // namespace gpusock::model
