#pragma once
/// @file How GPUnet's calls, which name no context, find their context: the host sets it before the kernels run.

#include "gpusock/device.cuh"
#include "gpusock/gpusock.hpp"

#if !defined(__CUDACC__) && !defined(GPUSOCK_DEVICE_CPU)
#error "This header is for kernels: have nvcc compile the file (name it .cu)."
#endif

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace gpusock::compat {

/// What the host tells the calls.
struct Gpunet {
  Net net;
  LinkKind link;
  bool ready;
};
static_assert(std::is_trivially_copyable_v<Gpunet>);

/// Raw memory for Gpunet, because a variable in a GPU's memory cannot run a constructor.
struct GpunetMemory {
  alignas(alignof(Gpunet)) unsigned char bytes[sizeof(Gpunet)];
};

#if defined(__CUDACC__) && !defined(__CUDACC_RDC__)
/// The declaration of such a variable. nvcc allows an inline variable in device memory only if it links device code
/// (-rdc=true). Without that, the kernels of each source file are a program of their own, with a variable of their own.
#define GPUSOCK_GPUNET_VARIABLE static
#else
/// One variable for the whole program.
#define GPUSOCK_GPUNET_VARIABLE inline
#endif

GPUSOCK_GPUNET_VARIABLE __device__ GpunetMemory gpunet_memory;

/// The notes on each socket, by slot: handle << 8 | Notes. The handle is stored so that a late call on an old handle
/// finds no notes on the slot's next socket.
GPUSOCK_GPUNET_VARIABLE __device__ std::uint64_t gpunet_notes[table::kSlotsMax];

#undef GPUSOCK_GPUNET_VARIABLE

enum Notes : std::uint64_t {
  kNoteNonBlocking = 1,
  kNoteEndSeen = 2,  ///< grecv has returned 0
  kNoteValid = 128,  ///< so that an empty word belongs to no socket
};

__device__ inline const Gpunet& gpunet() { return *reinterpret_cast<const Gpunet*>(gpunet_memory.bytes); }

/// One thread: true if the socket has this note.
__device__ inline bool has_note(int socket, Notes note) {
  if (socket < 0) return false;
  // Relaxed: nothing else depends on the word.
  const std::uint64_t word = detail::DeviceRef(gpunet_notes[table::slot_of(socket)]).load(ringbuf::kRelaxed);
  return word >> 8 == static_cast<std::uint64_t>(socket) && (word & note) != 0;
}

/// One thread: adds or removes the note.
__device__ inline void set_note(int socket, Notes note, bool on) {
  if (socket < 0) return;
  detail::DeviceRef word(gpunet_notes[table::slot_of(socket)]);
  const std::uint64_t mine = static_cast<std::uint64_t>(socket) << 8 | kNoteValid;
  std::uint64_t before = word.load(ringbuf::kAcquire);
  std::uint64_t after;
  do {
    const std::uint64_t kept = before >> 8 == static_cast<std::uint64_t>(socket) ? before : mine;
    after = on ? kept | note : kept & ~static_cast<std::uint64_t>(note);
  } while (!word.compare_exchange_weak(before, after, ringbuf::kAcqRel, ringbuf::kAcquire));
}

/// The group's leader clears the notes of a socket that was just opened: another context's socket may have had the same
/// handle before.
template <class Group>
__device__ Socket without_notes(const Group& group, Socket socket) {
  if (socket >= 0 && group.thread_rank() == 0) {
    // Relaxed: the store is passed on together with the handle.
    detail::DeviceRef(gpunet_notes[table::slot_of(socket)]).store(0, ringbuf::kRelaxed);
  }
  return socket;
}

[[maybe_unused]] static void store_gpunet(const Context& context, const Gpunet& state) {
#if defined(__CUDACC__)
  cudaError_t status = cudaSetDevice(context.options().gpu);
  if (status == cudaSuccess) status = cudaMemcpyToSymbol(gpunet_memory, &state, sizeof state);
  if (status != cudaSuccess) {
    throw Error(EIO, std::string("gpunet_init: setting the context for kernels: ") + cudaGetErrorString(status));
  }
#else
  (void)context;
  std::memcpy(gpunet_memory.bytes, &state, sizeof state);
#endif
}

}  // namespace gpusock::compat

/// Makes the GPUnet calls of kernels use this context's sockets. It replaces GPUnet's GPUNETGlobals and its host loop.
/// Call it before launching, and gpunet_exit() before the context ends. On the CPU device, and with nvcc -rdc=true, it
/// applies to the whole program, else to the kernels of the source file that calls it. `link` carries the connections,
/// because a sockaddr_in names none: use tcp for plain TCP peers. Throws gpusock::Error.
[[maybe_unused]] static void gpunet_init(gpusock::Context& context, gpusock::LinkKind link) {
  gpusock::compat::store_gpunet(context, {context.net(), link, true});
}

/// The same with the link of GPUSOCK_LINK, else auto.
[[maybe_unused]] static void gpunet_init(gpusock::Context& context) {
  gpunet_init(context, gpusock::Endpoint::parse("127.0.0.1:0").link);
}

/// Ends the use of the context: from now on GPUnet calls that open sockets return -ENODEV.
[[maybe_unused]] static void gpunet_exit(gpusock::Context& context) {
  gpusock::compat::store_gpunet(context, {{}, gpusock::LinkKind::automatic, false});
}

/// Returns the context's socket calls, for a kernel that is ported call by call: the calls of both kinds work on the
/// same sockets.
__device__ inline const gpusock::Net& gpunet_net() { return gpusock::compat::gpunet().net; }
