#include "host_proxy/links/p2p/arena_exchange.hpp"

#include "host_proxy/base/log.hpp"
#include "host_proxy/base/signals.hpp"
#include "host_proxy/links/p2p/unix_socket.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <utility>

namespace gpusock::proxy {
namespace {

/// Waits for an answer on each connection, at most this long for all of them. Calls `take` when a connection can be
/// read; `take` returns false if the answer has not come yet.
void take_answers(const std::vector<Descriptor>& connections, std::chrono::nanoseconds wait,
                  const std::function<bool(std::size_t which)>& take) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + wait;
  std::vector<pollfd> waits;
  waits.reserve(connections.size());
  for (const Descriptor& each : connections) waits.push_back({each.get(), POLLIN, 0});  // poll() skips -1
  const auto waits_for_one = [&] {
    return std::any_of(waits.begin(), waits.end(), [](const pollfd& each) { return each.fd >= 0; });
  };
  while (waits_for_one() && Clock::now() < until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    (void)uninterrupted([&] { return ::poll(waits.data(), waits.size(), static_cast<int>(left.count())); });
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd >= 0 && waits[i].revents != 0 && take(i)) waits[i].fd = -1;
    }
  }
}

bool is_descriptor_shortage(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace

std::vector<Arenas::Fetched> fetch_descriptors(const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds wait) {
  std::vector<Arenas::Fetched> got(asked.size());
  std::vector<Descriptor> connections;
  const auto note_failure = [&](std::size_t i) { got[i].lacks_descriptor = is_descriptor_shortage(errno); };
  for (std::size_t i = 0; i < asked.size(); ++i) {
    connections.push_back(ask_at(asked[i].socket, std::as_bytes(std::span(asked[i].id))));
    if (!connections.back()) note_failure(i);
  }
  take_answers(connections, wait, [&](std::size_t i) {
    const int descriptor = receive_descriptor(connections[i].get());
    if (descriptor < 0 && errno == EAGAIN) return false;
    if (descriptor < 0) note_failure(i);
    got[i].arena.reset(descriptor);
    return true;
  });
  return got;
}

std::vector<Arenas::Taken> give_descriptor(const std::vector<Arenas::Asked>& to, const Arenas::Id& giver,
                                           int descriptor, std::chrono::nanoseconds wait) {
  std::vector<Arenas::Taken> answers(to.size());
  std::vector<Descriptor> connections;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::array<Arenas::Id, 2> says{to[i].id, giver};
    connections.push_back(ask_at(to[i].socket, std::as_bytes(std::span(says)), descriptor));
    if (!connections.back() && is_descriptor_shortage(errno)) answers[i] = Arenas::Taken::not_asked;
  }
  take_answers(connections, wait, [&](std::size_t i) {
    std::array<std::byte, 1> answer{};
    const ReceivedMessage message = receive_message(connections[i].get(), answer);
    if (message.bytes < 0 && message.error == EAGAIN) return false;
    const auto taken = static_cast<Arenas::Taken>(answer[0]);
    if (message.bytes == 1 && taken <= Arenas::Taken::refused) answers[i] = taken;
    return true;
  });
  return answers;
}

void GivenArenas::take(const Arenas::Id& giver, Descriptor arena, Descriptor connection) noexcept {
  std::erase_if(under_way_, [](const std::future<void>& each) {
    return each.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  if (under_way_.size() >= Arenas::kMembersMax) return;
  try {
    const SignalsBlocked blocked;
    auto map = [this, giver, memory = std::move(arena), answer_to = std::move(connection)]() mutable {
      const Arenas::Taken taken = arenas_.take(giver, std::move(memory));
      send_byte(answer_to.get(), static_cast<std::byte>(taken));
    };
    under_way_.push_back(std::async(std::launch::async, std::move(map)));
  } catch (const std::exception& error) {  // no memory, or no thread
    try_log(LogLevel::info, [&] { return std::string("another process's GPU memory is not mapped: ") + error.what(); });
  }
}

}  // namespace gpusock::proxy
