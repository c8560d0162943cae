#include "remote.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace bench {
namespace {

/// How long another client's run may take: longer than it usually does.
constexpr std::uint64_t kQueueNs = 3'600'000'000'000;
/// How long the first answer may take: another program may listen there and never answer.
constexpr std::uint64_t kFirstAnswerNs = 10'000'000'000;
/// How long a server may take to end a round that its client gave up.
constexpr std::uint64_t kReasonNs = 10'000'000'000;

Frame receive_first_frame(Server& server) {
  if (server.answered) return server.control.receive(server.limit_ns);
  try {
    Frame frame = server.control.receive(std::min(server.limit_ns, kFirstAnswerNs));
    server.answered = true;
    return frame;
  } catch (const gpusock::Error& error) {
    if (error.code().value() != ETIMEDOUT) throw;
    throw gpusock::Error::with_cause(ETIMEDOUT, std::string(error.what()) + "; is it gpusock-bench serve?");
  }
}

/// The answer to the first message, which may have to wait for another client's run.
Frame receive_first(Server& server) {
  Frame frame = receive_first_frame(server);
  if (frame.kind != MessageKind::wait || server.waited) return frame;
  server.waited = true;
  std::fprintf(stderr, "gpusock-bench: %s serves another client; waiting\n", server.control.peer().c_str());
  return server.control.receive(kQueueNs);
}

class RemoteAnswerer final : public Answerer {
 public:
  RemoteAnswerer(std::shared_ptr<Server> server, const BenchOptions& options, Entrant entrant)
      : server_(std::move(server)), entrant_(entrant) {
    ControlConnection& control = server_->control;
    control.send(MessageKind::open, OpenRequest{entrant, options}, server_->limit_ns);
    const auto ready = decode<Ready>(receive_first(*server_), MessageKind::ready, control.peer());
    if (ready.port == 0) throw gpusock::Error(EPROTO, control.peer() + " named no port");
    server_->device = printable(ready.device);
    where_ = peer_of(control.descriptor());
    where_.port = ready.port;
    where_.link = entrant == Entrant::gpusock ? options.link : gpusock::LinkKind::tcp;
  }

  gpusock::Endpoint where() const override { return where_; }
  void start(const Job& job) override {
    ControlConnection& control = server_->control;
    control.send(MessageKind::round, RoundRequest{entrant_, job}, server_->limit_ns);
    require_kind(control.receive(server_->limit_ns), MessageKind::started, control.peer());
  }
  Answer finish() override { return to_answer(server_->control.receive(server_->limit_ns), server_->control.peer()); }
  void cancel() noexcept override { ::shutdown(server_->control.descriptor(), SHUT_RDWR); }

  /// Ends the round on the server, which then sends its account, unless it is gone.
  std::string reason_of_failure(const Job& job) override {
    ControlConnection& control = server_->control;
    try {
      ::shutdown(control.descriptor(), SHUT_WR);
      const auto frame = control.receive_or_end(kReasonNs);
      if (!frame) return control.peer() + " has ended";
      const Answer answer = to_answer(*frame, control.peer());
      require_success(answer.account, job, control.peer());
      return {};
    } catch (const gpusock::Error& error) {
      return error.code().value() == ECANCELED ? std::string() : error.what();  // this side failed first
    }
  }

 private:
  std::shared_ptr<Server> server_;
  Entrant entrant_;
  gpusock::Endpoint where_;
};

}  // namespace

Server::Server(const BenchOptions& options)
    : limit_ns(static_cast<std::uint64_t>(options.limit_s * 1e9)),
      control(ControlConnection::connect(options.to, limit_ns)) {}

std::unique_ptr<Answerer> make_remote_answerer(const std::shared_ptr<Server>& server, const BenchOptions& options,
                                               Entrant entrant) {
  return std::make_unique<RemoteAnswerer>(server, options, entrant);
}

}  // namespace bench
