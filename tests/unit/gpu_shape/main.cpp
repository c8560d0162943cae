#include <gtest/gtest.h>

#include <cstdlib>

int main(int count, char** arguments) {
  setenv("GPUSOCK_CPU_SHAPE", "gpu", 1);  // before the first context looks
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
