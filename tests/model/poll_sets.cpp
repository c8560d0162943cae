// Poll sets (socket_table/poll_set.hpp): callers that watch, wait, wake, close and open again, and the proxy that
// writes what has changed. An event that is lost leaves its waiter without an end.
#include "cases.hpp"
#include "world.hpp"

#include <cerrno>
#include <string>

namespace gpusock::model {
namespace {

struct Sets : World {
  using World::World;

  void publish(PollSet set) {
    ringbuf::DeviceAtomics::Ref<std::uint64_t>(handle).store(static_cast<std::uint64_t>(set), ringbuf::kRelease);
  }
  PollSet set() {
    std::uint64_t word = 0;
    while ((word = ringbuf::DeviceAtomics::Ref<std::uint64_t>(handle).load(ringbuf::kAcquire)) == 0) give_way();
    return static_cast<PollSet>(word);
  }
  PollEvent wait(PollSet set, Deadline deadline = Deadline::never()) {
    PollEvent event;
    event.events = 0;
    result = net().wait(kMe, set, &event, 1, deadline);
    require(result == (event.events != 0 ? 1 : 0), "a wait has one event, or none");
    return event;
  }

  std::uint64_t handle = 0;
  Socket socket = -1;
  std::uint64_t work = 0;
  int result = 0;
  std::string of[3];
};

std::string name_of(int result) {
  return result == -EBADF ? "EBADF" : result == -EBUSY ? "EBUSY" : std::to_string(result);
}

/// Each byte that comes back is an event, whenever it comes: also while the last entry is not taken yet.
Case echoes(const std::string& name, int events, Looks looks = Looks::often) {
  return {"poll_sets." + name,
          [events, looks](Run& run) {
            auto& world = run.make<Sets>(1u, looks);
            world.network.echoes = true;
            run.thread([&world, events] {
              const Net net = world.net();
              const PollSet set = net.open_set(kMe);
              const Socket socket = net.connect(kMe, somewhere());
              require(set >= 0 && socket >= 0, "both open");
              require(net.watch(kMe, set, socket, events, 7) == 0, "it is watched");
              for (int i = 0; i < 3; ++i) {
                require(net.send(kMe, socket, "a", 1) == 1, "a byte is sent");
                const PollEvent event = world.wait(set);
                require(event.tag == 7 && event.socket == socket && (event.events & kPollIn) != 0, "its event");
                char byte = 0;
                require(net.recv(kMe, socket, &byte, 1, kDontWait) == 1, "it is there");
              }
              require(net.close(kMe, socket) == 0 && net.close_set(kMe, set) == 0, "both close");
            });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.network.wires.at(0)->sent; });
          },
          {"aaa"},
          1'000};
}

/// One thread waits; the other one watches, and has bytes come.
Case watched_by_another() {
  return {"poll_sets.watched_by_another_thread",
          [](Run& run) {
            auto& world = run.make<Sets>();
            world.network.echoes = true;
            run.thread([&] {
              const PollSet set = world.net().open_set(kMe);
              world.publish(set);
              const PollEvent event = world.wait(set);
              require(event.tag == 5 && event.events == kPollIn, "the other's socket has an event");
            });
            run.thread([&] {
              const Net net = world.net();
              const Socket socket = net.connect(kMe, somewhere());
              const PollSet set = world.set();
              require(net.watch(kMe, set, socket, kPollIn | kPollEdge, 5) == 0, "it is watched");
              require(net.send(kMe, socket, "a", 1) == 1, "a byte is sent");
            });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.network.wires.at(0)->sent; });
          },
          {"a"},
          1'000};
}

