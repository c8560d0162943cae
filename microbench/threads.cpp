// gpusock between two host threads, each with its own context.
#include "gpusock_pair.hpp"
#include "host_side.hpp"
#include "sides.cuh"

namespace bench {
namespace {

class ThreadPair final : public Contestant {
 public:
  explicit ThreadPair(const BenchOptions& options) : pair_(options), listener_(open()) {}

  ~ThreadPair() override { pair_.acceptor.net().close(gpusock::this_thread(), listener_); }

  std::string name() const override { return "gpusock"; }
  std::string description() const override { return "sockets between host threads, each of its own context"; }

  Round run(const Job& job) override {
    const auto group = gpusock::this_thread();
    const auto before = pair_.work();
    Account asked;
    try {
      Round round = run_on_two_threads(
          job, [&](const Memory& memory) { play_acceptor(group, pair_.acceptor.net(), listener_, job, memory); },
          [&](const Memory& memory) { play_connector(group, pair_.connector.net(), local_, job, memory); },
          [&](const Account& account) {
            asked = account;
            if (account.failed_step == Step::connect) pair_.acceptor.cancel();  // it would wait for nobody
          });
      pair_.add_work(round, before);
      return round;
    } catch (const gpusock::Error&) {
      require_connection(asked, local_);  // it knows more
      throw;
    }
  }

 private:
  gpusock::Socket open() {
    const auto net = pair_.acceptor.net();
    const auto listener = net.listen(gpusock::this_thread(), pair_.listen_at());
    require_listener(listener, pair_.listen_at());
    net.getsockname(listener, local_);
    return listener;
  }

  ContextPair pair_;
  gpusock::Endpoint local_;
  gpusock::Socket listener_;
};

}  // namespace

std::unique_ptr<Contestant> make_thread_pair(const BenchOptions& options) {
  return std::make_unique<ThreadPair>(options);
}

}  // namespace bench
