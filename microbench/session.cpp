#include "session.hpp"

#include "context_side.hpp"
#include "tcp_rival.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdio>
#include <exception>

namespace bench {
namespace {

/// A client that is silent for so long before its first message, or before a later one, is dropped: others may wait.
constexpr std::uint64_t kFirstNs = 10'000'000'000;
constexpr std::uint64_t kIdleNs = 60'000'000'000;
constexpr std::uint64_t kSendNs = 10'000'000'000;

std::unique_ptr<Answerer> make_answerer(const BenchOptions& options, Entrant entrant) {
  if (entrant == Entrant::raw_tcp) return make_tcp_answerer(options);
  return options.between == Between::kernels ? make_kernel_answerer(options) : make_thread_answerer(options);
}

/// Runs finish() on a thread of its own. A poll() can wait for its end and for the client at the same time.
class Finishing {
 public:
  explicit Finishing(Answerer& answerer)
      : done_(eventfd(0, EFD_CLOEXEC)), thread_([this, &answerer] { run(answerer); }) {}
  int descriptor() const { return done_.get(); }
  /// Waits for the end. Throws as finish().
  Answer result() {
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
    return answer_;
  }

 private:
  void run(Answerer& answerer) {
    try {
      answer_ = answerer.finish();
    } catch (...) {
      failure_ = std::current_exception();
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(done_.get(), &one, sizeof one);
  }

  Answer answer_;
  std::exception_ptr failure_;
  Descriptor done_;
  std::thread thread_;
};

}  // namespace

Session::Session(ControlConnection control, std::string device, std::function<void()> on_end)
    : control_(std::move(control)), device_(std::move(device)), on_end_(std::move(on_end)) {
  thread_ = std::thread([this] { run(); });
}

Session::~Session() {
  stop();
  thread_.join();
}

void Session::stop() noexcept {
  stopped_ = true;
  ::shutdown(control_.descriptor(), SHUT_RDWR);
}

void Session::run() {
  try {
    serve();
    succeeded_ = opened_;
  } catch (const std::system_error& error) {
    tell_failure(error.code().value(), error.what());
  } catch (const std::exception& error) {
    tell_failure(EPROTO, error.what());
  }
  for (Opened& opened : opened_entrants_) opened.answerer.reset();  // before those of the next client are made
  ended_ = true;
  on_end_();
}

void Session::tell_failure(int error, const std::string& text) {
  if (stopped_) {  // a failure since then is not the client's fault, and the connection is shut down
    std::fprintf(stderr, "gpusock-bench: the server was stopped while it served %s\n", control_.peer().c_str());
    return;
  }
  const bool names_client = text.starts_with(control_.peer());
  std::fprintf(stderr, "gpusock-bench: %s%s\n", names_client ? "" : (control_.peer() + ": ").c_str(), text.c_str());
  try {
    control_.send(MessageKind::refused, Refusal{error, printable(text)}, kSendNs);
    ::shutdown(control_.descriptor(), SHUT_WR);
  } catch (const gpusock::Error&) {  // the client is gone
  }
}

void Session::serve() {
  while (const auto frame = control_.receive_or_end(opened_ ? kIdleNs : kFirstNs)) {
    if (frame->kind == MessageKind::open) {
      open(decode<OpenRequest>(*frame, MessageKind::open, control_.peer()));
    } else {
      run_round(decode<RoundRequest>(*frame, MessageKind::round, control_.peer()));
    }
  }
}

void Session::open(const OpenRequest& request) {
  require_valid(request);
  Opened& opened = opened_entrants_[static_cast<std::size_t>(request.entrant)];
  if (opened.answerer != nullptr) throw gpusock::Error(EPROTO, "a contestant was opened twice");
  opened.options = request.options;
  opened.options.host = host_of(local_of(control_.descriptor()));
  opened.answerer = make_answerer(opened.options, request.entrant);
  opened_ = true;
  control_.send(MessageKind::ready, Ready{opened.answerer->where().port, printable(device_)}, kSendNs);
}

void Session::run_round(const RoundRequest& request) {
  const auto entrant = static_cast<std::size_t>(request.entrant);
  if (entrant >= kEntrants || opened_entrants_[entrant].answerer == nullptr) {
    throw gpusock::Error(EPROTO, "a round was asked for before its contestant was opened");
  }
  const Opened& opened = opened_entrants_[entrant];
  opened.answerer->start(to_job(request, opened.options));
  control_.send(MessageKind::account, await(*opened.answerer), kSendNs);
}

/// Waits for the end of the round. Ends the round if the client goes away, or sends something in the meantime.
Answer Session::await(Answerer& answerer) {
  Finishing finishing(answerer);
  bool gone = false;
  try {
    control_.send(MessageKind::started, {}, kSendNs);
  } catch (const gpusock::Error&) {
    gone = true;
  }
  while (!gone) {
    pollfd entries[] = {{finishing.descriptor(), POLLIN, 0}, {control_.descriptor(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;  // a signal
    if (entries[0].revents != 0) break;
    gone = entries[1].revents != 0;
  }
  if (gone) answerer.cancel();
  const Answer answer = finishing.result();
  if (gone) throw gpusock::Error(ECANCELED, "the client left, or broke the protocol, during a round");
  return answer;
}

}  // namespace bench
