// A rank of a group that sums until a failure ends it, and prints that: what a program does that is written from
// docs/groups.md. The test that starts it ends some.
#include "param_sync/group.hpp"
#include "param_sync/parameters.hpp"

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kFloats[] = {100, 100'000};          // by "auto" of two schemes
constexpr std::uint64_t kFirstTimeoutNs = 60'000'000'000;  // ranks begin apart on a busy machine

struct Arguments {
  int rank;
  int ranks;
  std::string link;
  std::string does;  // sums, parameters, or misuse: as sums, and then an invalid argument
  std::uint64_t timeout_ns;
};

void connect(param_sync::Group& group, const Arguments& arguments) {
  const auto at = group.listen(gpusock::Endpoint::parse("127.0.0.1:0,link=" + arguments.link));
  std::cout << "listening " << at.host_port() << std::endl;
  std::string line, address;
  std::getline(std::cin, line);
  std::istringstream all(line);
  std::vector<gpusock::Endpoint> addresses;
  while (all >> address) addresses.push_back(gpusock::Endpoint::parse(address + ",link=" + arguments.link));
  group.connect(addresses);
}

void sum(param_sync::Group& group, gpusock::DeviceBuffer<float>& tensor, const Arguments& arguments) {
  for (std::uint64_t i = 0;; ++i) {
    const std::uint64_t timeout_ns = i == 0 ? kFirstTimeoutNs : arguments.timeout_ns;
    group.wait(group.all_reduce({tensor.data(), kFloats[i % 2]}, param_sync::ReduceOp::sum, timeout_ns));
    if (i != 0) continue;
    std::cout << "running" << std::endl;
    if (arguments.does == "misuse") group.wait(group.broadcast({tensor.data(), 1}, arguments.ranks));
  }
}

void train(param_sync::Group& group, gpusock::DeviceBuffer<float>& tensor, const Arguments& arguments) {
  const std::vector<float> initial(kFloats[1]);
  param_sync::Parameters parameters(group, initial, param_sync::Update::sgd(0.1f));
  for (std::uint64_t i = 0;; ++i) {
    const std::uint64_t timeout_ns = i == 0 ? kFirstTimeoutNs : arguments.timeout_ns;
    parameters.push(tensor.data(), timeout_ns);
    group.wait(parameters.pull(tensor.data(), timeout_ns));
    if (i == 0) std::cout << "running" << std::endl;
  }
}

}  // namespace

int main(int, char** argv) try {
  const Arguments arguments{std::stoi(argv[1]), std::stoi(argv[2]), argv[3], argv[4], std::stoull(argv[5]) * 1'000'000};
  gpusock::Context context;
  param_sync::Group group(context, arguments.rank, arguments.ranks);
  gpusock::DeviceBuffer<float> tensor(context, kFloats[1]);
  tensor.copy_in(std::vector<float>(kFloats[1]));
  connect(group, arguments);
  arguments.does == "parameters" ? train(group, tensor, arguments) : sum(group, tensor, arguments);
} catch (const gpusock::Error& error) {
  std::cout << "error " << error.what() << std::endl;
  return 1;
}
