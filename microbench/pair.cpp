// Makes one contestant of two halves, and evaluates their accounts.
#include "contestant.hpp"

#include <algorithm>
#include <cerrno>

namespace bench {
namespace {

class Pair final : public Contestant {
 public:
  Pair(std::unique_ptr<Asker> asker, std::unique_ptr<Answerer> answerer)
      : asker_(std::move(asker)), answerer_(std::move(answerer)) {}

  std::string name() const override { return asker_->name(); }
  std::string description() const override { return asker_->description(); }

  Round run(const Job& job) override {
    asker_->prepare(job);
    answerer_->start(job);
    Round round = ask(job);
    const Answer answer = answerer_->finish();
    require_success(answer.account, job, "the answering side");
    round.proxy_steps += answer.proxy_steps;
    round.proxy_wakeups += answer.proxy_wakeups;
    return round;
  }

 private:
  Round ask(const Job& job) {
    try {
      return asker_->ask(answerer_->where(), job);
    } catch (const std::exception& error) {
      const std::string reason = answerer_->reason_of_failure(job);
      if (reason.empty()) throw;
      throw std::runtime_error(std::string(error.what()) + "; " + reason);
    }
  }

  std::unique_ptr<Asker> asker_;
  std::unique_ptr<Answerer> answerer_;
};

const char* describe(Step step) {
  switch (step) {
    case Step::connect:
      return "connecting";
    case Step::accept:
      return "accepting";
    case Step::send:
      return "sending";
    case Step::receive:
      return "receiving";
    case Step::start:
      return "waiting for the other sockets";
    case Step::greet:
      return "waiting for the greeting of a connection, which it then closed";
    default:
      return "ending the round";
  }
}

/// The time from the first start to the last end, and the number of messages of all accounts.
Flow flow_of(std::span<const Account> accounts) {
  Flow flow;
  std::uint64_t first_ns = ~std::uint64_t{0}, last_ns = 0;
  for (const Account& account : accounts) {
    flow.messages += account.messages;
    first_ns = std::min(first_ns, account.started_ns);
    last_ns = std::max(last_ns, account.started_ns + account.elapsed_ns);
  }
  if (!accounts.empty()) flow.elapsed_ns = last_ns - first_ns;
  return flow;
}

}  // namespace

std::string Answerer::reason_of_failure(const Job& job) {
  cancel();
  try {
    require_success(finish().account, job, "the answering side");
  } catch (const gpusock::Error& error) {
    return error.code().value() == ECANCELED ? std::string() : error.what();  // ECANCELED: nothing before cancel()
  } catch (const std::exception& error) {
    return std::string("the answering side: ") + error.what();
  }
  return {};
}

void require_success(const Account& account, const Job& job, const std::string& side) {
  const std::string what = job.question == Question::connections
                               ? "connections"
                               : "messages of " + std::to_string(job.bytes) + " bytes";
  const std::string where = side + ", " + what + ": ";
  if (account.failed_step != Step::none) {
    const int error = account.result < 0 ? static_cast<int>(-account.result) : EPROTO;
    const std::string count = account.result < 0 ? "" : " stopped at " + std::to_string(account.result);
    throw gpusock::Error(error, where + describe(account.failed_step) + count);
  }
  if (account.wrong_words != 0) {
    throw gpusock::Error(
        EBADMSG, where + std::to_string(account.wrong_words) + " words arrived wrong; this is a defect: report it");
  }
}

Account sum_of(std::span<const Account> accounts) {
  Account sum;
  for (const Account& account : accounts) {
    const bool cause = account.failed_step != Step::none && account.failed_step != Step::start;
    const bool known = sum.failed_step != Step::none && sum.failed_step != Step::start;
    if (account.failed_step != Step::none && (sum.failed_step == Step::none || (cause && !known))) {
      sum.failed_step = account.failed_step;
      sum.result = account.result;
    }
    sum.messages += account.messages;
    sum.wrong_words += account.wrong_words;
  }
  return sum;
}

Round make_round(const Job& job, std::span<const Account> accounts, const std::uint64_t* samples_ns) {
  Round round;
  round.out = flow_of(accounts.first(job.sockets_out));
  round.in = flow_of(accounts.subspan(job.sockets_out));
  if (job.question == Question::bandwidth) return round;
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    const std::uint64_t* from = samples_ns + job.samples_max * i;
    round.samples_ns.insert(round.samples_ns.end(), from, from + accounts[i].messages);
  }
  return round;
}

std::unique_ptr<Contestant> make_pair(std::unique_ptr<Asker> asker, std::unique_ptr<Answerer> answerer) {
  return std::make_unique<Pair>(std::move(asker), std::move(answerer));
}

}  // namespace bench
