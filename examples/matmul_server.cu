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
#include <gpusock/gpusock.hpp>
#include <gpusock/io.cuh>

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
  float* memory;  ///< elements_of_block() for each block
  std::uint32_t size_max;

  /// Of the largest matrix.
  GPUSOCK_FN std::uint64_t elements() const { return std::uint64_t{size_max} * size_max; }
};

constexpr std::uint64_t kRequestElements = sizeof(Request) / sizeof(float);

/// What a block needs: room for a request or for two matrices that are received, and for their product.
GPUSOCK_FN constexpr std::uint64_t elements_of_block(std::uint64_t size_max) {
  return kRequestElements + 3 * size_max * size_max;
}

__global__ void open_listener(Net net, Endpoint at, std::int64_t patience_ns, Report* report) {
  const auto me = gpusock::this_thread();
  report->listener = net.listen(me, at, kBacklog);
  if (report->listener < 0) return;
  // How long a client may be silent, or not read, however much it sends or reads in all: accepted sockets have that,
  // too.
  net.setsockopt(me, report->listener, gpusock::SocketOption::receive_timeout_ns, patience_ns);
  net.setsockopt(me, report->listener, gpusock::SocketOption::send_timeout_ns, patience_ns);
  net.getsockname(report->listener, report->local);
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

/// What is wrong with a request, as an errno.
__device__ int check(const Request& request, std::uint32_t size_max) {
  if (request.magic != kMagic) return EPROTO;
  const auto fits = [size_max](std::uint32_t size) { return size != 0 && size <= size_max; };
  return fits(request.rows) && fits(request.inner) && fits(request.columns) ? 0 : EMSGSIZE;
}

/// Says why, and reads what is on its way until the client closes too: a close with unread input would make TCP drop
/// the answer.
template <class Block>
__device__ void refuse(const Block& block, const Net& net, Socket client, const Answer& answer, float* rest,
                       std::uint64_t room) {
  net.send(block, client, &answer, sizeof answer, gpusock::kWaitAll);
  net.shutdown(block, client, gpusock::Shutdown::write);
  const Deadline until = Deadline::after_ns(1'000'000'000);
  for (std::int64_t left = kDrainBytesMax, got = 1; left > 0 && got > 0; left -= got) {
    got = net.recv(block, client, rest, room, 0, until);
  }
}

/// Answers requests until the client ends, is silent for too long, or asks for what there is not.
template <class Block>
__device__ void serve_client(const Block& block, const Net& net, Socket client, const Service& service,
                             Totals& totals) {
  __shared__ Answer answer;
  float* const received = service.memory + elements_of_block(service.size_max) * blockIdx.x;
  const std::uint64_t room = sizeof(float) * (kRequestElements + 2 * service.elements());
  float* const product = received + kRequestElements + 2 * service.elements();
  gpusock::Reader reader(block, net, client, received, room);
  for (;;) {
    const auto head = reader.exactly(sizeof(Request));
    if (!head) return;
    const Request size = *reinterpret_cast<const Request*>(head.data);
    const int error = check(size, service.size_max);
    block.sync();  // no thread still sends the answer before
    if (block.thread_rank() == 0) {
      answer = error == 0 ? Answer{0, size.rows, size.columns, 0}
                          : Answer{error, service.size_max, service.size_max, 0};
      totals.refused += error != 0;
    }
    block.sync();
    if (error != 0) return refuse(block, net, client, answer, received, room);
    const std::uint64_t elements_of_a = std::uint64_t{size.rows} * size.inner;
    const std::uint64_t elements_of_b = std::uint64_t{size.inner} * size.columns;
    const auto both = reader.exactly(sizeof(float) * (elements_of_a + elements_of_b));
    if (!both) return;
    const auto* const a = reinterpret_cast<const float*>(both.data);
    multiply(block, a, a + elements_of_a, product, size);
    if (block.thread_rank() == 0) ++totals.products;
    const std::uint64_t bytes = sizeof(float) * size.rows * size.columns;
    if (net.send(block, client, &answer, sizeof answer, gpusock::kWaitAll | gpusock::kMore) < 0) return;
    if (net.send(block, client, product, bytes, gpusock::kWaitAll) < 0) return;
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

int run(const std::string& where, unsigned blocks, unsigned size_max, unsigned patience_s) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Mapped<Report> report(context, 1);
  gpusock::Mapped<Totals> totals(context, blocks);
  gpusock::DeviceBuffer<float> memory(context, blocks * elements_of_block(size_max));
  const Endpoint at = examples::stream_endpoint(where);
  gpusock::launch(context, {.grid = 1, .block = 1}, open_listener, context.net(), at,
                  patience_s * std::int64_t{1'000'000'000}, report.data());
  context.synchronize();
  if (report[0].listener < 0) {
    throw gpusock::program::SocketFailure("listening on " + where, gpusock::program::Attempt::listening,
                                          -report[0].listener, at);
  }

  gpusock::program::print_now("listening on " + report[0].local.to_string() + "\n");
  gpusock::Stream stream(context);
  const Service service{report[0].listener, memory.data(), size_max};
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
    return gpusock::program::problem_of_memory(sizeof(float) * blocks * elements_of_block(size_max),
                                               "--blocks x --size-max^2");
  });
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return examples::stream_endpoint(where); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("matmul_server", [&] { return run(where, blocks, size_max, patience_s); });
}
