// Measures gpusock between host threads. Each half has its own context.
#include "context_side.hpp"
#include "host_side.hpp"

namespace bench {
namespace {

class ThreadAnswerer final : public Answerer {
 public:
  explicit ThreadAnswerer(const BenchOptions& options)
      : context_(context_options(options, true)),
        net_(context_.net()),
        listener_(net_.listen(gpusock::this_thread(), listen_at(options), kBacklog)) {
    require_listener(listener_, listen_at(options));
    net_.getsockname(listener_, local_);
  }
  ~ThreadAnswerer() override {
    context_.cancel();  // before the threads are joined
  }

  gpusock::Endpoint where() const override { return local_; }
  void start(const Job& job) override {
    work_.emplace(context_);
    answers_.start(job, [this, job] { return SocketNetwork(net_, local_, listener_, job); });
  }
  Answer finish() override {
    Answer answer{answers_.finish()};
    work_->add_to(answer);
    return answer;
  }
  void cancel() noexcept override { context_.cancel(); }

 private:
  gpusock::Context context_;
  gpusock::Net net_;
  gpusock::Endpoint local_;
  gpusock::Socket listener_;
  std::optional<ProxyWork> work_;
  HostAnswers answers_;
};

class ThreadAsker final : public Asker {
 public:
  explicit ThreadAsker(const BenchOptions& options) : context_(context_options(options, false)), net_(context_.net()) {}

  std::string name() const override { return "gpusock"; }
  std::string description() const override { return "sockets between host threads, each side of its own context"; }
  void prepare(const Job& job) override { questions_.prepare(job); }

  Round ask(const gpusock::Endpoint& where, const Job& job) override {
    const ProxyWork work(context_);
    const Account account = questions_.ask(job, [this, &where, job] { return SocketNetwork(net_, where, -1, job); });
    require_connection(account, where);
    require_success(account, job, "the measuring thread");
    Round round = questions_.round(job);
    work.add_to(round);
    return round;
  }

 private:
  gpusock::Context context_;
  gpusock::Net net_;
  HostQuestions questions_;
};

}  // namespace

std::unique_ptr<Answerer> make_thread_answerer(const BenchOptions& options) {
  return std::make_unique<ThreadAnswerer>(options);
}
std::unique_ptr<Asker> make_thread_asker(const BenchOptions& options) { return std::make_unique<ThreadAsker>(options); }

}  // namespace bench
