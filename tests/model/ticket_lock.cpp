// The lock of a server's seats (gpusock/server/ticket_lock.cuh): what it guards has one user at a time, and those that
// visit several locks come to all of them in one order.
#include "cases.hpp"

#include "gpusock/server/ticket_lock.cuh"

#include <string>

namespace gpusock::model {
namespace {

using detail::TicketLock;

/// What a lock guards: who has used it, in this order.
struct Seats {
  TicketLock lock{};
  std::string users;  // plain
  int used = 0;       // plain

  void use(int user) {
    ++used;
    users += std::to_string(user);
  }
};

std::uint32_t hold(Seats& seats) {
  const TicketLock::Ticket ticket = seats.lock.draw();
  while (!ticket.holds && !seats.lock.holds(ticket.number)) give_way();
  return ticket.number;
}

/// The lock's numbers begin here: the last one, and the one before it, are followed by 0.
std::uint64_t from_number(std::uint32_t first) { return std::uint64_t{first} << 32 | first; }

Case one_user_at_a_time(int users, std::uint32_t first) {
  return {"ticket_lock.one_user_of_" + std::to_string(users) + (first == 0 ? "" : "_where_numbers_wrap"),
          [users, first](Run& run) {
            auto& seats = run.make<Seats>();
            seats.lock.word = from_number(first);
            for (int i = 0; i < users; ++i) {
              run.thread([&seats] {
                const std::uint32_t number = hold(seats);
                ++seats.used;
                seats.lock.give_back(number);
              });
            }
            run.at_end([&seats, users, first] {
              require(seats.used == users, "each has used it");
              const auto next = first + static_cast<std::uint32_t>(users);
              require(seats.lock.word == from_number(next), "it is free again");
              return std::string();
            });
          },
          {""}};
}

/// As two that tell (SharedSeats::hold()).
Case all_locks_in_one_order() {
  return {"ticket_lock.two_come_to_two_locks_in_one_order",
          [](Run& run) {
            struct Server {
              Seats groups[2];
            };
            auto& server = run.make<Server>();
            for (int i = 0; i < 2; ++i) {
              run.thread([&server, i] {
                auto& [first, second] = server.groups;
                const std::uint32_t number = hold(first);
                first.use(i);
                const TicketLock::Ticket ticket = first.lock.go_on_to(second.lock, number);
                while (!ticket.holds && !second.lock.holds(ticket.number)) give_way();
                second.use(i);
                second.lock.give_back(ticket.number);
              });
            }
            run.at_end([&server] { return server.groups[0].users + " " + server.groups[1].users; });
          },
          {"01 01", "10 10"}};
}

/// A holder that looks whether others wait goes on after one that does.
Case a_holder_gives_way() {
  return {"ticket_lock.a_holder_gives_way_to_one_that_waits",
          [](Run& run) {
            auto& seats = run.make<Seats>();
            run.thread([&seats] {
              std::uint32_t number = hold(seats);
              seats.use(0);
              if (seats.lock.is_awaited(number)) {
                seats.lock.give_back(number);
                number = hold(seats);
                require(seats.used == 2, "the other was first");
              }
              seats.use(0);
              seats.lock.give_back(number);
            });
            run.thread([&seats] {
              const std::uint32_t number = hold(seats);
              seats.use(1);
              seats.lock.give_back(number);
            });
            run.at_end([&seats] { return seats.users; });
          },
          {"001", "010", "100"}};
}

}  // namespace

std::vector<Case> ticket_lock_cases() {
  return {one_user_at_a_time(2, 0), one_user_at_a_time(3, 0), one_user_at_a_time(3, ~std::uint32_t{1}),
          all_locks_in_one_order(), a_holder_gives_way()};
}

}  // namespace gpusock::model
