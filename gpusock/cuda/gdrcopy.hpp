#pragma once
/// @file GDRCopy's library, which maps a GPU's memory into the process through the GPU's BAR. The program looks for it
/// at run time: its kernel module, gdrdrv, is not on every machine. https://github.com/NVIDIA/gdrcopy, gdrapi.h.

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::cudart {

/// The functions of libgdrapi.so.2, version 2. Each returns 0 or an errno, unless its comment says otherwise.
struct GdrCopy {
  struct Connection;  ///< a connection to the kernel module
  struct Pinned {
    unsigned long handle = 0;
  };

  Connection* (*open)() = nullptr;  ///< returns nullptr if there is no kernel module
  int (*close)(Connection* connection) = nullptr;
  int (*pin_buffer)(Connection* connection, unsigned long address, std::size_t bytes, std::uint64_t token,
                    std::uint32_t space, Pinned* pinned) = nullptr;
  int (*unpin_buffer)(Connection* connection, Pinned pinned) = nullptr;
  int (*map)(Connection* connection, Pinned pinned, void** mapping, std::size_t bytes) = nullptr;
  int (*unmap)(Connection* connection, Pinned pinned, void* mapping, std::size_t bytes) = nullptr;
  void (*runtime_get_version)(int* major, int* minor) = nullptr;

  /// Returns this machine's library; nullptr if it cannot be used: `why` is then the reason.
  static const GdrCopy* get(std::string& why);
};

}  // namespace gpusock::cudart
