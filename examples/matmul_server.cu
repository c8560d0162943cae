// Multiplies matrices in kernels: any number of clients stream pairs of them, several at once, until SIGINT or SIGTERM.
//   matmul_server 127.0.0.1:7000,link=tcp
//
// Protocol, all numbers little-endian, matrices row by row as 32-bit floats. A client sends any number of requests on a
// connection, also before it reads the answers of earlier ones:
//   4 bytes "MMUL", then rows, inner and columns as 4 bytes each; A (rows x inner); B (inner x columns)
// and gets for each, in their order:
//   an errno as 4 bytes, then rows and columns as 4 bytes each, and 4 bytes 0; C = A * B (rows x columns)
// Where the errno is not 0 no matrix follows, and the connection ends: 71 (EPROTO) for what is not a request, 90
// (EMSGSIZE) for a size that is 0 or larger than the server takes; rows and columns are then the largest size.
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>

#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;

constexpr int kBacklog = 128;
constexpr int kTile = 16;
constexpr int kRowsOfThreads = 4;  // each thread computes every fourth element of a tile's column
constexpr int kThreads = kTile * kRowsOfThreads;
constexpr std::int64_t kDrainBytesMax = 16 << 20;
constexpr std::uint32_t kMagic = 0x4C554D4D;  // "MMUL"

struct Request {
  std::uint32_t magic, rows, inner, columns;
};
struct Answer {
  std::int32_t error;  ///< errno
  std::uint32_t rows, columns, zero;
};

/// What the kernels tell the host.
struct Report {
  Socket listener;  ///< or why there is none
  Endpoint local;
  std::int32_t failed;  ///< 0, or why accepting ended
};
struct Totals {
  std::uint64_t clients, products, refused;
};

/// What every block serves with.
struct Service {
  Socket listener;
  float* matrices;  ///< three of size_max * size_max for each block
  std::uint32_t size_max;
  std::uint64_t patience_ns;  ///< how long a client may be silent, or not read
};

__global__ void open_listener(Net net, Endpoint at, Report* report) {
  report->listener = net.listen(gpusock::this_thread(), at, kBacklog);
  if (report->listener >= 0) net.getsockname(report->listener, report->local);
}

/// C = A * B by one block, tile by tile in shared memory.
template <class Block>
__device__ void multiply(const Block& block, const float* a, const float* b, float* c, const Request& size) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const unsigned x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  for (unsigned top = 0; top < size.rows; top += kTile) {
    for (unsigned left = 0; left < size.columns; left += kTile) {
      float sums[kTile / kRowsOfThreads] = {};
      for (unsigned first = 0; first < size.inner; first += kTile) {
        for (unsigned row = y; row < kTile; row += kRowsOfThreads) {
          tile_a[row][x] = top + row < size.rows && first + x < size.inner ? a[(top + row) * size.inner + first + x]
                                                                           : 0;
          tile_b[row][x] = first + row < size.inner && left + x < size.columns
                               ? b[(first + row) * size.columns + left + x]
                               : 0;
        }
        block.sync();
        for (int i = 0; i < kTile / kRowsOfThreads; ++i) {
          for (int k = 0; k < kTile; ++k) sums[i] += tile_a[y + i * kRowsOfThreads][k] * tile_b[k][x];
        }
        block.sync();
      }
      for (int i = 0; i < kTile / kRowsOfThreads; ++i) {
        const unsigned row = top + y + i * kRowsOfThreads, column = left + x;
        if (row < size.rows && column < size.columns) c[row * size.columns + column] = sums[i];
      }
    }
  }
  block.sync();
}

/// Receives all `bytes`, however slowly, as long as some come in time.
template <class Block>
__device__ bool receive_all(const Block& block, const Net& net, Socket client, void* data, std::uint64_t bytes,
                            std::uint64_t patience_ns) {
  for (std::uint64_t done = 0; done < bytes;) {
    const auto got = net.recv(block, client, static_cast<char*>(data) + done, bytes - done, 0,
                              Deadline::after_ns(patience_ns));
    if (got <= 0) return false;
    done += static_cast<std::uint64_t>(got);
  }
  return true;
}

template <class Block>
__device__ bool send_all(const Block& block, const Net& net, Socket client, const void* data, std::uint64_t bytes,
                         int flags, std::uint64_t patience_ns) {
  for (std::uint64_t done = 0; done < bytes;) {
    const auto sent = net.send(block, client, static_cast<const char*>(data) + done, bytes - done, flags,
                               Deadline::after_ns(patience_ns));
    if (sent <= 0) return false;
    done += static_cast<std::uint64_t>(sent);
  }
  return true;
}

/// What is wrong with a request, as an errno.
__device__ int check(const Request& request, std::uint32_t size_max) {
  if (request.magic != kMagic) return EPROTO;
  const auto fits = [size_max](std::uint32_t size) { return size != 0 && size <= size_max; };
  return fits(request.rows) && fits(request.inner) && fits(request.columns) ? 0 : EMSGSIZE;
}

