// The one target of this program, for libFuzzer.
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  gpusock::fuzz::targets().front().run(gpusock::fuzz::Input({data, bytes}));
  return 0;
}
