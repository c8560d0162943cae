#include "epoll_rival.hpp"

#include "context_side.hpp"
#include "sides.cuh"
#include "tcp_network.hpp"

#include <sys/epoll.h>

#include <array>
#include <cstring>
#include <thread>

namespace bench {
namespace {

const gpusock::ThisThread kThisThread = gpusock::this_thread();

/// Thrown to end a side's part of a round. Its account has the same.
struct Failure {
  Step step;
  std::int64_t result;
};

/// The sockets of one side, and the epoll that watches them.
class EpollSockets {
 public:
  /// All waits end at `stop_ns`, which another thread may change.
  explicit EpollSockets(const std::atomic<std::uint64_t>& stop_ns)
      : stop_ns_(stop_ns), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_.get() < 0) throw gpusock::Error(errno, "making raw TCP's epoll");
  }

  std::size_t size() const { return sockets_.size(); }

  void add(Descriptor socket) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = sockets_.size();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) throw Failure{Step::accept, -errno};
    sockets_.push_back(std::move(socket));
  }

  TcpWire wire(std::size_t index) const { return {sockets_[index].get(), ~std::uint64_t{0}, stop_ns_}; }

  void send(std::size_t index, const void* data, std::uint64_t bytes) const {
    const std::int64_t sent = wire(index).send(kThisThread, data, bytes);
    if (sent != static_cast<std::int64_t>(bytes)) throw Failure{Step::send, sent};
  }

  /// Receives what is there, at most so many bytes; 0 if nothing is.
  std::uint64_t receive(std::size_t index, void* data, std::uint64_t bytes_max) const {
    const std::int64_t got = ::recv(sockets_[index].get(), data, bytes_max, MSG_DONTWAIT);
    if (got > 0) return static_cast<std::uint64_t>(got);
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) throw Failure{Step::receive, got == 0 ? 0 : -errno};
    return 0;
  }

  /// Waits until sockets can be read, and calls `read(index)` for each.
  template <class Read>
  void wait(Read read) {
    Spin spin(~std::uint64_t{0}, &stop_ns_);
    int ready = 0;
    while ((ready = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), 0)) <= 0) {
      if (ready < 0 && errno != EINTR) throw Failure{Step::receive, -errno};
      if (!spin.turn()) throw Failure{Step::receive, -reason_of_stop(stop_ns_)};
    }
    for (int i = 0; i < ready; ++i) read(static_cast<std::size_t>(events_[static_cast<std::size_t>(i)].data.u64));
  }

 private:
  const std::atomic<std::uint64_t>& stop_ns_;
  Descriptor epoll_;
  std::vector<Descriptor> sockets_;
  std::array<epoll_event, 64> events_{};
};

/// What has arrived on one socket.
class Inbox {
 public:
  explicit Inbox(std::uint64_t bytes) : buffer_(bytes) {}

  char* end() { return buffer_.data() + filled_; }
  std::uint64_t room() const { return buffer_.size() - filled_; }

  /// Notes that `bytes` more have arrived at end(), calls `take(data, bytes)` with all whole messages, and keeps the
  /// rest.
  template <class Take>
  void add(std::uint64_t bytes, std::uint64_t message_bytes, Take take) {
    filled_ += bytes;
    const std::uint64_t whole = filled_ / message_bytes * message_bytes;
    if (whole == 0) return;
    take(buffer_.data(), whole);
    filled_ -= whole;
    std::memmove(buffer_.data(), buffer_.data() + whole, filled_);
  }

 private:
  std::vector<char> buffer_;
  std::uint64_t filled_ = 0;
};

std::vector<Inbox> inboxes_for(const Job& job) {
  return std::vector<Inbox>(job.sockets(), Inbox(job.bytes * job.window));
}

/// Makes the thread's part of a round, and returns its account.
template <class Play>
Account account_of(Play play) {
  Account account;
  try {
    play(account);
  } catch (const Failure& failure) {
    give_up(account, failure.step, failure.result);
  }
  return account;
}

class EpollAnswerer final : public Answerer {
 public:
  explicit EpollAnswerer(const BenchOptions& options)
      : listener_(listen_tcp(gpusock::Endpoint::parse(options.host + ":0,link=tcp"), kBacklog)),
        local_(local_of(listener_.get())) {}
  ~EpollAnswerer() override { cancel(); }

