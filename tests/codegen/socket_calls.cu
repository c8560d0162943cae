// One kernel for each socket call that moves data, as programs make it: the test beside this file reads the machine
// code that they become.
#include "gpusock/device.cuh"

using namespace gpusock;

#define GPUSOCK_CALLS_OF(scope)                                                                              \
  extern "C" __global__ void send_by_##scope(Net net, Socket socket, const void* data, std::size_t bytes,    \
                                             std::int64_t* result) {                                         \
    const auto sent = net.send(this_##scope(), socket, data, bytes);                                         \
    if (threadIdx.x == 0) *result = sent;                                                                    \
  }                                                                                                          \
  extern "C" __global__ void recv_by_##scope(Net net, Socket socket, void* data, std::size_t bytes,          \
                                             std::int64_t* result) {                                         \
    const auto received = net.recv(this_##scope(), socket, data, bytes);                                     \
    if (threadIdx.x == 0) *result = received;                                                                \
  }                                                                                                          \
  extern "C" __global__ void poll_by_##scope(Net net, PollEntry* entries, int count, std::int64_t* result) { \
    const auto events = net.poll(this_##scope(), entries, count);                                            \
    if (threadIdx.x == 0) *result = events;                                                                  \
  }                                                                                                          \
  extern "C" __global__ void accept_by_##scope(Net net, Socket listener, std::int64_t* result) {             \
    const auto socket = net.accept(this_##scope(), listener);                                                \
    if (threadIdx.x == 0) *result = socket;                                                                  \
  }

GPUSOCK_CALLS_OF(thread)
GPUSOCK_CALLS_OF(warp)
GPUSOCK_CALLS_OF(block)
