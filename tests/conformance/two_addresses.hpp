#pragma once
// Device memory that kernels of one process reach by two addresses; and which GPUs reach each other's.
#include <gpusock/gpusock.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace gpusock::conformance {

/// Zeroed memory of the context's GPU that is mapped twice, as two processes map an arena.
class TwoAddresses {
 public:
  /// Throws Error (ENOTSUP): this device has no such memory.
  TwoAddresses(Context& context, std::size_t bytes);
  ~TwoAddresses();
  TwoAddresses(const TwoAddresses&) = delete;
  TwoAddresses& operator=(const TwoAddresses&) = delete;

  std::byte* one() const;
  std::byte* other() const;

 private:
  struct Mappings;
  std::unique_ptr<Mappings> mappings_;
};

/// Why kernels of the two do not reach each other's device memory; empty where they do.
std::string why_apart(Context& one, Context& other);

}  // namespace gpusock::conformance
