// Kernels that read rings, in each way that there is: the test beside this file reads the PTX that nvcc makes of them.
#include "param_sync/codec/top_k.cuh"
#include "param_sync/executor/resident.cuh"  // run_lanes, run_exchanges
#include "param_sync/store/server.cuh"
#include "param_sync/update/sgd.hpp"

#include "gpusock/exchange.cuh"
#include "gpusock/io.cuh"

using namespace gpusock;

namespace param_sync::executor {

using Usual = Policies<Sgd>;
using OfBudget = Policies<Sgd, codec::TopK>;
using OfAnyReduction = Policies<Sgd, codec::Dense, reduction::AnyReduction>;
template __global__ void run_lanes<Usual>(Run, Usual);
template __global__ void run_lanes<OfAnyReduction>(Run, OfAnyReduction);
template __global__ void run_exchanges<Usual>(const Exchange*, const Usual*, int, std::uint64_t, ExchangeTimes*);
template __global__ void run_exchanges<OfBudget>(const Exchange*, const OfBudget*, int, std::uint64_t, ExchangeTimes*);

}  // namespace param_sync::executor

extern "C" __global__ void run_server(param_sync::store::Server server, param_sync::Sgd update) {
  param_sync::store::ServerLoop(server, update).run();
}

extern "C" __global__ void reads_by_recv(Net net, Socket socket, float* data, std::size_t bytes) {
  net.recv(this_block(), socket, data, bytes, kWaitAll);
}

extern "C" __global__ void reads_by_peek(Net net, Socket socket, float* sums) {
  const auto block = this_block();
  for (Span span; (span = net.peek(block, socket, 4096)).size > 0; net.release(block, socket, span.size)) {
    const auto* arrived = static_cast<const float*>(span.data);
    for (auto i = threadIdx.x; i < span.size / sizeof(float); i += blockDim.x) sums[i] += arrived[i];
  }
}

extern "C" __global__ void reads_by_reader(Net net, Socket socket, char* buffer, const char** line) {
  Reader reader(this_block(), net, socket, buffer, 4096);
  *line = reader.line().data;
}

extern "C" __global__ void reads_by_exchange(Net net, Socket socket, const void* out, void* in, std::int64_t* result) {
  *result = exchange(this_block(), net, socket, out, 4096, in, 4096);
}

// What a kernel must not do with a ring, so that the test shows what it looks for.
extern "C" __global__ void shows_what_is_sought(const float* __restrict ring, float* to) {
  to[threadIdx.x] = ring[threadIdx.x];
}
