#include "tcp_rival.hpp"

#include "host_side.hpp"
#include "tcp_network.hpp"

namespace bench {
namespace {

/// Closes the sockets that have stayed from round to round, and the epoll of them.
void close_crowd(const HostCrowd& crowd) {
  for (const int socket : crowd.open()) ::close(socket);
  if (crowd.set() >= 0) ::close(crowd.set());
}

class TcpAnswerer final : public Answerer {
 public:
  explicit TcpAnswerer(const BenchOptions& options)
      : listener_(listen_tcp(gpusock::Endpoint::parse(options.host + ":0,link=tcp"), kBacklog)),
        local_(local_of(listener_.get())) {}
  ~TcpAnswerer() override {
    cancel();
    answers_.join();
    close_crowd(answers_.crowd());
  }

  gpusock::Endpoint where() const override { return local_; }
  void start(const Job& job) override {
    stop_ns_ = gpusock::clock_ns() + job.limit_ns;
    answers_.start(job, [this] { return TcpNetwork(local_, listener_.get(), stop_ns_); });
  }
  Answer finish() override { return {answers_.finish()}; }
  void cancel() noexcept override { stop_ns_ = 0; }

 private:
  static constexpr int kBacklog = 512;

  Descriptor listener_;
  gpusock::Endpoint local_;
  std::atomic<std::uint64_t> stop_ns_{0};
  HostAnswers answers_;
};

class TcpAsker final : public Asker {
 public:
  explicit TcpAsker(Question question) : many_(question == Question::scale) {}
  ~TcpAsker() override { close_crowd(questions_.crowd()); }

  std::string name() const override { return "raw TCP"; }
  std::string description() const override {
    const std::string sockets = "raw non-blocking TCP sockets (TCP_NODELAY), ";
    return sockets +
           (many_ ? "a host thread on each side; both spin, the answering one on epoll" : "host threads that spin");
  }
  void prepare(const Job& job) override { questions_.prepare(job); }

  Round ask(const gpusock::Endpoint& where, const Job& job) override {
    const std::atomic<std::uint64_t> stop_ns{gpusock::clock_ns() + job.limit_ns};
    const Account account = questions_.ask(job, [&] { return TcpNetwork(where, -1, stop_ns); });
    require_success(account, job, "raw TCP, the measuring thread");
    return questions_.round(job);
  }

 private:
  bool many_;
  HostQuestions questions_;
};

}  // namespace

std::unique_ptr<Answerer> make_tcp_answerer(const BenchOptions& options) {
  return std::make_unique<TcpAnswerer>(options);
}
std::unique_ptr<Asker> make_tcp_asker(Question question) { return std::make_unique<TcpAsker>(question); }

}  // namespace bench
