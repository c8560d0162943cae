// A call that only a part of its group makes ends the launch with an error that names the call, at once: also while one
// of its threads waits for a peer that sends nothing.
#include <gpusock/gpusock.hpp>
#include <gpusock/io.cuh>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpusock {
namespace {

using Kernel = void (*)(Net, Socket);

/// Its peer neither sends nor receives.
struct Connected {
  Connected() {
    const Endpoint at = Endpoint::parse("127.0.0.1:0,link=p2p");
    listener = context.net().listen(this_thread(), at, 1, patience());
    Endpoint where;
    context.net().getsockname(listener, where);
    peer = context.net().connect(this_thread(), where, patience());
    socket = context.net().accept(this_thread(), listener, patience());
  }

  Context context{[] {
    Options options;
    options.sockets_max = 16;
    return options;
  }()};
  Socket listener, peer, socket;
};

/// What synchronize() throws, or nothing.
std::string failure_of(Kernel kernel) {
  Connected connected;
  EXPECT_GE(connected.socket, 0);
  launch(connected.context, {.grid = 1, .block = 64}, kernel, connected.context.net(), connected.socket);
  try {
    connected.context.synchronize();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Case {
  const char* name;
  Kernel kernel;
  const char* reason;
};

// The deadline of each call is far: only what is found at once ends these kernels.
constexpr auto kNever = Deadline::never();

const Case kCases[] = {
    {"OthersOfTheBlockEnd",
     [](Net net, Socket socket) {
       if (threadIdx.x < 7) net.send(this_block(), socket, "x", 1, kWaitAll, kNever);
     },
     "thread (7,0,0): this thread ends, but others of its block call send()"},
    {"OthersOfTheBlockHaveEnded",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x >= 7) net.recv(this_block(), socket, &byte, 1, 0, kNever);
     },
     "this thread calls recv() with its block, but others of the block have ended"},
    {"OthersOfTheBlockWaitAtABarrier",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x < 7) net.recv(this_block(), socket, &byte, 1, 0, kNever);
       __syncthreads();
     },
     "thread (7,0,0): this thread waits at a barrier, but others of its block call recv()"},
    {"OthersOfTheBlockWaitedAtABarrier",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x >= 7) net.recv(this_block(), socket, &byte, 1, 0, kNever);
       __syncthreads();
     },
     "thread (7,0,0): this thread calls recv() with its block, but others of the block wait at a barrier"},
    {"OthersOfTheBlockMakeAnotherCall",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x < 7) {
         net.send(this_block(), socket, "x", 1, kWaitAll, kNever);
       } else {
         net.recv(this_block(), socket, &byte, 1, 0, kNever);
       }
     },
     "thread (7,0,0): this thread calls recv() with its block, but others of the block call send()"},
    {"OneThreadMakesTheCallOfItsBlock",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x == 0) net.recv(this_block(), socket, &byte, 1, 0, kNever);
     },
     "thread (1,0,0): this thread ends, but others of its block call recv()"},
    {"OthersReadNoLine",
     [](Net net, Socket socket) {
       __shared__ char buffer[64];
       Reader reader(this_block(), net, socket, buffer, sizeof buffer);
       if (threadIdx.x < 7) reader.line(kNever);
     },
     "thread (7,0,0): this thread ends, but others of its block call"},
    {"OthersWriteNothing",
     [](Net net, Socket socket) {
       __shared__ char buffer[64];
       Writer writer(this_block(), net, socket, buffer, sizeof buffer, kForever);
       if (threadIdx.x == 0) writer << "HELLO\n";
       writer.flush();
     },
     "this thread ends, but others of its block call send()"},
    {"OtherLanesEnd",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x % 32 < 7) net.recv(this_warp(), socket, &byte, 1, 0, kNever);
     },
     "thread (7,0,0): this thread ends, but other lanes of its warp call recv()"},
    {"OtherLanesHaveEnded",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x % 32 >= 7) net.recv(this_warp(), socket, &byte, 1, 0, kNever);
     },
     "thread (7,0,0): this thread calls recv() with lanes of its warp, but others of these lanes have ended"},
    {"OneLaneMakesTheCallOfItsWarp",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x == 0) net.recv(this_warp(), socket, &byte, 1, 0, kNever);
       __syncthreads();
     },
     "thread (1,0,0): this thread waits at a barrier, but other lanes of its warp call recv()"},
    {"OtherLanesWaitForTheBlock",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x == 31) net.recv(this_warp(), socket, &byte, 1, 0, kNever);
       __syncthreads();
     },
     "thread (31,0,0): this thread calls recv() with lanes of its warp, but others of these lanes wait at a barrier"},
    {"OtherLanesWaitForTheWarp",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x % 32 >= 7) net.recv(this_warp(), socket, &byte, 1, 0, kNever);
       __syncwarp();
     },
     "this thread calls recv(), but other lanes of the group call an operation of the warp"},
    {"OtherLanesMakeAnotherCall",
     [](Net net, Socket socket) {
       char byte;
       if (threadIdx.x % 32 < 7) {
         net.send(this_warp(), socket, "x", 1, kWaitAll, kNever);
       } else {
         net.recv(this_warp(), socket, &byte, 1, 0, kNever);
       }
     },
     "this thread calls recv(), but other lanes of the group call send()"},
};

class PartOfAGroup : public testing::TestWithParam<Case> {};

TEST_P(PartOfAGroup, IsReported) {
  const std::string failure = failure_of(GetParam().kernel);
  EXPECT_NE(failure.find(GetParam().reason), std::string::npos) << failure;
  EXPECT_NE(failure.find(". All threads of a group must make each of its calls"), std::string::npos) << failure;
}

INSTANTIATE_TEST_SUITE_P(Calls, PartOfAGroup, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

/// Groups of one block that make different calls, and as many as they like, while threads of other groups have ended.
__global__ void call_in_small_groups(Net net, Socket socket) {
  auto block = this_block();
  std::int64_t error = 0;
  net.getsockopt(block, socket, SocketOption::error, error);
  if (threadIdx.x >= 48) return;
  char byte;
  if (threadIdx.x == 32) net.recv(this_thread(), socket, &byte, 1, kDontWait);
  if (threadIdx.x >= 32) return;
  auto half = cooperative_groups::tiled_partition<16>(block);
  if (threadIdx.x < 16) {
    for (int i = 0; i < 3; ++i) net.recv(half, socket, &byte, 1, kDontWait);
  } else {
    net.shutdown(half, -1, Shutdown::both);
  }
  net.recv(this_warp(), socket, &byte, 1, kDontWait);
  if (threadIdx.x % 2 == 0) return;
  net.recv(cooperative_groups::coalesced_threads(), socket, &byte, 1, kDontWait);
  __syncthreads();
}

TEST(WholeGroups, MayMakeDifferentCallsAndEndAtDifferentTimes) { EXPECT_EQ(failure_of(call_in_small_groups), ""); }

}  // namespace
}  // namespace gpusock
