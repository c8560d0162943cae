#pragma once
/// @file One side's buffers in ordinary memory, and halves whose callers are host threads.

#include "contestant.hpp"
#include "sides.cuh"

#include <optional>
#include <thread>

namespace bench {

/// The buffers of all sockets of a side.
class HostSide {
 public:
  HostSide(const Job& job, bool asks)
      : out_(buffer_words(job.bytes) * job.sockets()),
        in_(out_.size()),
        samples_(asks ? job.samples_max * job.sockets() : 0),
        accounts_(job.sockets()),
        asks_(asks) {}

  SideMemory memory() {
    return {{out_.data(), in_.data(), samples_.data(), accounts_.data(), asks_ ? &gate_ : nullptr}};
  }
  std::span<const Account> accounts() const { return accounts_; }
  const std::uint64_t* samples() const { return samples_.data(); }

 private:
  std::vector<std::uint64_t> out_, in_, samples_;
  std::vector<Account> accounts_;
  std::uint64_t gate_ = 0;
  bool asks_;
};

/// What a group of Question::scale keeps from round to round.
class HostCrowd {
 public:
  /// The same sockets in each round. Without any if the job is of another question.
  Crowd of(const Job& job) {
    if (sockets_.size() < job.crowd) sockets_.resize(job.crowd);
    return {&state_, sockets_.data()};
  }
  std::span<const std::int32_t> open() const { return {sockets_.data(), state_.open}; }
  std::int32_t set() const { return state_.set; }

 private:
  CrowdState state_;
  std::vector<std::int32_t> sockets_;
};

/// Runs `answer(memory)` on a thread of its own and `ask(memory)` on this one: the two halves of one socket, which
/// share memory. Returns the asking side's figures. Throws as Contestant::run().
template <class Answer, class Ask>
Round run_on_two_threads(const Job& job, Answer answer, Ask ask) {
  HostSide answering(job, false);
  HostSide asking(job, true);
  std::thread answerer([&] { answer(answering.memory().of(0, job)); });
  ask(asking.memory().of(0, job));
  answerer.join();
  require_success(sum_of(asking.accounts()), job, "the measuring thread");
  require_success(sum_of(answering.accounts()), job, "the answering thread");
  return make_round(job, asking.accounts(), asking.samples());
}

/// One thread for each socket of a round. All of them play the same side.
class SocketThreads {
 public:
  template <class Play>
  void start(const Job& job, Play play) {
    for (std::uint32_t i = 0; i < job.sockets(); ++i) threads_.emplace_back([play, i] { play(i); });
  }
  void join() { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;
};

/// The answering threads, and their memory.
class HostAnswers {
 public:
  /// Each thread accepts on a network of its own: the result of `network()`.
  template <class Network>
  void start(const Job& job, Network network) {
    SideMemory memory = side_.emplace(job, false).memory();
    memory.first.crowd = crowd_.of(job);
    threads_.start(job, [=](std::uint32_t index) {
      auto here = network();
      play_acceptor(gpusock::this_thread(), here, job, memory.of(index, job));
    });
  }
  void join() { threads_.join(); }
  Account finish() {
    join();
    return sum_of(side_->accounts());
  }
  const HostCrowd& crowd() const { return crowd_; }

 private:
  HostCrowd crowd_;
  std::optional<HostSide> side_;
  SocketThreads threads_;
};

/// As HostAnswers, for the asking threads.
class HostQuestions {
 public:
  void prepare(const Job& job) { side_.emplace(job, true); }

  /// Asks, and waits for the end. Returns the account of all sockets together.
  template <class Network>
  Account ask(const Job& job, Network network) {
    SideMemory memory = side_->memory();
    memory.first.crowd = crowd_.of(job);
    SocketThreads threads;
    threads.start(job, [=](std::uint32_t index) {
      auto here = network();
      play_connector(gpusock::this_thread(), here, job, index, memory.of(index, job));
    });
    threads.join();
    return sum_of(side_->accounts());
  }
  Round round(const Job& job) const { return make_round(job, side_->accounts(), side_->samples()); }
  const HostCrowd& crowd() const { return crowd_; }

 private:
  HostCrowd crowd_;
  std::optional<HostSide> side_;
};

}  // namespace bench
