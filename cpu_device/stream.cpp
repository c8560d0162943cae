#include "cpu_device/launch.hpp"
#include "cpu_device/pool.hpp"

#include <limits>

namespace cpu_device {

namespace detail {

std::string to_string(const uint3& index) {
  std::string text(1, '(');
  text += std::to_string(index.x) += ',';
  text += std::to_string(index.y) += ',';
  return text += std::to_string(index.z) += ')';
}

std::string Launch::kernel_name() const { return kernel ? function_name(kernel) : name; }

namespace {

void require(bool holds, const char* limit, const dim3& shape) {
  if (!holds) throw std::invalid_argument(std::string("launch: ") + limit + "; asked for " + to_string(shape));
}

void check(const LaunchShape& shape) {
  const dim3 &grid = shape.grid, &block = shape.block;
  require(block.x != 0 && block.y != 0 && block.z != 0, "a block has at least one thread in each dimension", block);
  require(block.x <= 1024 && block.y <= 1024 && block.z <= 64, "a block is at most (1024,1024,64) threads", block);
  require(block.x * block.y * block.z <= kBlockThreadsMax, "a block is at most 1024 threads in all", block);
  require(grid.x != 0 && grid.y != 0 && grid.z != 0, "a grid has at least one block in each dimension", grid);
  require(grid.x <= unsigned{std::numeric_limits<int>::max()} && grid.y <= 65535 && grid.z <= 65535,
          "a grid is at most (2147483647,65535,65535) blocks", grid);
  if (shape.shared_bytes > kSharedBytesMax) {
    throw std::invalid_argument("launch: a block has at most " + std::to_string(kSharedBytesMax) +
                                " bytes of dynamic shared memory; asked for " + std::to_string(shape.shared_bytes));
  }
}

void enqueue(const std::shared_ptr<StreamState>& stream, const LaunchShape& shape, std::string name, const void* kernel,
             std::function<void()> body) {
  check(shape);
  auto launch = std::make_shared<Launch>();
  launch->shape = shape;
  launch->name = std::move(name);
  launch->kernel = kernel;
  launch->body = std::move(body);
  launch->stream = stream;
  launch->blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  pool().enqueue(std::move(launch));
}

}  // namespace
}  // namespace detail

KernelFault::KernelFault(std::string kernel, uint3 block, uint3 thread, const std::string& what_happened)
    : std::runtime_error("kernel " + kernel + ", block " + detail::to_string(block) + ", thread " +
                         detail::to_string(thread) + ": " + what_happened),
      kernel_(std::move(kernel)),
      block_(block),
      thread_(thread) {}

Stream::Stream() : state_(std::make_shared<detail::StreamState>(detail::pool().queue_of_new_stream())) {}

Stream::~Stream() { detail::pool().wait(*state_); }

void Stream::enqueue(LaunchShape shape, std::string kernel_name, std::function<void()> body) {
  detail::enqueue(state_, shape, std::move(kernel_name), nullptr, std::move(body));
}

void Stream::enqueue_kernel(LaunchShape shape, const void* kernel, std::function<void()> body) {
  detail::enqueue(state_, shape, {}, kernel, std::move(body));
}

void Stream::synchronize() {
  if (in_kernel())
    throw std::logic_error("Stream::synchronize was called by a kernel: only host threads may wait for a stream");
  detail::pool().wait(*state_);
  if (auto fault = detail::pool().take_fault(*state_)) throw *fault;
}

bool Stream::idle() const { return detail::pool().idle(*state_); }

}  // namespace cpu_device
