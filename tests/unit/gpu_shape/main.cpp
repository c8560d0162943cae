#include <gtest/gtest.h>

#include <cstdlib>

int main(int count, char** arguments) {
  setenv("GPUSOCK_CPU_SHAPE", "gpu", 1);   // before the first context looks
  setenv("GPUSOCK_HOST_RINGS", "off", 1);  // else tests of other programs, which run meanwhile, would use the same
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
