#include "kernel_peer.hpp"

#include "obedient_peer.hpp"
#include "stall.hpp"

#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "tests/support/patience.hpp"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <mutex>
#include <string>

namespace gpusock::fault {
namespace {

struct Served {
  Endpoint at;
  std::uint64_t listening = 0;
};

/// Echoes what the one client says, until that ends.
__global__ void echo(Net net, Endpoint at, Served* served) {
  const Socket listener = net.listen(this_thread(), at, 1, patience());
  net.getsockname(listener, served->at);
  detail::SystemRef(served->listening).store(1, ringbuf::kRelease);
  const Socket socket = net.accept(this_thread(), listener, patience());
  char buffer[512];
  for (;;) {
    const auto bytes = net.recv(this_thread(), socket, buffer, sizeof buffer, 0, patience());
    if (bytes <= 0 ||
        net.send(this_thread(), socket, buffer, static_cast<std::size_t>(bytes), kWaitAll, patience()) < 0)
      break;
  }
  net.close(this_thread(), socket);
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int echo_in_kernel(const std::string& endpoint) {
  Context context(patient_options());
  Mapped<Served> served(context, 1);
  launch(context, {}, echo, context.net(), Endpoint::parse(endpoint), served.data());
  while (detail::SystemRef(served[0].listening).load(ringbuf::kAcquire) == 0) usleep(100);
  say(served[0].at.host_port());
  std::unique_lock<std::mutex> stopped;
  for (std::string command; std::getline(std::cin, command); say(command)) {
    if (command == "stop") stopped = stall(context);
    if (command == "go_on") stopped = {};
  }
  stopped = {};
  context.synchronize();
  return 0;
}

}  // namespace gpusock::fault
