// The echo kernel of the README, in a project of its own. Serves one client and ends. It differs in what lets a test
// run it anywhere: the endpoint comes from the command line, and the port that the system picked is printed.
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>

#include <cuda/atomic>
#include <iostream>
#include <thread>

using Word = cuda::atomic_ref<std::int64_t, cuda::thread_scope_system>;

__global__ void echo(gpusock::Net net, gpusock::Endpoint at, std::int64_t* port) {
  auto block = gpusock::this_block();
  __shared__ char buffer[4096];
  auto listener = net.listen(block, at);
  if (block.thread_rank() == 0) {
    const int status = net.getsockname(listener, at);
    Word(*port).store(status < 0 ? -1 : at.port, cuda::memory_order_release);
  }
  auto peer = net.accept(block, listener, gpusock::Deadline::never());
  while (auto n = net.recv(block, peer, buffer, sizeof buffer)) {
    if (n < 0 || net.send(block, peer, buffer, n, gpusock::kWaitAll) < 0) break;
  }
  net.close(block, peer);
  net.close(block, listener);
}

int main(int, char** argv) try {
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Mapped<std::int64_t> port(context, 1);
  gpusock::launch(context, {.grid = 1, .block = 64}, echo, context.net(), gpusock::Endpoint::parse(argv[1]),
                  port.data());
  while (Word(port[0]).load(cuda::memory_order_acquire) == 0) std::this_thread::yield();
  std::cout << "listening on 127.0.0.1:" << port[0] << std::endl;
  context.synchronize();
  return port[0] > 0 ? 0 : 1;
} catch (const gpusock::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
