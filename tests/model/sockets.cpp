// The socket table (socket_table/socket_table.hpp) with everybody who works on it: callers that open, use and close
// sockets (gpusock/detail), and the proxy that serves them (host_proxy), as they are.
#include "cases.hpp"
#include "world.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

namespace gpusock::model {
namespace {

/// "ok" for a handle or count, else the error's name.
std::string outcome(std::int64_t result) {
  switch (-result) {
    case EMFILE:
      return "EMFILE";
    case ECONNREFUSED:
      return "ECONNREFUSED";
    case EBADF:
      return "EBADF";
    case EPIPE:
      return "EPIPE";
    case ETIMEDOUT:
      return "ETIMEDOUT";
    case ECANCELED:
      return "ECANCELED";
    case ECONNRESET:
      return "ECONNRESET";
    case EINVAL:
      return "EINVAL";
    default:
      return result < 0 ? "errno " + std::to_string(-result) : std::to_string(result);
  }
}

struct Results : World {
  using World::World;
  std::string of[4];
};

/// Two callers want the one socket there is; the peer refuses. ProxySlots are granted, opened, failed, closed and
/// granted again.
Case open_that_fails() {
  return {"sockets.an_open_that_fails",
          [](Run& run) {
            auto& world = run.make<Results>();
            world.network.refuses = true;
            for (int i = 0; i < 2; ++i) {
              run.thread([&world, i] { world.of[i] = outcome(world.net().connect(kMe, somewhere())); });
            }
            run.server([&] { world.step(); });
            run.at_end([&] { return std::min(world.of[0], world.of[1]) + " " + std::max(world.of[0], world.of[1]); });
          },
          {"ECONNREFUSED ECONNREFUSED", "ECONNREFUSED EMFILE"},
          3'000};
}

/// Bytes go out and come back, and the next connection on the same slot begins where this one ended.
Case echo(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Results>(1u, looks);
            world.network.echoes = true;
            run.thread([&] {
              const Net net = world.net();
              const Socket socket = net.connect(kMe, somewhere());
              require(socket >= 0, "the socket opens");
              char bytes[2] = {'a', 'b'}, back[2] = {};
              require(net.send(kMe, socket, bytes, 2) == 2, "two bytes are sent");
              require(net.recv(kMe, socket, back, 2, kWaitAll) == 2, "two bytes are received");
              require(back[0] == 'a' && back[1] == 'b', "they are what was sent");
              require(net.close(kMe, socket) == 0, "it closes");
            });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.network.wires.at(0)->sent + (world.network.wires[0]->gone ? " gone" : ""); });
          },
          {"ab gone"},
          3'000};
}

/// A socket that one thread opens and others use: they wait until it is there, and no order but that is given.
struct Shared : Results {
  using Results::Results;

  void open() { publish(net().connect(kMe, somewhere())); }
  void publish(Socket socket) {
    ringbuf::DeviceAtomics::Ref<std::uint64_t>(handle).store(
        static_cast<std::uint64_t>(static_cast<std::int64_t>(socket)), ringbuf::kRelease);
  }
  Socket socket() {
    std::uint64_t word = 0;
    while ((word = ringbuf::DeviceAtomics::Ref<std::uint64_t>(handle).load(ringbuf::kAcquire)) == 0) give_way();
    return static_cast<Socket>(word);
  }
  bool is_open() { return ringbuf::DeviceAtomics::Ref<std::uint64_t>(handle).load(ringbuf::kRelaxed) != 0; }

  std::uint64_t handle = 0;
};

