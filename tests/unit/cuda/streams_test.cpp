// Streams and the hardware queues that they share.
#include "tests/unit/cuda/fixture.hpp"

namespace gpusock::cuda_test {
namespace {

TEST(CudaStreams, KernelsOfFourContextsRunAtTheSameTime) {
  struct Node {
    Context context{small_options()};
    Stream streams[3]{Stream(context), Stream(context), Stream(context)};
    Mapped<std::uint64_t> words{context, 4};
  };
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(std::make_unique<Node>());
  const auto stream_of = [&](int i) {
    return i % 4 == 3 ? nullptr : &nodes[static_cast<std::size_t>(i / 4)]->streams[i % 4];
  };
  const auto word_of = [&](int i) {
    return &nodes[static_cast<std::size_t>(i / 4)]->words[static_cast<std::size_t>(i % 4)];
  };
  for (int i = 0; i < 15; ++i)
    launch(nodes[static_cast<std::size_t>(i / 4)]->context, {.stream = stream_of(i)}, wait_for<2>, word_of(i));
  launch(nodes[3]->context, {.stream = stream_of(15)}, set<2>, word_of(0), std::uint64_t{1});  // the last of them frees
                                                                                               // the first
  nodes[0]->streams[0].synchronize();
  for (int i = 0; i < 15; ++i) raise(*word_of(i));
  for (auto& node : nodes) node->context.synchronize();
}

TEST(CudaStreams, AStreamThatIsMadeAnewDoesNotGetToTheQueueOfAKernelThatRuns) {
  Context context(small_options());
  Mapped<std::uint64_t> words(context, 2);
  launch(context, {}, wait_for<2>, &words[0]);
  for (int i = 0; i < cuda_double::hardware_queues(); ++i) {
    Stream stream(context);
    launch(context, {.stream = &stream}, set<2>, &words[1], static_cast<std::uint64_t>(i));
    stream.synchronize();
  }
  raise(words[0]);
  context.synchronize();
}

TEST(CudaStreams, MoreStreamsThanHardwareQueuesAreRefused) {
  Context context(small_options());
  std::vector<std::unique_ptr<Stream>> streams;
  const Thrown thrown = thrown_by([&] {
    for (int i = 0; i < cuda_double::hardware_queues(); ++i) streams.push_back(std::make_unique<Stream>(context));
  });
  EXPECT_EQ(thrown.error, ENOBUFS);
  EXPECT_NE(thrown.what.find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos) << thrown.what;
  EXPECT_GE(streams.size(), static_cast<std::size_t>(cuda_double::hardware_queues()) / 2);
  streams.clear();
  Stream again(context);
}

}  // namespace
}  // namespace gpusock::cuda_test
