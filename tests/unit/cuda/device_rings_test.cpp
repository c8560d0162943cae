// What is safe beside kernels that wait for bytes: a call of CUDA that waits for kernels, where rings are in host
// memory; not where they are in device memory, since the proxy then needs CUDA for the bytes.
#include "gpusock/device.cuh"
#include "tests/unit/cuda/fixture.hpp"

#include <map>

namespace gpusock::cuda_test {
namespace {

/// Connects, says how far it is, receives 4 bytes.
__global__ void receive(Net net, Endpoint to, std::uint64_t* connected, std::int64_t* received, char* bytes) {
  const Socket socket = net.connect(this_thread(), to, patience());
  Word(*connected).store(1, ringbuf::kRelease);
  *received = socket < 0 ? socket : net.recv(this_thread(), socket, bytes, 4, kWaitAll, patience());
}

class BesideBlockingCalls : public testing::Test {
 protected:
  /// A kernel waits for bytes, a thread frees memory meanwhile, and then this thread sends. What the kernel received.
  std::int64_t receive_while_freeing(RingPlacement ring) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
    Options options = small_options();
    options.ring = ring;
    Context context(options), peer(small_options());
    Mapped<std::uint64_t> connected(context, 1);
    Mapped<std::int64_t> received(context, 1);
    DeviceBuffer<char> bytes(context, 4);
    const Net net = peer.net();
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 1, patience());
    Endpoint at;
    EXPECT_EQ(net.getsockname(listener, at), 0);
    at.link = LinkKind::tcp;
    HangExpected hang([&] { context.cancel(); }, std::chrono::milliseconds(0));  // the default: for ever, to a test
    launch(context, {}, receive, context.net(), at, connected.data(), received.data(), bytes.data());
    const Socket socket = net.accept(this_thread(), listener, patience());
    while (Word(connected[0]).load(ringbuf::kAcquire) == 0) std::this_thread::yield();
    std::thread frees([&] { EXPECT_EQ(cudaFree(memory), cudaSuccess); });
    cuda_double::await_waiting_call("cudaFree");
    EXPECT_EQ(net.send(this_thread(), socket, "four", 4, kWaitAll, patience()), 4);
    if (ring == RingPlacement::device) {
      cuda_double::await_call_that_waits_for("cudaFree");  // the proxy's
      cuda_double::set_hang_limit(std::chrono::milliseconds(20));
    }
    frees.join();
    context.synchronize();
    hang_ = hang.text();
    return received[0];
  }

  std::string hang_;
};

TEST_F(BesideBlockingCalls, BytesOfRingsInHostMemoryPass) {
  EXPECT_EQ(receive_while_freeing(RingPlacement::host), 4) << hang_;
}

TEST_F(BesideBlockingCalls, BytesOfRingsInDeviceMemoryDoNotAndTheHangIsNamed) {
  EXPECT_EQ(receive_while_freeing(RingPlacement::device), -ECANCELED);
  EXPECT_NE(hang_.find("  cudaFree ("), std::string::npos) << hang_;
  EXPECT_NE(hang_.find("receive("), std::string::npos) << hang_;
  EXPECT_NE(hang_.find(") waits for cudaFree ("), std::string::npos) << hang_;  // the proxy, in whichever call
}

/// How many pieces of device memory there are, by their bytes.
std::map<std::size_t, int> pieces_of_device_memory() {
  const std::string call = "cudaMalloc ";
  std::map<std::size_t, int> pieces;
  for (const std::string& each : cuda_double::left()) {
    if (each.starts_with(call)) ++pieces[std::stoull(each.substr(call.size()))];
  }
  return pieces;
}

/// A GPU gives large pieces out in multiples of 2 MiB, and puts small ones together.
TEST(RingsInDeviceMemory, TakeNoMoreOfAGpuThanTheyAreLong) {
  constexpr std::size_t kGranule = 2 << 20, kLarge = 1 << 20;
  Options options = small_options();
  options.ring = RingPlacement::device;
  options.ring_bytes = kGranule / 2;  // the default on a GPU
  auto pieces = pieces_of_device_memory();
  for (auto& [bytes, count] : pieces) count = -count;
  const Context context(options);
  for (const auto& [bytes, count] : pieces_of_device_memory()) pieces[bytes] += count;
  std::size_t taken = 0, small = 0;
  for (const auto& [bytes, count] : pieces) {
    const std::size_t in_granules = (bytes + kGranule - 1) / kGranule * kGranule;
    (bytes >= kLarge ? taken : small) += static_cast<std::size_t>(count) * (bytes >= kLarge ? in_granules : bytes);
  }
  EXPECT_EQ(taken, options.connections_max * kGranule);
  EXPECT_LT(small, kLarge);
}

}  // namespace
}  // namespace gpusock::cuda_test
