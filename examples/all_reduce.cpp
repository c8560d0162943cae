// Ranks sum a tensor with the public API of param_sync (gpusock::param_sync). Ranks are processes that a launcher has
// started. With --ranks they are threads of one process, which tell each other their addresses without a launcher.
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include "param_sync/group.hpp"

#include <algorithm>
#include <barrier>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/// Sums the ranks' tensors. Each float of this rank's tensor is the rank's number plus one.
std::string sum_tensor(gpusock::Context& context, param_sync::Group& group, std::size_t floats) {
  gpusock::DeviceBuffer<float> tensor(context, floats);
  tensor.copy_in(std::vector<float>(floats, static_cast<float>(group.rank() + 1)));

  const auto sum = group.all_reduce({tensor.data(), floats});  // returns at once
  group.wait(sum);                                             // throws if a rank is lost, or after 30 s

  std::vector<float> result(floats);
  tensor.copy_out(result);
  group.wait(group.barrier());
  return std::to_string(group.nodes()) + " ranks: the sum is " + std::to_string(result.front()) + "\n";
}

/// For mpirun -n 4 all_reduce, srun, torchrun, Kubernetes, ./run cluster 4 --. Without a launcher it is the only rank.
int as_processes(std::size_t floats) {
  gpusock::Context context;
  auto group = param_sync::Group::from_environment(context);
  const std::string result = sum_tensor(context, group, floats);
  if (group.rank() == 0) gpusock::program::print(result);
  return gpusock::program::kSuccess;
}

struct Ranks {
  explicit Ranks(int count) : addresses(static_cast<std::size_t>(count)), all_listen(count) {}
  std::vector<gpusock::Endpoint> addresses;
  std::barrier<> all_listen;
  std::string result;
};

void rank(int me, int ranks, std::size_t floats, gpusock::Context& context, Ranks& shared) try {
  param_sync::Group group(context, me, ranks);
  shared.addresses[static_cast<std::size_t>(me)] = group.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
  shared.all_listen.arrive_and_wait();
  group.connect(shared.addresses);
  const std::string result = sum_tensor(context, group, floats);
  if (me == 0) shared.result = result;
} catch (const gpusock::Error& error) {
  std::cerr << "all_reduce: " << error.what() << '\n';
  std::_Exit(1);  // other ranks may wait for this one
}

int as_threads(int count, std::size_t floats) {
  std::vector<std::unique_ptr<gpusock::Context>> contexts;
  for (int i = 0; i < count; ++i) contexts.push_back(std::make_unique<gpusock::Context>());
  Ranks shared(count);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back(rank, i, count, floats, std::ref(*contexts[static_cast<std::size_t>(i)]), std::ref(shared));
    }
  }
  gpusock::program::print(shared.result);
  return gpusock::program::kSuccess;
}

int main(int argc, char** argv) {
  int count = 0;
  std::uint64_t floats = 1'000'000;
  gpusock::program::Arguments arguments(
      "Ranks sum a tensor. They are processes that mpirun, srun, torchrun, Kubernetes or ./run cluster has started "
      "(docs/many_hosts.md).");
  arguments.number("--ranks", count, "Instead: so many threads of this process", 1, 16).shown_default("");
  arguments.number("--floats", floats, "Of the tensor", 1, 1 << 28);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] {  // each rank's tensor, and its copies before and after
    constexpr std::uint64_t kCopies = 3;
    return gpusock::program::problem_of_memory(
        kCopies * sizeof(float) * floats * static_cast<std::uint64_t>(std::max(1, count)),
        count == 0 ? "--floats" : "--ranks x --floats");
  });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("all_reduce",
                               [&] { return count == 0 ? as_processes(floats) : as_threads(count, floats); });
}
