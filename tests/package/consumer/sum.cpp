// One rank sums a tensor with itself: the public API of param_sync, as a program outside uses it.
#include <param_sync/group.hpp>

#include <iostream>

int main() try {
  gpusock::Context context;
  param_sync::Group group(context, 0, 1);
  gpusock::DeviceBuffer<float> tensor(context, 2);
  tensor.copy_in(std::vector<float>{1, 2});
  group.connect({group.listen(gpusock::Endpoint::parse("127.0.0.1:0"))});
  group.wait(group.all_reduce(tensor.data(), 2));
  std::vector<float> result(2);
  tensor.copy_out(result);
  std::cout << "sum " << result[0] << " " << result[1] << std::endl;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