  gpusock::Endpoint where() const override { return local_; }
  void start(const Job& job) override {
    stop_ns_ = gpusock::clock_ns() + job.limit_ns;
    thread_ = std::jthread([this, job] {
      account_ = account_of([&](Account&) {
        if (connected_.size() == 0) accept_all(job);
        echo_until_stopped(job);
      });
    });
  }
  Answer finish() override {
    thread_.join();
    return {account_};
  }
  void cancel() noexcept override { stop_ns_ = 0; }

 private:
  /// Sends each greeting back, so that both sides have the sockets in the same order. Closes what does not greet with
  /// the round's token.
  void accept_all(const Job& job) {
    const TcpNetwork network(local_, listener_.get(), stop_ns_);
    std::array<std::uint64_t, kGreetingBytes / 8> greeting{};
    while (connected_.size() < job.sockets()) {
      const int made = network.accept(kThisThread);
      if (made < 0) throw Failure{Step::accept, made};
      Descriptor socket(made);
      auto wire = network.wire(made, kSilenceNs);
      const auto whole = static_cast<std::int64_t>(kGreetingBytes);
      if (wire.receive(kThisThread, greeting.data(), kGreetingBytes) != whole || greeting[0] != job.token) continue;
      if (wire.send(kThisThread, greeting.data(), kGreetingBytes) == whole) connected_.add(std::move(socket));
    }
  }

  void echo_until_stopped(const Job& job) {
    auto inboxes = inboxes_for(job);
    for (bool stopped = false; !stopped;) {
      connected_.wait([&](std::size_t index) {
        Inbox& inbox = inboxes[index];
        const std::uint64_t got = connected_.receive(index, inbox.end(), inbox.room());
        inbox.add(got, job.bytes, [&](const char* data, std::uint64_t bytes) {
          stopped = std::memcmp(data, &kStopWord, sizeof kStopWord) == 0;
          if (!stopped) connected_.send(index, data, bytes);
        });
      });
    }
  }

  Descriptor listener_;
  gpusock::Endpoint local_;
  std::atomic<std::uint64_t> stop_ns_{0};
  EpollSockets connected_{stop_ns_};
  Account account_;
  std::jthread thread_;
};

/// Messages that the measuring side sends and gets back.
class Conversation {
 public:
  Conversation(EpollSockets& connected, const Job& job, Account& account)
      : connected_(connected),
        job_(job),
        account_(account),
        message_(words_of(job.bytes)),
        batch_(job.bytes * job.window),
        inboxes_(inboxes_for(job)),
        peers_(job.sockets(), Peer{0, 0, std::vector<std::uint64_t>(job.window)}) {}

  /// As keep_window() (rate.cuh), on all sockets at the same time. What arrives on a socket together is answered by one
  /// call of send.
  void keep_windows(bool timed, std::vector<std::uint64_t>& samples_ns) {
    timed_ = timed;
    messages_max_ = timed ? job_.messages_max : job_.warmup;
    const std::uint64_t duration_ns = timed ? job_.duration_ns : job_.warmup_ns;
    fill(kThisThread, message_.data(), job_.bytes, 0);
    for (Peer& peer : peers_) peer.sent = peer.got = 0;
    started_ns_ = gpusock::clock_ns();
    for (std::size_t i = 0; i < peers_.size(); ++i) send(i, job_.window);
    bool more = true;
    while (on_their_way_ != 0) {
      connected_.wait([&](std::size_t index) {
        Inbox& inbox = inboxes_[index];
        inbox.add(connected_.receive(index, inbox.end(), inbox.room()), job_.bytes,
                  [&](const char* data, std::uint64_t bytes) {
                    const std::uint64_t now_ns = gpusock::clock_ns();
                    take(index, data, bytes / job_.bytes, now_ns, samples_ns);
                    more = more && now_ns - started_ns_ < duration_ns;
                    if (more) send(index, bytes / job_.bytes);
                  });
      });
    }
  }

 private:
  struct Peer {
    std::uint64_t sent, got;
    std::vector<std::uint64_t> sent_ns;  ///< of the messages that are on their way, by number modulo window
  };

