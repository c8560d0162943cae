// Multiplies matrices in kernels, until SIGINT or SIGTERM. Any number of clients stream pairs of matrices.
//   matmul_server 127.0.0.1:7000,link=tcp
//
// Protocol, all numbers little-endian, matrices row by row as 32-bit floats. A client sends any number of requests on a
// connection, also before it reads the answers to earlier ones:
//   4 bytes "MMUL", then rows, inner and columns as 4 bytes each; A (rows x inner); B (inner x columns)
// and gets an answer to each, in their order:
//   an errno as 4 bytes, then rows and columns as 4 bytes each, and 4 bytes 0; C = A * B (rows x columns)
// If the errno is not 0, no matrix follows, and the connection ends. It is 71 (EPROTO) for what is not a request, and
// 90 (EMSGSIZE) for a size that is 0 or larger than the server takes; rows and columns are then the largest size.
#include <gpusock/gpusock.hpp>
#include <gpusock/io.cuh>
#include <gpusock/owned_socket.cuh>

#include "examples/endpoints.hpp"
#include "examples/listening.cuh"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

using gpusock::Deadline;
using gpusock::Net;
using gpusock::Socket;

constexpr int kBacklog = 128;
constexpr int kTile = 16;
constexpr int kRowsOfThreads = 4;  // each thread computes every fourth element of a tile's column
constexpr int kThreads = kTile * kRowsOfThreads;
constexpr std::size_t kOutBytes = 4 << 10;
constexpr std::uint64_t kDrainBytesMax = 16 << 20;
constexpr std::uint32_t kMagic = 0x4C554D4D;  // "MMUL"

struct Request {
  std::uint32_t magic, rows, inner, columns;
};
struct Answer {
  std::int32_t error;  ///< errno
  std::uint32_t rows, columns, zero;
};

/// What a block tells the host.
struct Totals {
  std::uint64_t clients, products, refused;
  std::int64_t failed;  ///< 0, or why accepting ended
};

/// What every block serves with.
struct Service {
  Socket listener;
  float* memory;  ///< elements_of_block() for each block
  std::uint32_t size_max;
  std::uint64_t patience_ns;  ///< how long sending waits for a client that does not read

  /// Elements of the largest matrix.
  GPUSOCK_FN std::uint64_t elements() const { return std::uint64_t{size_max} * size_max; }
};

constexpr std::uint64_t kRequestElements = sizeof(Request) / sizeof(float);

/// Elements that a block's memory has: for a request, for two matrices that are received, and for their product.
GPUSOCK_FN constexpr std::uint64_t elements_of_block(std::uint64_t size_max) {
  return kRequestElements + 3 * size_max * size_max;
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

/// Says what is wrong with a request: an errno, or 0.
__device__ int check(const Request& request, std::uint32_t size_max) {
  if (request.magic != kMagic) return EPROTO;
  const auto fits = [size_max](std::uint32_t size) { return size != 0 && size <= size_max; };
  return fits(request.rows) && fits(request.inner) && fits(request.columns) ? 0 : EMSGSIZE;
}

/// Answers one request. Returns 0 if the next one may follow, or the errno that the client was told. Negative: the
/// client has ended, is silent, or does not read.
template <class Block>
__device__ int answer_request(const Block& block, gpusock::Reader<Block>& reader, gpusock::Writer<Block>& writer,
                              const Service& service, float* product, Totals& totals) {
  const auto head = reader.exactly(sizeof(Request));
  if (!head) return head.error();
  const Request size = *reinterpret_cast<const Request*>(head.data);
  if (const int error = check(size, service.size_max); error != 0) {
    const Answer refusal{error, service.size_max, service.size_max, 0};
    if (block.thread_rank() == 0) ++totals.refused;
    const int failed = writer.write(&refusal, sizeof refusal).flush();
    return failed != 0 ? failed : error;
  }
  const std::uint64_t elements_of_a = std::uint64_t{size.rows} * size.inner;
  const std::uint64_t elements_of_b = std::uint64_t{size.inner} * size.columns;
  const auto both = reader.exactly(sizeof(float) * (elements_of_a + elements_of_b));
  if (!both) return both.error();
  const auto* const a = reinterpret_cast<const float*>(both.data);
  multiply(block, a, a + elements_of_a, product, size);
  if (block.thread_rank() == 0) ++totals.products;
  const Answer answer{0, size.rows, size.columns, 0};
  writer.write(&answer, sizeof answer).write(product, sizeof(float) * size.rows * size.columns);
  return writer.flush();
}

/// Each block serves one client after the other; all of them accept on the same listener.
__global__ void serve(Net net, Service service, Totals* all_totals) {
  const auto block = gpusock::this_block();
  __shared__ char out[kOutBytes];
  float* const received = service.memory + elements_of_block(service.size_max) * blockIdx.x;
  const std::uint64_t room = sizeof(float) * (kRequestElements + 2 * service.elements());
  float* const product = received + kRequestElements + 2 * service.elements();
  Totals& totals = all_totals[blockIdx.x];
  for (;;) {
    // Only this block uses the socket: its calls are counted once, and the end of the scope closes the socket.
    const gpusock::OwnedSocket client(block, net, net.accept(block, service.listener, Deadline::never()));
    if (client.error() != 0) {
      if (client.error() != -ECANCELED && block.thread_rank() == 0) totals.failed = client.error();
      return;
    }
    if (block.thread_rank() == 0) ++totals.clients;
    gpusock::Reader reader(block, client.net(), client.socket(), received, room);
    gpusock::Writer writer(block, client.net(), client.socket(), out, sizeof out, service.patience_ns);
    int result = 0;
    while (result == 0) result = answer_request(block, reader, writer, service, product, totals);
    if (result > 0) {  // A close with unread input would make TCP drop the refusal: reads until the client closes, too.
      client.net().shutdown(block, client.socket(), gpusock::Shutdown::write);
      reader.skip(kDrainBytesMax, Deadline::after_ms(1000));
    }
  }
}

int run(const std::string& where, unsigned blocks, unsigned size_max, unsigned patience_s) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Options options = gpusock::Options::from_env();
  options.timeout_ns = patience_s * std::uint64_t{1'000'000'000};  // of calls that are given no deadline
  gpusock::Context context(options);
  gpusock::Mapped<Totals> totals(context, blocks);
  gpusock::DeviceBuffer<float> memory(context, blocks * elements_of_block(size_max));
  const gpusock::Listener listener = examples::listen(context, examples::stream_endpoint(where), where, kBacklog);

  gpusock::program::print_now("listening on " + listener.where.to_string() + "\n");
  gpusock::Stream stream(context);
  const Service service{listener.socket, memory.data(), size_max, options.timeout_ns};
  gpusock::launch(context, {.grid = blocks, .block = kThreads, .stream = &stream}, serve, context.net(), service,
                  totals.data());
  gpusock::program::wait_for_stop([&] { return stream.idle(); });
  context.cancel();
  context.synchronize();
  Totals sum{};
  for (const Totals& block : totals) {
    if (block.failed < 0) throw gpusock::Error(static_cast<int>(-block.failed), "accepting on " + where);
    sum = {sum.clients + block.clients, sum.products + block.products, sum.refused + block.refused, 0};
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
