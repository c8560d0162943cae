#include "cpu_device/block.hpp"
#include "cpu_device/pool.hpp"

#include <cstdlib>

namespace cpu_device::detail {

/// The running thread cannot go on, so the block fails.
void Block::fail(std::string what) {
  failure_ = BlockFailure{info_.index, current_->index, std::move(what)};
  abandon(*current_->carrier);
  std::abort();  // an abandoned thread is never resumed
}

/// The threads of this block that run or wait never go on. finish() frees their stacks.
void Block::abandon(Carrier& from) {
  abandoned_ = true;
  from.switch_to(native_);
}

void Block::fail_by_deadlock(Carrier& from) {
  const Thread* waiting = nullptr;
  for (unsigned i = 0; i < thread_count_ && !waiting; ++i) {
    if (threads_[i].carrier) waiting = &threads_[i];
  }
  failure_ = BlockFailure{info_.index, waiting->index, words_or_none([this] { return describe_deadlock(); })};
  abandon(from);
}

std::string Block::describe_deadlock() const {
  struct Group {
    const char* where;
    Waits reason;
  };
  std::string text = "deadlock: every thread of the block that has not ended waits for another one";
  for (const Group group :
       {Group{"at __syncthreads", Waits::block_barrier}, Group{"in a call of the block", Waits::block_call},
        Group{"at a warp operation", Waits::warp}}) {
    unsigned count = 0;
    std::string who;
    for (unsigned i = 0; i < thread_count_; ++i) {
      if (!threads_[i].carrier || threads_[i].waits != group.reason) continue;
      constexpr unsigned kNamed = 8;
      if (count++ < kNamed) who += (who.empty() ? "" : ", ") + to_string(threads_[i].index);
      if (count == kNamed + 1) who += ", ...";
    }
    if (count != 0) text += "; " + std::to_string(count) + " " + group.where + ": " + who;
  }
  return text;
}

void Block::fail_by_signal(int signal, const void* address) noexcept {
  signal_ = signal;
  signal_address_ = address;
  abandoned_ = true;
  current_->carrier->leave_for(native_);
}

}  // namespace cpu_device::detail