  void send(std::size_t index, std::uint64_t wanted) {
    Peer& peer = peers_[index];
    const std::uint64_t count = std::min(wanted, messages_max_ - peer.sent);
    if (count == 0) return;
    const std::uint64_t now_ns = gpusock::clock_ns();
    for (std::uint64_t i = 0; i < count; ++i, ++peer.sent) {
      if (timed_) stamp(message_.data(), job_.bytes, peer.sent);
      if (!timed_) fill(kThisThread, message_.data(), job_.bytes, peer.sent);
      std::memcpy(batch_.data() + i * job_.bytes, message_.data(), job_.bytes);
      peer.sent_ns[peer.sent % job_.window] = now_ns;
    }
    on_their_way_ += count;
    connected_.send(index, batch_.data(), count * job_.bytes);
  }

  void take(std::size_t index, const char* data, std::uint64_t count, std::uint64_t now_ns,
            std::vector<std::uint64_t>& samples_ns) {
    Peer& peer = peers_[index];
    on_their_way_ -= count;
    for (std::uint64_t i = 0; i < count; ++i, ++peer.got) {
      std::memcpy(received_.data(), data + i * job_.bytes, job_.bytes);
      if (!timed_) check(kThisThread, received_.data(), job_.bytes, peer.got, account_);
      if (!timed_) continue;
      check_stamp(received_.data(), job_.bytes, peer.got, account_);
      samples_ns.push_back(now_ns - peer.sent_ns[peer.got % job_.window]);
    }
    if (!timed_) return;
    account_.messages += count;
    account_.started_ns = started_ns_;
    account_.elapsed_ns = now_ns - started_ns_;
  }

  EpollSockets& connected_;
  const Job& job_;
  Account& account_;
  std::vector<std::uint64_t> message_;
  std::vector<std::uint64_t> received_ = message_;
  std::vector<char> batch_;
  std::vector<Inbox> inboxes_;
  std::vector<Peer> peers_;
  std::uint64_t messages_max_ = 0, started_ns_ = 0, on_their_way_ = 0;
  bool timed_ = false;
};

class EpollAsker final : public Asker {
 public:
  std::string name() const override { return "raw TCP"; }
  std::string description() const override {
    return "raw non-blocking TCP sockets (TCP_NODELAY), on each side one host thread for all of them, which spins on "
           "epoll";
  }
  void prepare(const Job& job) override {
    samples_ns_.clear();
    samples_ns_.reserve(std::min(job.samples_max * job.sockets(), kSamplesMax));
  }

  Round ask(const gpusock::Endpoint& where, const Job& job) override {
    stop_ns_ = gpusock::clock_ns() + job.limit_ns;
    const Account account = account_of([&](Account& written) {
      if (connected_.size() == 0) connect_all(where, job);
      Conversation conversation(connected_, job, written);
      conversation.keep_windows(false, samples_ns_);
      conversation.keep_windows(true, samples_ns_);
      std::vector<std::uint64_t> stop(words_of(job.bytes), kStopWord);
      connected_.send(0, stop.data(), job.bytes);
    });
    require_success(account, job, "raw TCP, the measuring thread");
    Round round;
    round.samples_ns = samples_ns_;
    round.out = {account.messages, account.elapsed_ns};
    return round;
  }

 private:
  void connect_all(const gpusock::Endpoint& where, const Job& job) {
    const TcpNetwork network(where, -1, stop_ns_);
    std::array<std::uint64_t, kGreetingBytes / 8> greeting{job.token};
    const auto whole = static_cast<std::int64_t>(kGreetingBytes);
    while (connected_.size() < job.sockets()) {
      const int made = network.connect(kThisThread);
      if (made < 0) throw Failure{Step::connect, made};
      Descriptor socket(made);
      auto wire = network.wire(made);
      const std::int64_t sent = wire.send(kThisThread, greeting.data(), kGreetingBytes);
      if (sent != whole) throw Failure{Step::send, sent};
      const std::int64_t got = wire.receive(kThisThread, greeting.data(), kGreetingBytes);
      if (got != whole) throw Failure{Step::receive, got};
      connected_.add(std::move(socket));
    }
  }

  std::atomic<std::uint64_t> stop_ns_{0};
  EpollSockets connected_{stop_ns_};
  std::vector<std::uint64_t> samples_ns_;
};

}  // namespace

std::unique_ptr<Contestant> make_epoll_rival(const BenchOptions& options) {
  return bench::make_pair(std::make_unique<EpollAsker>(), std::make_unique<EpollAnswerer>(options));
}

}  // namespace bench
