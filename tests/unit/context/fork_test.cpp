// What a process that was forked does to its parent's context: nothing.
#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace gpusock {
namespace {

constexpr unsigned kChildSeconds = 60;  // a child that hangs is ended

/// Runs `what` in a forked child. Returns 0 where all of it held: else the number of what did not, or of its signal and
/// 100.
template <class What>
int in_child(What what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(what());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

template <class What>
bool is_canceled(What what) {
  try {
    what();
  } catch (const Error& error) {
    return error.code().value() == ECANCELED;
  }
  return false;
}

class Fork : public testing::TestWithParam<const char*> {
 protected:
  Fork() {
    char name[] = "/tmp/gpusock_fork_XXXXXX";
    folder_ = mkdtemp(name);
    Options options;
    options.observe = folder_;
    context = std::make_unique<Context>(options);
    net = context->net();
    listener = net.listen(this_thread(), Endpoint::parse(std::string("127.0.0.1:0,link=") + GetParam()), 8);
    Endpoint at;
    net.getsockname(listener, at);
    one = net.connect(this_thread(), at, patience());
    two = net.accept(this_thread(), listener, patience());
  }
  ~Fork() override {
    context.reset();
    std::filesystem::remove_all(folder_);
  }

  bool connection_works() const {
    char byte = 'x';
    if (net.send(this_thread(), one, &byte, 1, 0, patience()) != 1) return false;
    byte = 0;
    return net.recv(this_thread(), two, &byte, 1, 0, patience()) == 1 && byte == 'x';
  }
  bool has_page() const { return !std::filesystem::is_empty(folder_); }

  std::unique_ptr<Context> context;
  Net net;
  Socket listener = -1, one = -1, two = -1;

 private:
  std::string folder_;
};

TEST_P(Fork, AChildThatDestroysTheContextChangesNothing) {
  ASSERT_TRUE(connection_works());
  EXPECT_EQ(in_child([&] {
              context.reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(connection_works());
  EXPECT_TRUE(has_page());
}

TEST_P(Fork, CallsOnSocketsAreCanceledInTheChild) {
  EXPECT_EQ(in_child([&] {
              char byte = 'y';
              if (net.send(this_thread(), one, &byte, 1) != -ECANCELED) return 1;
              if (net.recv(this_thread(), two, &byte, 1) != -ECANCELED) return 2;
              if (net.accept(this_thread(), listener) != -ECANCELED) return 3;
              if (net.connect(this_thread(), Endpoint::parse("127.0.0.1:1,link=tcp")) != -ECANCELED) return 4;
              net.close(this_thread(), two);
              net.close(this_thread(), listener);
              return 0;
            }),
            0);
  EXPECT_TRUE(connection_works());
}

TEST_P(Fork, TheContextRefusesInTheChild) {
  Stream stream(*context);
  auto word = std::make_unique<Mapped<int>>(*context, 1);
  EXPECT_EQ(in_child([&] {
              if (!is_canceled([&] {
                    launch(
                        *context, {}, +[](int*) {}, word->data());
                  }))
                return 1;
              if (!is_canceled([&] { context->synchronize(); })) return 2;
              if (!is_canceled([&] { context->sockets(); })) return 3;
              if (!is_canceled([&] { context->stats(); })) return 4;
              if (!is_canceled([&] { Mapped<int> another(*context, 1); })) return 5;
              if (!is_canceled([&] { Stream another(*context); })) return 6;
              if (!is_canceled([&] { stream.synchronize(); })) return 7;
              stream.~Stream();
              word.reset();
              return 0;
            }),
            0);
}

TEST_P(Fork, ChildrenOfABusyParentEnd) {
  std::atomic<bool> done = false;
  std::thread busy([&] {
    while (!done) EXPECT_TRUE(connection_works());
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(in_child([&] {
                char byte = 0;
                net.recv(this_thread(), two, &byte, 1);
                net.close(this_thread(), one);
                context.reset();
                return 0;
              }),
              0);
  }
  done = true;
  busy.join();
  EXPECT_TRUE(connection_works());
}

INSTANTIATE_TEST_SUITE_P(Links, Fork, testing::Values("tcp", "p2p"),
                         [](const auto& link) { return std::string(link.param); });

__global__ void store_one(int* word) { *word = 1; }

int run_kernel_on_new_context() {
  Context context;
  Mapped<int> word(context, 1);
  launch(context, {}, store_one, word.data());
  context.synchronize();
  return word[0] == 1 ? 0 : 1;
}

TEST(ForkedProcess, LaunchesOnAContextOfItsOwn) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer starts no threads in a child of a process with threads";
  ASSERT_EQ(run_kernel_on_new_context(), 0);
  EXPECT_EQ(in_child(run_kernel_on_new_context), 0);
  EXPECT_EQ(run_kernel_on_new_context(), 0);
}

}  // namespace
}  // namespace gpusock
