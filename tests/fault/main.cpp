#include "network.hpp"
#include "peer.hpp"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--peer") return gpusock::fault::be_peer(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  gpusock::fault::enter_own_network();
  return RUN_ALL_TESTS();
}
