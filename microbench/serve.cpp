#include "serve.hpp"

#include "program/run.hpp"
#include "program/stop_signals.hpp"
#include "session.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <vector>

namespace bench {
namespace {

constexpr int kClientsBacklog = 64;
/// Maximum number of clients that wait while another one is served. If it is reached, those that have ended are
/// removed; if there are none, a further one is refused.
constexpr std::size_t kQueueMax = 16;
constexpr std::uint64_t kTellNs = 1'000'000;
/// Maximum number of clients whose first message has not arrived completely. A further client replaces the oldest one.
constexpr std::size_t kStrangersMax = 64;
constexpr std::uint64_t kStrangerNs = 10'000'000'000;

/// A client that has not said yet what it wants: its first message has not arrived completely.
struct Stranger {
  ControlConnection control;
  std::uint64_t due_ns;  ///< when the server closes its connection
};

/// An address that clients can use: the loopback address if the server listens at all addresses.
std::string address_for_clients(gpusock::Endpoint at) {
  const bool any = std::all_of(std::begin(at.address), std::end(at.address),
                               [](std::uint8_t byte) { return byte == 0; });
  if (!any) return at.host_port();
  return (at.family == 6 ? "[::1]:" : "127.0.0.1:") + std::to_string(at.port) +
         "    (from other hosts: with an address of this one)";
}

class ServerLoop {
 public:
  ServerLoop(const ServeOptions& options, std::string device)
      : once_(options.once),
        device_(std::move(device)),
        listener_(listen_tcp(parse_host_port(options.at), kClientsBacklog)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  bool run() {
    const gpusock::program::StopWatcher watcher([this](int) {
      stopping_ = true;
      wake();
    });
    const auto at = local_of(listener_.get());
    gpusock::program::print_now("gpusock-bench serves at " + at.host_port() +
                                "; measure from another process or host:\n  gpusock-bench lat --link tcp --to " +
                                address_for_clients(at) + "\n");
    std::optional<bool> result;
    while (!stopping_ && !result) {
      wait();
      result = end_session();
      if (!result && session_ == nullptr && !queue_.empty()) start_next();
      if (!result) accept();
      if (!result) hear_strangers();
    }
    return result.value_or(true);
  }

 private:
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }

  void wait() {
    std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    entries.reserve(entries.size() + strangers_.size());
    for (const Stranger& stranger : strangers_) {
      entries.push_back({stranger.control.descriptor(), POLLIN | POLLRDHUP, 0});
    }
    ::poll(entries.data(), entries.size(), wait_ms());
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_.get(), &count, sizeof count);
  }

  /// Milliseconds until the connection of the oldest stranger is closed; -1 if there is none.
  int wait_ms() const {
    if (strangers_.empty()) return -1;
    const std::uint64_t now_ns = gpusock::clock_ns(), due_ns = strangers_.front().due_ns;
    return due_ns <= now_ns ? 0 : static_cast<int>((due_ns - now_ns) / 1'000'000 + 1);
  }

  /// After the client of --once: true if its session succeeded. Otherwise nothing.
  std::optional<bool> end_session() {
    if (session_ == nullptr || !session_->ended()) return std::nullopt;
    const bool last = once_ && session_->opened(), succeeded = session_->succeeded();
    session_.reset();
    return last ? std::optional(succeeded) : std::nullopt;
  }

  void start_next() {
    session_ = std::make_unique<Session>(std::move(queue_.front()), device_, [this] { wake(); });
    queue_.pop_front();
  }

  void accept() {
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    Descriptor made(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC));
    if (made.get() < 0) {
      constexpr int kNap_ms = 100;
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, kNap_ms);  // until one is free
      return;
    }
    try {
      ControlConnection control(std::move(made), "the client at " + to_endpoint(from).host_port());
      if (strangers_.size() == kStrangersMax) strangers_.pop_front();
      strangers_.push_back({std::move(control), gpusock::clock_ns() + kStrangerNs});
    } catch (const gpusock::Error&) {  // the client is gone already
    }
  }

  /// Queues each stranger that has said what it wants, or has ended. Silent clients do not delay other clients.
  void hear_strangers() {
    const std::uint64_t now_ns = gpusock::clock_ns();
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      if (stranger->control.has_message()) {
        queue(std::move(stranger->control));
      } else if (stranger->due_ns > now_ns) {
        ++stranger;
        continue;
      } else {
        std::fprintf(stderr, "gpusock-bench: %s has not said what it wants for 10 s: it is sent away\n",
                     stranger->control.peer().c_str());
      }
      stranger = strangers_.erase(stranger);
    }
  }

  /// False if the client has ended its connection or does not read. Such a client must not end the server.
  static bool tell(ControlConnection& control, MessageKind kind, const nlohmann::json& body) {
    try {
      control.send(kind, body, kTellNs);
      return true;
    } catch (const gpusock::Error& error) {
      std::fprintf(stderr, "gpusock-bench: %s\n", error.what());
      return false;
    }
  }

  void queue(ControlConnection control) {
    if (queue_.size() == kQueueMax) std::erase_if(queue_, [](const auto& waits) { return waits.peer_has_ended(); });
    if (queue_.size() == kQueueMax) {
      tell(control, MessageKind::refused, Refusal{EBUSY, "it serves another client, and too many others wait"});
      return;
    }
    if (session_ != nullptr && !tell(control, MessageKind::wait, {})) return;
    queue_.push_back(std::move(control));
    if (session_ == nullptr) start_next();
  }

  bool once_;
  std::string device_;
  Descriptor listener_;
  Descriptor wake_;
  std::list<Stranger> strangers_;  ///< in the order in which they came
  std::atomic<bool> stopping_{false};
  std::deque<ControlConnection> queue_;
  std::unique_ptr<Session> session_;
};

}  // namespace

bool serve(const ServeOptions& options, const std::string& device) {
  gpusock::program::block_stop_signals();
  return ServerLoop(options, device).run();
}

}  // namespace bench