/// Two threads watch one socket at the same time: the set has one of the two watches, whole.
Case watched_by_two() {
  return {"poll_sets.watched_by_two_threads",
          [](Run& run) {
            auto& world = run.make<Sets>();
            world.network.greeting = "x";
            run.thread([&] {
              const Net net = world.net();
              const PollSet set = net.open_set(kMe);
              world.socket = net.connect(kMe, somewhere());
              world.publish(set);
              require(net.watch(kMe, set, world.socket, kPollIn | kPollEdge, 1) == 0, "it is watched");
              const PollEvent event = world.wait(set);
              require(event.events == kPollIn && (event.tag == 1 || event.tag == 2), "by one of the two");
            });
            run.thread([&] {
              const PollSet set = world.set();
              require(world.net().watch(kMe, set, world.socket, kPollIn | kPollEdge, 2) == 0, "it is watched");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

/// A listener and its connection in one set, whose ring has room for one entry: the other one waits for it.
Case ring_is_full() {
  return {"poll_sets.the_ring_is_full",
          [](Run& run) {
            auto& world = run.make<Sets>();
            world.network.incoming = 1;
            world.network.greeting = "hi";
            world.network.ends = true;
            run.thread([&] {
              const Net net = world.net();
              const PollSet set = net.open_set(kMe);
              const Socket listener = net.listen(kMe, somewhere());
              require(net.watch(kMe, set, listener, kPollIn | kPollEdge, 1) == 0, "the listener is watched");
              require(world.wait(set).tag == 1, "a connection comes");
              const Socket socket = net.accept(kMe, listener);
              require(net.watch(kMe, set, socket, kPollIn | kPollEdge, 2) == 0, "and is watched");
              char bytes[2] = {};
              std::int64_t got = 0;
              int seen = 0;
              while ((got = net.recv(kMe, socket, bytes, 2, kDontWait)) != 0) {
                if (got > 0) seen += static_cast<int>(got);
                if (got == -EAGAIN) require(world.wait(set).tag == 2, "its events follow");
              }
              require(seen == 2, "the greeting, then the end");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

/// What was written before a wake is there for the one that was woken. On the device the first waker is a host thread.
Case wakes(int wakers, Looks looks = Looks::often) {
  const bool on_device = looks == Looks::on_device;
  return {"poll_sets.wakes_of_" + std::to_string(wakers) + (on_device ? "_on_the_device" : ""),
          [wakers, looks, on_device](Run& run) {
            auto& world = run.make<Sets>(2u, looks);
            for (int i = 0; i < wakers; ++i) {
              run.thread([&world, i, on_device] {
                const PollSet set = world.set();
                if (i == 0) world.work = 42;
                const bool by_host = on_device && i == 0;
                require((by_host ? world.wake_by_host(set) : world.net().wake(kMe, set)) == 0, "it is woken");
              });
            }
            run.thread([&world, wakers] {
              const PollSet set = world.net().open_set(kMe);
              world.publish(set);
              std::uint64_t woken = 0;
              while (woken < static_cast<std::uint64_t>(wakers)) {
                const PollEvent event = world.wait(set);
                require(event.events == kPollWake && event.socket == -1, "woken");
                woken += event.tag;
              }
              require(woken == static_cast<std::uint64_t>(wakers), "as often as it was woken");
              require(world.work == 42, "the work is there");
            });
          },
          {""}};
}

/// A set is closed and its number opened again, while an old handle is used: what the groups keep in it passes from one
/// to the next, and nobody wakes the next one by the old handle.
Case reopened() {
  return {"poll_sets.closed_and_opened_again",
          [](Run& run) {
            auto& world = run.make<Sets>();
            run.let_time_pass();
            run.thread([&] {
              const Net net = world.net();
              world.publish(net.open_set(kMe));
              require(net.close_set(kMe, world.set()) == 0, "the first closes");
              PollSet again = 0;
              while ((again = net.open_set(kMe)) == -EMFILE) give_way();
              PollEvent event;
              const int result = net.wait(kMe, again, &event, 1, Deadline::now());
              require(result == 0, "the next one is its own");
              require(net.close_set(kMe, again) == 0, "and closes");
            });
            run.thread([&] {
              PollEvent event;
              world.of[0] = name_of(world.net().wait(kMe, world.set(), &event, 1, Deadline::now()));
            });
            run.thread([&] { world.of[1] = name_of(world.net().wake(kMe, world.set())); });
            run.at_end([&] { return world.of[0] + " " + world.of[1]; });
          },
          {"1 0", "EBADF 0", "EBADF EBADF"},
          5'000};
}

/// Two groups wait on one set: one at a time.
Case one_waits() {
  return {"poll_sets.one_waits_at_a_time",
          [](Run& run) {
            auto& world = run.make<Sets>();
            run.let_time_pass();
            run.thread([&] {
              world.publish(world.net().open_set(kMe));
              require(world.net().wake(kMe, world.set()) == 0, "it is woken");
              PollEvent event;
              world.of[0] = name_of(world.net().wait(kMe, world.set(), &event, 1, Deadline::now()));
            });
            run.thread([&] {
              PollEvent event;
              world.of[1] = name_of(world.net().wait(kMe, world.set(), &event, 1, Deadline::now()));
            });
            run.at_end([&] { return world.of[0] + " " + world.of[1]; });
          },
          {"0 1", "1 0", "1 EBUSY", "EBUSY 1"},
          5'000};
}

/// A watched socket is closed while another thread waits, and its slot is the next one's: that is in no set.
Case closed_while_watched() {
  return {"poll_sets.closed_while_watched",
          [](Run& run) {
            auto& world = run.make<Sets>();
            world.network.greeting = "x";
            run.thread([&] {
              const Net net = world.net();
              const PollSet set = net.open_set(kMe);
              world.publish(set);
              for (PollEvent event; event.events != kPollWake;) {
                event = world.wait(set);
                require(event.events == kPollWake || event.tag == 1, "the next socket is not watched");
              }
            });
            run.thread([&] {
              const Net net = world.net();
              const PollSet set = world.set();
              const Socket socket = net.connect(kMe, somewhere());
              require(net.watch(kMe, set, socket, kPollIn | kPollEdge, 1) == 0, "it is watched");
              require(net.close(kMe, socket) == 0, "and closed");
              require(net.watch(kMe, set, socket, kPollIn, 2) == -EBADF, "a closed one is not watched");
              Socket again = 0;
              while ((again = net.connect(kMe, somewhere())) == -EMFILE) give_way();
              char byte = 0;
              require(net.recv(kMe, again, &byte, 1) == 1, "the next one works");
              require(net.wake(kMe, set) == 0, "and that is all");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

}  // namespace

std::vector<Case> poll_set_cases() {
  return {echoes("every_byte_is_an_event", kPollIn),
          echoes("every_byte_is_an_edge", kPollIn | kPollEdge),
          watched_by_another(),
          watched_by_two(),
          ring_is_full(),
          wakes(1),
          wakes(2),
          echoes("every_byte_is_an_event_on_the_device", kPollIn, Looks::on_device),
          wakes(2, Looks::on_device),
          reopened(),
          one_waits(),
          closed_while_watched()};
}

}  // namespace gpusock::model
