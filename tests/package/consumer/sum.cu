// One rank sums a tensor with itself, shares weights with itself, and has a kernel start a sum: the public API of
// param_sync, as a program outside uses it.
#include <param_sync/parameters.hpp>
#include <param_sync/resident.cuh>

#include <iostream>

__global__ void sum_in_kernel(param_sync::SumsHandle sums, float* tensor, int* error) {
  tensor[threadIdx.x] += 10;
  const std::uint64_t sum = param_sync::start_sum(sums, 0);
  const int result = param_sync::await_sum(sums, 0, sum);
  if (threadIdx.x == 0) *error = result;
}

void show(const char* what, const gpusock::DeviceBuffer<float>& tensor) {
  std::vector<float> result(2);
  tensor.copy_out(result);
  std::cout << what << " " << result[0] << " " << result[1] << std::endl;
}

int main() try {
  gpusock::Context context;
  param_sync::Group group(context, 0, 1);
  gpusock::DeviceBuffer<float> tensor(context, 2), weights(context, 2);
  tensor.copy_in(std::vector<float>{1, 2});
  group.connect({group.listen(gpusock::Endpoint::parse("127.0.0.1:0"))});
  group.wait(group.all_reduce({tensor.data(), 2}));
  show("sum", tensor);

  const std::vector<float> initial{5, 5};
  param_sync::Parameters parameters(group, initial, param_sync::Update::sgd(0.5f));
  parameters.push(tensor.data());
  group.wait(parameters.pull(weights.data()));
  show("weights", weights);

  param_sync::ResidentSums resident(group, {{weights.data(), 2}});
  gpusock::Stream stream(context);
  gpusock::Mapped<int> error(context, 1);
  gpusock::launch(context, {.block = 2, .stream = &stream}, sum_in_kernel, resident.start(), weights.data(),
                  error.data());
  stream.synchronize();
  if (error[0] != 0) throw gpusock::Error(-error[0], "a sum that a kernel started");
  show("in a kernel", weights);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