/// Says why, and reads what is on its way until the client closes too: a close with unread input would make TCP drop
/// the answer.
template <class Block>
__device__ void refuse(const Block& block, const Net& net, Socket client, const Answer& answer, const Service& service,
                       float* rest) {
  net.send(block, client, &answer, sizeof answer, gpusock::kWaitAll, Deadline::after_ns(service.patience_ns));
  net.shutdown(block, client, gpusock::Shutdown::write);
  const Deadline until = Deadline::after_ns(1'000'000'000);
  const std::uint64_t room = sizeof(float) * service.size_max * service.size_max;
  for (std::int64_t left = kDrainBytesMax, got = 1; left > 0 && got > 0; left -= got) {
    got = net.recv(block, client, rest, room, 0, until);
  }
}

/// Answers requests until the client ends, is silent for too long, or asks for what there is not.
template <class Block>
__device__ void serve_client(const Block& block, const Net& net, Socket client, const Service& service,
                             Totals& totals) {
  __shared__ Request request;
  __shared__ Answer answer;
  const std::uint64_t elements = std::uint64_t{service.size_max} * service.size_max;
  float* const a = service.matrices + 3 * elements * blockIdx.x;
  float* const b = a + elements;
  float* const c = b + elements;
  for (;;) {
    if (!receive_all(block, net, client, &request, sizeof request, service.patience_ns)) return;
    const Request size = request;
    const int error = check(size, service.size_max);
    block.sync();  // all have read the request
    if (block.thread_rank() == 0) {
      answer = error == 0 ? Answer{0, size.rows, size.columns, 0}
                          : Answer{error, service.size_max, service.size_max, 0};
    }
    block.sync();
    if (error != 0) {
      if (block.thread_rank() == 0) ++totals.refused;
      return refuse(block, net, client, answer, service, a);
    }
    if (!receive_all(block, net, client, a, sizeof(float) * size.rows * size.inner, service.patience_ns)) return;
    if (!receive_all(block, net, client, b, sizeof(float) * size.inner * size.columns, service.patience_ns)) return;
    multiply(block, a, b, c, size);
    if (block.thread_rank() == 0) ++totals.products;
    if (!send_all(block, net, client, &answer, sizeof answer, gpusock::kMore, service.patience_ns)) return;
    if (!send_all(block, net, client, c, sizeof(float) * size.rows * size.columns, 0, service.patience_ns)) return;
  }
}

/// Each block serves one client after the other; all of them accept on the same listener.
__global__ void serve(Net net, Service service, Report* report, Totals* totals) {
  const auto block = gpusock::this_block();
  for (;;) {
    const Socket client = net.accept(block, service.listener, Deadline::never());
    if (client < 0) {
      if (client != -ECANCELED && block.thread_rank() == 0) report->failed = client;
      return;
    }
    if (block.thread_rank() == 0) ++totals[blockIdx.x].clients;
    serve_client(block, net, client, service, totals[blockIdx.x]);
    net.close(block, client);
  }
}

/// Of three matrices for each block.
std::uint64_t elements_of(unsigned blocks, unsigned size_max) {
  return std::uint64_t{3} * blocks * size_max * size_max;
}

int run(const std::string& where, unsigned blocks, unsigned size_max, unsigned patience_s) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Mapped<Report> report(context, 1);
  gpusock::Mapped<Totals> totals(context, blocks);
  gpusock::DeviceBuffer<float> matrices(context, elements_of(blocks, size_max));
  const Endpoint at = examples::stream_endpoint(where);
  gpusock::launch(context, {.grid = 1, .block = 1}, open_listener, context.net(), at, report.data());
  context.synchronize();
  if (report[0].listener < 0) {
    throw gpusock::program::SocketFailure("listening on " + where, gpusock::program::Attempt::listening,
                                          -report[0].listener, at);
  }

  gpusock::program::print_now("listening on " + report[0].local.to_string() + "\n");
  gpusock::Stream stream(context);
  const Service service{report[0].listener, matrices.data(), size_max, patience_s * 1'000'000'000ull};
  gpusock::launch(context, {.grid = blocks, .block = kThreads, .stream = &stream}, serve, context.net(), service,
                  report.data(), totals.data());
  gpusock::program::wait_for_stop([&] { return stream.idle(); });
  context.cancel();
  context.synchronize();
  if (report[0].failed < 0) throw gpusock::Error(-report[0].failed, "accepting on " + where);
  Totals sum{};
  for (const Totals& block : totals) {
    sum = {sum.clients + block.clients, sum.products + block.products, sum.refused + block.refused};
  }
  std::cout << sum.clients << " clients, " << sum.products << " products, " << sum.refused << " requests refused"
            << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Multiplies the matrices that clients stream, in kernels, until SIGINT or SIGTERM.");
  std::string where;
  unsigned blocks = 8, size_max = 256, patience_s = 30;
  arguments.positional("ENDPOINT", where,
                       "host:port[,link=auto|p2p|verbs|fabric|tcp]; port 0 picks one; link=tcp serves any TCP client");
  arguments.number("--blocks", blocks, "blocks, each serving one client at a time; more clients wait their turn", 1,
                   256);
  arguments.number("--size-max", size_max, "the most rows or columns of a matrix", 1, 4096);
  arguments.number("--patience", patience_s, "seconds without any progress after which a client is given up", 1, 3600);
  arguments.check([&] {
    return gpusock::program::problem_of_memory(sizeof(float) * elements_of(blocks, size_max),
                                               "--blocks x --size-max^2");
  });
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return examples::stream_endpoint(where); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("matmul_server", [&] { return run(where, blocks, size_max, patience_s); });
}
