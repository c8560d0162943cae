#include "host_proxy/negotiation/secret.hpp"

#include "host_proxy/base/random.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cstddef>

namespace gpusock::proxy {
namespace {

struct Free {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MAC_CTX, Free>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

// The key is taken in once. HMAC() does it for each proof, and looks up the algorithm: 2.6 us instead of 1.1.
Secret::Secret(const std::string& text) : empty_(text.empty()) {
  static EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  if (hmac == nullptr) return;
  char digest[] = OSSL_DIGEST_NAME_SHA2_256;
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  Context made(EVP_MAC_CTX_new(hmac));
  if (made == nullptr || EVP_MAC_init(made.get(), bytes_of(text), text.size(), parameters) != 1) return;
  keyed_ = std::move(made);
}

Proof Secret::prove(std::string_view side, std::string_view transcript) const {
  Proof proof{};
  std::size_t bytes = 0;
  const Context context(keyed_ == nullptr ? nullptr : EVP_MAC_CTX_dup(keyed_.get()));
  const bool made = context != nullptr && EVP_MAC_update(context.get(), bytes_of(side), side.size()) == 1 &&
                    EVP_MAC_update(context.get(), bytes_of(transcript), transcript.size()) == 1 &&
                    EVP_MAC_final(context.get(), proof.data(), &bytes, proof.size()) == 1;
  return made && bytes == proof.size() ? proof : random_bytes<32>();
}

}  // namespace gpusock::proxy
