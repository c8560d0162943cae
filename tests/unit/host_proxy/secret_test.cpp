// Proofs are HMAC-SHA256, whatever OpenSSL calls make them.
#include "host_proxy/negotiation/secret.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gpusock::proxy {
namespace {

std::string hex_of(const Proof& proof) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : proof) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

/// RFC 4231, test case 2; and of no key and no text.
TEST(Secret, MakesTheProofsOfTheStandard) {
  const std::string jefe = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  const Secret secret("Jefe"), copy = secret;
  EXPECT_EQ(hex_of(secret.prove("what do ya want ", "for nothing?")), jefe);
  EXPECT_EQ(hex_of(secret.prove("what do ya want for nothing?", "")), jefe);  // a proof leaves nothing in the secret
  EXPECT_EQ(hex_of(copy.prove("", "what do ya want for nothing?")), jefe);
  EXPECT_EQ(hex_of(Secret().prove("", "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  EXPECT_TRUE(Secret().empty());
  EXPECT_FALSE(secret.empty());
}

}  // namespace
}  // namespace gpusock::proxy