/// One sends while the other closes and opens again, on the same slot: what is sent on the first connection never comes
/// out of the second one.
Case send_meets_close() {
  return {"sockets.a_send_meets_a_close",
          [](Run& run) {
            auto& world = run.make<Shared>();
            run.thread([&] {
              world.open();
              world.of[0] = outcome(world.net().send(kMe, world.socket(), "ab", 2));
            });
            run.thread([&] {
              const Net net = world.net();
              require(net.close(kMe, world.socket()) == 0, "the first close closes");
              Socket again = 0;
              while ((again = net.connect(kMe, somewhere())) == -EMFILE) give_way();
              require(net.send(kMe, again, "z", 1) == 1, "the slot's next connection works");
              require(net.close(kMe, again) == 0, "and closes");
            });
            run.server([&] { world.step(); });
            run.at_end([&] {
              return world.of[0] + " " + world.network.wires.at(0)->sent + " " + world.network.wires.at(1)->sent;
            });
          },
          {"2 ab z", "EBADF  z"},
          1'000};
}

/// Two callers ask for different things at the same time, and one of them closes: both requests reach the proxy, and
/// nothing is asked of the slot after the close.
Case requests_meet() {
  return {"sockets.requests_meet",
          [](Run& run) {
            auto& world = run.make<Shared>();
            run.thread([&] {
              world.open();
              world.of[0] = outcome(world.net().shutdown(kMe, world.socket(), Shutdown::write));
            });
            run.thread([&] {
              const Net net = world.net();
              world.of[1] = outcome(net.setsockopt(kMe, world.socket(), SocketOption::linger, 7));
              require(net.close(kMe, world.socket()) == 0, "the close closes");
              world.of[2] = outcome(net.close(kMe, world.socket()));
              Socket again = 0;
              while ((again = net.connect(kMe, somewhere())) == -EMFILE) give_way();
              require(net.send(kMe, again, "z", 1) == 1,
                      "what was asked of one connection is not asked of the slot's next");
              require(net.close(kMe, again) == 0, "which closes as well");
            });
            run.server([&] { world.step(); });
            run.at_end([&] {
              require(world.network.wires.at(0)->gone, "the connection ends");
              return world.of[0] + " " + world.of[1] + " " + world.of[2] +
                     (world.network.wires[0]->ended ? " ended" : "");
            });
          },
          {"0 0 EBADF ended", "EBADF 0 EBADF ended"},
          1'000};
}

/// Two accept on one listener, which gets one connection, while a third closes it.
Case accept_meets_close(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Shared>(1u, looks);
            world.network.incoming = 1;
            world.network.greeting = "hi";
            run.thread([&] {
              world.publish(world.net().listen(kMe, somewhere()));
              world.of[2] = outcome(world.net().close(kMe, world.socket()));
            });
            for (int i = 0; i < 2; ++i) {
              run.thread([&world, i] {
                const Net net = world.net();
                const Socket socket = net.accept(kMe, world.socket());
                char bytes[2] = {};
                world.of[i] = socket < 0 ? outcome(socket) : "accepted";
                if (socket < 0) return;
                const std::int64_t got = net.recv(kMe, socket, bytes, 2, kWaitAll);
                require(got == -ECONNRESET || (got == 2 && bytes[0] == 'h' && bytes[1] == 'i'),
                        "an accepted connection works");
                require(net.close(kMe, socket) == 0, "and closes");
              });
            }
            run.server([&] { world.step(); });
            run.at_end([&] {
              return std::min(world.of[0], world.of[1]) + " " + std::max(world.of[0], world.of[1]) + " " + world.of[2];
            });
          },
          {"EBADF EBADF 0", "EBADF accepted 0"},
          1'000};
}

/// What was accepted before the listener was closed goes on, though the proxy may hear of both at once.
Case accepted_before_the_close() {
  return {"sockets.accepted_before_the_close",
          [](Run& run) {
            auto& world = run.make<Shared>();
            world.network.incoming = 1;
            world.network.greeting = "hi";
            run.thread([&] {
              const Net net = world.net();
              const Socket listener = net.listen(kMe, somewhere());
              const Socket socket = net.accept(kMe, listener);
              require(socket >= 0 && net.close(kMe, listener) == 0, "one is accepted, and the listener closed");
              char bytes[2] = {};
              require(net.recv(kMe, socket, bytes, 2, kWaitAll) == 2 && net.send(kMe, socket, "z", 1) == 1, "it works");
              require(net.close(kMe, socket) == 0, "and closes");
            });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.network.wires.at(0)->sent; });
          },
          {"z"},
          1'000};
}

