// A library with kernels, whose functions any language can call. They return 0, or an errno with what happened in
// `why`.
#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"
#include "gpusock/launch.hpp"

#include <cstdint>
#include <cstdio>

namespace {

using gpusock::Deadline;
using gpusock::Socket;

constexpr unsigned kSharedBytes = 64 << 10, kWords = kSharedBytes / sizeof(std::uint32_t);

/// Block 1 sends what it has made in shared memory to block 0, which adds it up in its own.
__global__ void pass(gpusock::Net net, Socket listener, gpusock::Endpoint at, std::uint64_t* result) {
  __shared__ std::uint32_t words[kWords];
  const auto block = gpusock::this_block();
  const bool sends = blockIdx.x == 1;
  const Socket socket = sends ? net.connect(block, at) : net.accept(block, listener);
  std::int64_t moved = socket;
  if (sends && socket >= 0) {
    for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) words[i] = i;
    block.sync();
    moved = net.send(block, socket, words, sizeof words, gpusock::kWaitAll);
  } else if (socket >= 0) {
    moved = net.recv(block, socket, words, sizeof words, gpusock::kWaitAll);
  }
  if (socket >= 0) net.close(block, socket);
  if (sends || threadIdx.x != 0) return;
  result[0] = static_cast<std::uint64_t>(moved);
  for (unsigned i = 0; moved == sizeof words && i < kWords; ++i) result[1] += words[i];
}

__global__ void write_to(std::uint64_t* word) { *word = 1; }

template <class Call>
int guarded(char* why, std::size_t room, Call call) {
  try {
    call();
    return 0;
  } catch (const gpusock::Error& error) {
    std::snprintf(why, room, "%s", error.what());
    return error.code().value();
  }
}

}  // namespace

extern "C" int pass_through_shared_memory(std::uint64_t* bytes, std::uint64_t* sum, char* why, std::size_t room) {
  return guarded(why, room, [&] {
    gpusock::Context context;
    gpusock::Mapped<std::uint64_t> result(context, 2);
    const gpusock::Net net = context.net();
    const auto me = gpusock::this_thread();
    const Socket listener = net.listen(me, gpusock::Endpoint::parse("127.0.0.1:0"));
    gpusock::Endpoint at;
    if (listener < 0 || net.getsockname(listener, at) != 0) throw gpusock::Error(EIO, "listening");
    gpusock::launch(context, {.grid = 2, .block = 32}, pass, net, listener, at, result.data());
    context.synchronize();
    net.close(me, listener);
    *bytes = result[0];
    *sum = result[1];
  });
}

extern "C" int write_to_nothing(char* why, std::size_t room) {
  return guarded(why, room, [&] {
    gpusock::Context context;
    gpusock::launch(context, {.grid = 1, .block = 1}, write_to, static_cast<std::uint64_t*>(nullptr));
    context.synchronize();
  });
}
