#pragma once
/// @file One endpoint of a fabric, as the fabric link sees it: one-sided writes with completion data, and their
/// completions. Production uses libfabric's endpoints; tests wrap these, or use others, to change the order.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

/// Memory that is registered with the fabric. The destructor ends all access to it through the fabric.
class FabricRegistration {
 public:
  virtual ~FabricRegistration() = default;
  virtual std::uint64_t address() const = 0;  ///< of the first byte, as peers name it
  virtual std::uint64_t key() const = 0;
  virtual void* descriptor() const = 0;  ///< names the memory in writes from it
};

enum class FabricAccess { local_source, remote_target };

struct FabricWrite {
  const void* from = nullptr;
  std::size_t bytes = 0;
  const FabricRegistration* source = nullptr;  ///< which contains `from`; nullptr if the port needs none
  std::uint64_t peer = 0;                      ///< number from add_peer()
  std::uint64_t address = 0;                   ///< within the memory of the peer's FabricRegistration
  std::uint64_t key = 0;
  std::uint32_t data = 0;   ///< completion data: handed to the peer once the bytes are there
  std::uint64_t token = 0;  ///< comes back in the completion
  bool delivered = false;   ///< completes only once the bytes are at the peer, if the fabric can report that
};

struct Completion {
  enum class Kind {
    written,  ///< `token`'s memory may be used again
    arrived,  ///< a peer's write has arrived, with `data`
    failed,   ///< `token`'s write failed, or the whole endpoint if it is kNoToken: `error` and `reason` say why
  };
  static constexpr std::uint64_t kNoToken = ~std::uint64_t{0};

  Kind kind = Kind::written;
  std::uint64_t token = kNoToken;
  std::uint64_t data = 0;  ///< only the low 32 bits are valid: fabrics differ in how many they carry
  int error = 0;           ///< an errno
  std::string reason;      ///< the fabric's text
};

class FabricPort {
 public:
  virtual ~FabricPort() = default;

  /// True if the endpoint must have been idle for a while before it is closed.
  virtual bool closes_only_idle() const { return false; }
  /// Ends all operations: after this call the fabric touches no memory of this endpoint's writes. Call it once, before
  /// the registrations that are still in use are destroyed.
  virtual void close() = 0;

  /// The address that a peer must know to write here.
  virtual std::span<const std::byte> address() const = 0;
  /// Adds a peer by its address, and sets its number in `peer`. Returns 0, or a negated errno.
  virtual int add_peer(std::span<const std::byte> address, std::uint64_t& peer) = 0;

  /// True if memory that is written from must be registered.
  virtual bool registers_sources() const = 0;
  /// Registers host memory. Returns nullptr if that fails, with the errno in `error`.
  virtual std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                              int& error) = 0;

  /// Starts a write. Returns 0, -EAGAIN (not now), or another negated errno.
  virtual int write(const FabricWrite& write) = 0;

  /// Appends completions; true if there were any. Does not wait. Also gives the fabric time to work.
  virtual bool read(std::vector<Completion>& into) = 0;

  /// Becomes readable when read() has something, if may_sleep() has just returned true; -1: no such descriptor.
  virtual int descriptor() const { return -1; }
  virtual bool may_sleep() { return false; }
};

}  // namespace gpusock::proxy::fabric
