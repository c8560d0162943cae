#pragma once
/// @file One endpoint of a fabric, as the fabric link sees it: one-sided writes with completion data, and their
/// completions. Production hands in libfabric's; tests put something disorderly in between.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

/// Memory that is registered with the fabric. After the destructor nobody reaches it through the fabric.
class FabricRegistration {
 public:
  virtual ~FabricRegistration() = default;
  virtual std::uint64_t address() const = 0;  ///< of the first byte, as a peer has to name it
  virtual std::uint64_t key() const = 0;
  virtual void* descriptor() const = 0;  ///< as the sender of the memory has to name it
};

enum class FabricAccess { local_source, remote_target };

struct FabricWrite {
  const void* from = nullptr;
  std::size_t bytes = 0;
  const FabricRegistration* source = nullptr;  ///< that `from` lies in; nullptr where the port asks for none
  std::uint64_t peer = 0;                      ///< as add_peer() gave it
  std::uint64_t address = 0;                   ///< as the peer's FabricRegistration gave it, or after that
  std::uint64_t key = 0;
  std::uint32_t data = 0;   ///< completion data: handed to the peer once the bytes are there
  std::uint64_t token = 0;  ///< comes back in the completion
  bool delivered = false;   ///< complete only once the bytes are there, if the fabric can report that
};

struct Completion {
  enum class Kind {
    written,  ///< `token`'s memory may be used again
    arrived,  ///< a peer wrote, and gave `data`
    failed,   ///< `token`'s write, or the whole endpoint where it is kNoToken: `error` and `reason` say why
  };
  static constexpr std::uint64_t kNoToken = ~std::uint64_t{0};

  Kind kind = Kind::written;
  std::uint64_t token = kNoToken;
  std::uint64_t data = 0;  ///< only its low 32 bits are the peer's: fabrics differ in how many they carry
  int error = 0;           ///< an errno
  std::string reason;      ///< the fabric's words
};

class FabricPort {
 public:
  virtual ~FabricPort() = default;

  /// True if it must have been idle for a while before it is closed.
  virtual bool closes_only_idle() const { return false; }
  /// Ends all operations: after it the fabric touches no memory of this endpoint's writes. Call it once, before the
  /// registrations that are still in use are destroyed.
  virtual void close() = 0;

  /// What a peer must know to write here.
  virtual std::span<const std::byte> address() const = 0;
  /// Makes a peer known by its address. 0, or a negated errno.
  virtual int add_peer(std::span<const std::byte> address, std::uint64_t& peer) = 0;

  /// True if memory that is written from must be registered.
  virtual bool registers_sources() const = 0;
  /// Host memory. nullptr if it cannot be registered: errno in `error`.
  virtual std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                              int& error) = 0;

  /// Starts a write. 0, -EAGAIN (not now), or a negated errno.
  virtual int write(const FabricWrite& write) = 0;

  /// Appends what has completed; true if there was anything. Does not wait. Also gives the fabric time to work.
  virtual bool read(std::vector<Completion>& into) = 0;

  /// Becomes readable when read() has something, if may_sleep() has just said so; -1 where there is no such descriptor.
  virtual int descriptor() const { return -1; }
  virtual bool may_sleep() { return false; }
};

}  // namespace gpusock::proxy::fabric