/// A connection that came while its listener was closed is not the next listener's.
Case left_to_the_next_listener() {
  return {"sockets.left_to_the_next_listener",
          [](Run& run) {
            auto& world = run.make<Shared>();
            world.network.incoming = 1;
            run.let_time_pass();
            run.thread([&] {
              const Net net = world.net();
              require(net.close(kMe, net.listen(kMe, somewhere())) == 0, "a listener closes");
              Socket listener = 0;
              while ((listener = net.listen(kMe, somewhere())) == -EMFILE) give_way();
              const Socket socket = net.accept(kMe, listener, Deadline::now());
              if (socket >= 0) require(net.send(kMe, socket, "z", 1) == 1, "what is accepted works");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

/// A listener closes while the proxy hands connections to it: their sockets come back, and another listener's
/// connection gets one.
Case closes_while_the_proxy_pushes() {
  return {"sockets.a_listener_closes_while_the_proxy_pushes",
          [](Run& run) {
            auto& world = run.make<Shared>(2);
            world.network.incoming = 3;
            run.thread([&] {
              const Net net = world.net();
              const Socket busy = net.listen(kMe, somewhere(), 2);
              const Socket other = net.listen(kMe, somewhere(), 2);
              require(busy >= 0 && other >= 0, "both listen");
              require(net.close(kMe, busy) == 0, "one closes");
              const Socket socket = net.accept(kMe, other);
              require(socket >= 0 && net.send(kMe, socket, "z", 1) == 1,
                      "the other one accepts, and the connection works");
              require(net.close(kMe, socket) == 0, "and closes");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

/// Two listens come too late in a row, though the proxy has opened their ports and taken connections: another listener
/// gets one.
Case listens_too_late() {
  return {"sockets.listens_that_come_too_late",
          [](Run& run) {
            auto& world = run.make<Shared>(2);
            world.network.incoming = 3;
            run.let_time_pass();
            run.thread([&] {
              const Net net = world.net();
              const Socket other = net.listen(kMe, somewhere(), 2);
              require(other >= 0, "one listens");
              for (int i = 0; i < 2; ++i) {
                const Socket late = net.listen(kMe, somewhere(), 2, Deadline::after_ns(1'000'000));
                require(late >= 0 || late == -ETIMEDOUT || late == -EMFILE, "the others listen, or come too late");
                if (late >= 0) require(net.close(kMe, late) == 0, "or are closed");
              }
              const Socket socket = net.accept(kMe, other);
              require(socket >= 0 && net.send(kMe, socket, "z", 1) == 1, "what is accepted works");
              require(net.close(kMe, socket) == 0, "and closes");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

/// An accept that is late for a listener takes nothing from the one that has its slot and queue next.
Case late_accept() {
  return {"sockets.a_late_accept",
          [](Run& run) {
            auto& world = run.make<Shared>();
            world.network.incoming = 1;
            world.network.served_from = 1;
            run.thread([&] {
              const Net net = world.net();
              world.publish(net.listen(kMe, somewhere()));
              require(net.close(kMe, world.socket()) == 0, "the first listener is closed");
              Socket listener = 0;
              while ((listener = net.listen(kMe, somewhere())) == -EMFILE) give_way();
              const Socket socket = net.accept(kMe, listener);
              require(socket >= 0, "the second one accepts");
              require(net.close(kMe, socket) == 0, "and the connection closes");
            });
            run.thread([&] { world.of[0] = outcome(world.net().accept(kMe, world.socket())); });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.of[0]; });
          },
          {"EBADF"},
          1'000};
}

/// A connection breaks with bytes that are neither sent nor received: the slot's next one begins with none of them.
Case broken_connection() {
  return {"sockets.nothing_is_left_to_the_next",
          [](Run& run) {
            auto& world = run.make<Results>();
            world.network.greeting = "hi";
            world.network.first_breaks = true;
            run.thread([&] {
              const Net net = world.net();
              char bytes[2] = {};
              Socket socket = net.connect(kMe, somewhere());
              require(net.recv(kMe, socket, bytes, 1) == 1, "one of two bytes is received");
              require(net.send(kMe, socket, "ab", 2) == 2, "two are sent, as it seems");
              require(net.close(kMe, socket) == 0, "the first connection is closed");
              while ((socket = net.connect(kMe, somewhere())) == -EMFILE) give_way();
              SocketStats stats;
              require(
                  net.stats(socket, stats) == 0 && stats.bytes_sent + stats.bytes_unsent + stats.bytes_received == 0,
                  "the next one begins at zero");
              require(net.recv(kMe, socket, bytes, 2, kWaitAll) == 2 && bytes[0] == 'h' && bytes[1] == 'i',
                      "it receives its own bytes");
              require(net.send(kMe, socket, "z", 1) == 1 && net.close(kMe, socket) == 0, "and sends its own");
            });
            run.server([&] { world.step(); });
            run.at_end([&] { return world.network.wires.at(0)->sent + "," + world.network.wires.at(1)->sent; });
          },
          {",z"},
          1'000};
}

/// Whatever waits ends when the context does.
Case cancel(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Shared>(1u, looks);
            run.thread([&] {
              char byte = 0;
              const Net net = world.net();
              const Socket socket = net.connect(kMe, somewhere());
              world.of[0] = socket < 0 ? outcome(socket) : "recv " + outcome(net.recv(kMe, socket, &byte, 1));
            });
            run.thread([&] {
              const Net net = world.net();
              const Socket listener = net.listen(kMe, somewhere());
              world.of[1] = listener < 0 ? outcome(listener) : "accept " + outcome(net.accept(kMe, listener));
            });
            run.thread([&] { world.cancel(); });
            run.server([&] { world.step(); });
            run.at_end([&] {
              for (int i = 0; i < 2; ++i) {
                require(world.of[i].find("ECANCELED") != std::string::npos || world.of[i] == "EMFILE",
                        "every call ends");
              }
              return world.of[0] + ", " + world.of[1];
            });
          },
          {"ECANCELED, ECANCELED", "recv ECANCELED, ECANCELED", "ECANCELED, accept ECANCELED", "recv ECANCELED, EMFILE",
           "EMFILE, accept ECANCELED", "EMFILE, ECANCELED", "ECANCELED, EMFILE"},
          1'000};
}

/// The proxy stands still once the socket is open: what waits ends all the same.
Case cancel_without_proxy(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Shared>(1u, looks);
            run.thread([&world] {
              world.open();
              char byte = 0;
              world.of[0] = outcome(world.net().recv(kMe, world.socket(), &byte, 1));
            });
            run.thread([&world] {
              world.socket();
              world.cancel();
            });
            run.server([&world] {
              if (!world.is_open()) world.step();
            });
            run.at_end([&world] { return world.of[0]; });
          },
          {"ECANCELED"},
          1'000};
}

/// The proxy has never come to it.
Case cancel_of_an_open(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Results>(1u, looks);
            run.thread([&world] { world.of[0] = outcome(world.net().connect(kMe, somewhere())); });
            run.thread([&world] { world.cancel(); });
            run.at_end([&world] { return world.of[0]; });
          },
          {"ECANCELED"},
          1'000};
}

/// So does a wait for no socket, which looks at no status.
Case cancel_of_a_poll(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Shared>(1u, looks);
            run.thread([&] { world.of[0] = outcome(world.net().poll(kMe, nullptr, 0, Deadline::never())); });
            run.thread([&] { world.cancel(); });
            run.at_end([&] { return world.of[0]; });
          },
          {"ECANCELED"},
          1'000};
}

/// A deadline may pass at any moment: the call then says so, or has what it waited for; and what was opened ends in
/// order.
Case deadline(const std::string& name, const std::string& greeting, std::vector<std::string> outcomes) {
  return {"sockets." + name,
          [greeting](Run& run) {
            auto& world = run.make<Results>();
            world.network.greeting = greeting;
            run.let_time_pass();
            run.thread([&] {
              const Net net = world.net();
              const Socket socket = net.connect(kMe, somewhere(), Deadline::after_ns(1'000'000));
              world.of[0] = socket < 0 ? outcome(socket) : "open";
              if (socket < 0) return;
              char byte = 0;
              world.of[1] = outcome(net.recv(kMe, socket, &byte, 1, 0, Deadline::after_ns(1'000'000)));
              require(world.of[1] != "1" || byte == 'x', "what was received is what was sent");
              require(net.close(kMe, socket) == 0, "it closes");
            });
            run.server([&] { world.step(); });
            run.at_end([&] {
              require(world.network.wires.empty() || world.network.wires[0]->gone, "the connection ends");
              return world.of[0] + " " + world.of[1];
            });
          },
          std::move(outcomes), 1'000};
}

/// The end of a stream comes behind its last byte; poll and stats may look at it from aside.
Case end_of_stream(const std::string& name, Looks looks) {
  return {"sockets." + name,
          [looks](Run& run) {
            auto& world = run.make<Shared>(1u, looks);
            world.network.greeting = "xy";
            world.network.ends = true;
            run.thread([&] {
              world.open();
              const Net net = world.net();
              char bytes[4] = {};
              const Socket socket = world.socket();
              require(net.recv(kMe, socket, bytes, 4, kWaitAll) == 2, "all that was sent comes before the end");
              require(bytes[0] == 'x' && bytes[1] == 'y', "as it was sent");
              require(net.recv(kMe, socket, bytes, 4) == 0, "then the end");
            });
            run.thread([&] {
              const Net net = world.net();
              PollEntry entry{world.socket(), kPollIn, 0};
              require(net.poll(kMe, &entry, 1, Deadline::never()) == 1, "poll sees the bytes or the end");
              SocketStats stats;
              require(net.stats(world.socket(), stats) == 0 && stats.bytes_received <= 2,
                      "stats says nothing that cannot be");
            });
            run.server([&] { world.step(); });
          },
          {""},
          1'000};
}

}  // namespace

std::vector<Case> socket_cases() {
  return {open_that_fails(),
          echo("bytes_come_back", Looks::often),
          echo("bytes_come_back_with_few_looks", Looks::seldom),
          echo("bytes_come_back_to_the_device", Looks::on_device),
          send_meets_close(),
          requests_meet(),
          accept_meets_close("accept_meets_close", Looks::often),
          accept_meets_close("accept_meets_close_on_the_device", Looks::on_device),
          accepted_before_the_close(),
          left_to_the_next_listener(),
          closes_while_the_proxy_pushes(),
          listens_too_late(),
          late_accept(),
          broken_connection(),
          cancel("cancel_ends_every_wait", Looks::often),
          cancel("cancel_ends_every_wait_with_few_looks", Looks::seldom),
          cancel("cancel_ends_every_wait_on_the_device", Looks::on_device),
          cancel_without_proxy("cancel_needs_no_proxy", Looks::often),
          cancel_without_proxy("cancel_needs_no_proxy_with_few_looks", Looks::seldom),
          cancel_without_proxy("cancel_needs_no_proxy_on_the_device", Looks::on_device),
          cancel_of_an_open("cancel_ends_an_open_without_proxy", Looks::often),
          cancel_of_an_open("cancel_ends_an_open_without_proxy_on_the_device", Looks::on_device),
          cancel_of_a_poll("cancel_ends_a_poll_of_nothing", Looks::often),
          cancel_of_a_poll("cancel_ends_a_poll_on_the_device", Looks::on_device),
          deadline("a_deadline_passes", "", {"ETIMEDOUT ", "open ETIMEDOUT"}),
          deadline("a_deadline_may_pass", "x", {"ETIMEDOUT ", "open 1"}),
          end_of_stream("the_end_comes_last", Looks::often),
          end_of_stream("the_end_comes_last_with_few_looks", Looks::seldom),
          end_of_stream("the_end_comes_last_on_the_device", Looks::on_device)};
}

}  // namespace gpusock::model
