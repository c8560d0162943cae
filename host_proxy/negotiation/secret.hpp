#pragma once
/// @file The shared secret, as handshakes use it: it makes proofs.

#include "host_proxy/negotiation/handshake_messages.hpp"

#include <openssl/types.h>

#include <memory>
#include <string>
#include <string_view>

namespace gpusock::proxy {

/// A secret, or none. Threads may share it. A copy has the same key.
class Secret {
 public:
  Secret() : Secret(std::string()) {}
  // NOLINTBEGIN(google-explicit-constructor): a secret is a text
  Secret(const std::string& text);
  Secret(const char* text) : Secret(std::string(text)) {}
  // NOLINTEND(google-explicit-constructor)

  bool empty() const { return empty_; }
  /// The HMAC-SHA256 of both texts, one after the other. Without memory for it: random bytes, which equal no proof, so
  /// that the handshake fails.
  Proof prove(std::string_view side, std::string_view transcript) const;

 private:
  bool empty_;
  std::shared_ptr<EVP_MAC_CTX> keyed_;  // null if OpenSSL has no memory, or no HMAC
};

}  // namespace gpusock::proxy
