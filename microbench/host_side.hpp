#pragma once
/// @file One side's buffers in ordinary memory, and the two host threads of a round.

#include "contestant.hpp"

#include <thread>

namespace bench {

class HostSide {
 public:
  HostSide(const Job& job, std::uint64_t samples)
      : out_(words_of(job.bytes)), in_(words_of(job.bytes)), samples_(samples) {}

  Memory memory() { return {out_.data(), in_.data(), samples_.data(), &account_}; }
  const Account& account() const { return account_; }
  const std::uint64_t* samples() const { return samples_.data(); }

 private:
  std::vector<std::uint64_t> out_, in_, samples_;
  Account account_;
};

/// Runs `answer(memory)` on a thread of its own and `ask(memory)` on this one, then `asked(account)` before the first
/// is waited for; the asking side's figures. Throws as Contestant::run.
template <class Answer, class Ask, class Asked>
Round run_on_two_threads(const Job& job, Answer answer, Ask ask, Asked asked) {
  HostSide answering(job, 1);
  HostSide asking(job, job.question == Question::latency ? job.messages_max : 1);
  std::thread answerer([&] { answer(answering.memory()); });
  ask(asking.memory());
  asked(asking.account());
  answerer.join();
  require_success(asking.account(), job, "the measuring thread");
  require_success(answering.account(), job, "the answering thread");
  return make_round(job, asking.account(), asking.samples());
}

}  // namespace bench
