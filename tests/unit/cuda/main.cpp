// The program uses CUDA before it makes a context, as those do that show a GPU's name first.
#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
