#pragma once
/// @file The host's part of the API: contexts, options, launches and memory.

#include "gpusock/device.cuh"
#include "gpusock/endpoint.hpp"
#include "gpusock/error.hpp"
#include "gpusock/ring_placement.hpp"
#include "gpusock/socket_info.hpp"

#if defined(GPUSOCK_DEVICE_CPU)
#include "cpu_device/cuda.hpp"
#elif defined(GPUSOCK_DEVICE_CUDA)
#include <cuda_runtime_api.h>
#else
#error "Link to gpusock::gpusock, gpusock::cpu or gpusock::cuda: they define which device the program is built for."
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpusock {

/// How a context is set up. Everything has a default; environment variables override defaults in from_env().
struct Options {
  int gpu = 0;         ///< which GPU (GPUSOCK_GPU); ignored on the CPU device, unless it has the shape of a GPU
  std::string secret;  ///< the secret that peers must share to connect (GPUSOCK_SECRET); empty: none
  std::uint32_t sockets_max = 1024;  ///< sockets a caller side may open, and accepted sockets: 1 to 4096 each
  /// Capacity of each of a socket's two rings: a power of two, 4 KiB to 64 MiB. 0: the fastest size for the link (on a
  /// GPU 1 MiB, because rings are set up before their link is known); see docs/decisions/006-ring-size.md.
  std::uint64_t ring_bytes = 0;
  /// Where kernels' rings lie (GPUSOCK_RING). On a GPU, unless this is `host`, the context sets up device memory for
  /// the rings of `connections_max` connections, beside the host memory for other sockets. If this is `automatic`, that
  /// is at most 256 MiB, and less if the GPU has less: further connections have rings in host memory. See
  /// docs/decisions/010-ring-placement.md.
  RingPlacement ring = RingPlacement::automatic;
  /// Where kernels poll the words that the proxy writes: positions of rings, statuses of sockets, accept queues
  /// (GPUSOCK_WORDS). `device`: in the GPU's memory, where the host stores them through GDRCopy; making a context fails
  /// if that is not possible. `host`: in pinned host memory, where each look crosses the bus. `automatic`: in the GPU's
  /// memory if possible; gpusock-doctor says why not. It has no effect on the CPU device, unless that has the shape of
  /// a GPU. See docs/decisions/029-words-in-device-memory.md.
  RingPlacement words = RingPlacement::automatic;
  bool gpudirect = true;  ///< rings in device memory: true lets RDMA devices read and write them directly if they can
                          ///< (GPUSOCK_GPUDIRECT: auto); false (off) copies them through host memory
  std::uint64_t handshake_timeout_ns = 5'000'000'000;  ///< how long a peer may take to agree on a link
  /// How long a call waits if it is given no deadline (Deadline::by_default()), ns. A socket may have another timeout
  /// (SocketOption). kForever: the call waits for ever.
  std::uint64_t timeout_ns = 60'000'000'000;
  std::uint32_t connections_max = 64;  ///< on a GPU: connections for which ring memory is pinned when the context is
                                       ///< made; on the CPU device, ring memory is made on demand
  /// On a GPU: the name of the memory that this context shares with contexts of other processes
  /// (GPUSOCK_HOST_RINGS=NAME). Empty (GPUSOCK_HOST_RINGS=off): it shares none. Contexts of one user that name the same
  /// memory use p2p with each other; others use tcp.
  ///
  /// Rings are in GPU memory in two cases, unless `ring` is host: between kernels on one GPU; and between kernels on
  /// two GPUs that reach each other's memory, if no kernel of the earlier context's process ran when the later context
  /// was made. Otherwise rings are in pinned host memory, and SocketInfo::link_reason says why.
  ///
  /// Host memory for `host_connections_max` connections is pinned when the context is made, once for all processes.
  /// Each context takes the same amount of its GPU's memory (at most 256 MiB if `ring` is automatic).
  ///
  /// "auto" is the default name. Its rings have 1 MiB each. If that memory cannot be made, the context does without it,
  /// and the log (info) says why. See docs/decisions/024-rings-between-processes.md.
  std::string host_rings = "auto";
  /// How many connections fit into that memory (GPUSOCK_HOST_RINGS=NAME,connections=N; NAME may be auto): 1 to 4096.
  /// The context that makes the memory decides this number and the size of the rings.
  std::uint32_t host_connections_max = 16;
  bool p2p = true;             ///< true lets connections to peers on this host share memory; else they use tcp
  std::optional<bool> assist;  ///< true lets waiting callers run the proxy's step themselves; the default is
                               ///< true on the CPU device of a machine with at most 4 processors

  /// True: while kernels run, the proxy's thread looks for work all the time, and so keeps a processor busy. False: it
  /// sleeps up to 1 ms between looks (GPUSOCK_SPIN: on, off). The default (auto) is true on a GPU if the process may
  /// use more than 4 processors. Kernels count as running from their launch until the program has synchronized. This
  /// has no effect where kernels wake the thread, as on the CPU device.
  std::optional<bool> spin;

  /// The folder of the observer page through which gpusock-top reads this context (GPUSOCK_OBSERVE). Empty
  /// (GPUSOCK_OBSERVE=off): gpusock-top does not see the context.
  std::string observe = "/dev/shm";

  /// libfabric's provider for link=fabric, as fi_info names it (GPUSOCK_FABRIC_PROVIDER). Empty: the best provider that
  /// both peers have.
  std::string fabric_provider;

  /// Where the proxy's thread runs (GPUSOCK_PROCESSORS). "near": on those processors of the GPU's NUMA node that the
  /// process may use. "any": on any processor. Or a list like "0-3,8"; the process must be allowed to use one of them.
  std::string processors = "near";

  /// The defaults, overridden by GPUSOCK_GPU, GPUSOCK_SECRET, GPUSOCK_RING, GPUSOCK_WORDS, GPUSOCK_GPUDIRECT,
  /// GPUSOCK_HOST_RINGS, GPUSOCK_OBSERVE, GPUSOCK_FABRIC_PROVIDER, GPUSOCK_PROCESSORS and GPUSOCK_SPIN. An empty
  /// variable counts as unset. Throws Error (EINVAL) if one of these, GPUSOCK_LINK, GPUSOCK_LOG, GPUSOCK_CPU_SHAPE or
  /// GPUSOCK_CPU_GROUP_CALLS has an invalid value; the message names the variable and its valid values.
  static Options from_env();
};

class Stream;

/// Owns one device's sockets, their memory and the proxy that serves them. A process may have several contexts.
///
/// The destructor ends the context: kernels' waiting calls return -ECANCELED, and the destructor waits for the kernels.
/// It flushes sent bytes for up to 2 s, then resets the connections that are left. Destroy the context's streams and
/// memory before it. No host thread may still be in a call: cancel() ends such calls; then join the threads. Destroying
/// a Stream waits for its own launches: call cancel() first if one of them might wait for ever.
///
/// On a GPU, making a Context, a Mapped or a DeviceBuffer may wait for all kernels that run: make these objects before
/// you launch a kernel that waits for something. Freeing memory does not wait for kernels. Ending a context does not
/// wait for other contexts' kernels; its memory is freed when those have ended.
///
/// A context belongs to the process that made it. In a forked child its calls throw Error (ECANCELED), and its
/// destructor does nothing (docs/semantics.md).
class Context {
 public:
  /// Throws Error: (EINVAL) an option has an invalid value, (ENODEV) there is no such GPU, (ENOTSUP) the GPU lacks
  /// something that gpusock needs, (ENOMEM) there is not enough memory, (EMFILE) the process has no descriptors left,
  /// (EAGAIN) no thread can be started; (ENOSPC, EFBIG) there is no room for the named Options::host_rings, (EACCES)
  /// their file belongs to another user, (EPROTO) it is of another version of gpusock, (EBUSY) a stopped process is
  /// removing it. The message says what to do about it.
  explicit Context(const Options& options = Options::from_env());
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The socket calls, for kernels (by value) and for host threads of this process.
  Net net() const;

  /// Waits for all launches of this context. Throws Error: (EFAULT) a kernel failed; the message says which kernel and
  /// where; (ECANCELED) in a forked child.
  void synchronize();

  /// Ends all waiting: every call on this context's sockets that can wait returns -ECANCELED from now on. Any thread
  /// may call it.
  void cancel() noexcept;

  /// The options that the context was made with.
  const Options& options() const;

  /// Counters since the context was made.
  struct Stats {
    std::uint64_t host_api_calls = 0;  ///< launches, synchronisations and memory calls made through this context
    std::uint64_t proxy_steps = 0;     ///< steps of the proxy, on any thread
    std::uint64_t proxy_wakeups = 0;   ///< times the proxy's own thread woke from sleep
    std::uint64_t connections = 0;     ///< connections ever established
    std::uint64_t device_bytes = 0;    ///< of all DeviceBuffers of this context now; rings are not counted

    /// Bytes that one kind of link has carried, on open and closed connections. On tcp: bytes that the proxy sent and
    /// received. On p2p: bytes that callers stored into peers' rings, and bytes that they consumed. On verbs and
    /// fabric: bytes written into peers' rings, and bytes that peers wrote into rings here.
    struct Traffic {
      std::uint64_t tx_bytes = 0;  ///< sent
      std::uint64_t rx_bytes = 0;  ///< received
    };
    Traffic traffic[kLinkKinds] = {};  ///< by LinkKind
    /// The traffic of this kind of link.
    const Traffic& of(LinkKind link) const { return traffic[static_cast<int>(link)]; }
  };
  Stats stats() const;  ///< the counters now; throws Error (ECANCELED) in a forked child

  /// All sockets that are open, being opened or being closed, and the connections that no call has accepted yet. Any
  /// thread may call it. It waits until the proxy is between two steps, so do not call it on the data path. Throws
  /// Error (ECANCELED) in a forked child.
  std::vector<SocketInfo> sockets() const;

  /// @cond INTERNAL
  struct Impl;
  Impl& impl() const { return *impl_; }
  /// @endcond

 private:
  std::unique_ptr<Impl> impl_;
};

/// An in-order queue of launches; launches on different streams run at the same time.
class Stream {
 public:
  /// Makes a stream of this context, which must outlive the stream. Throws Error: (ENOBUFS) every hardware queue of the
  /// GPU already has a stream (docs/semantics.md), (ENOMEM) the device has no resources for it, (ECANCELED) in a forked
  /// child.
  explicit Stream(Context& context);
  ~Stream();  ///< waits for its launches
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Waits for this stream's launches. Throws Error as Context::synchronize() does.
  void synchronize();

  /// True if all launches have ended.
  bool idle() const;

  /// @cond INTERNAL
  struct Impl;
  Impl& impl() const { return *impl_; }
  /// @endcond

 private:
  std::unique_ptr<Impl> impl_;
};

/// The shape of a launch; as in CUDA's <<<grid, block, shared_bytes, stream>>>.
struct LaunchShape {
  dim3 grid = 1;                 ///< blocks
  dim3 block = 1;                ///< threads of a block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory per block, see dynamic_shared()
  Stream* stream = nullptr;      ///< nullptr: the context's own stream, which is made when it is first used
  /// For the CPU device, no effect on a GPU. True: blocks of such launches take turns on few OS threads: one that waits
  /// gives its thread to others. For kernels whose blocks mostly wait, as servers do: to wake one takes no system call.
  /// While one computes, others on its thread stand still. The kernel declares variables that a block's threads share
  /// by GPUSOCK_SHARED, and not by __shared__, and waits only in calls of gpusock, in __nanosleep(), or for atomics.
  bool blocks_share_threads = false;
};

namespace detail {
/// Memory of a context, zeroed. Only kernels reach device memory; kernels and the host reach mapped memory.
void* allocate_device(Context& context, std::size_t bytes);
void free_device(Context& context, void* memory) noexcept;
void copy_to_device(Context& context, void* to, const void* from, std::size_t bytes);
void copy_from_device(Context& context, void* to, const void* from, std::size_t bytes);
void* allocate_mapped(Context& context, std::size_t bytes);
void free_mapped(Context& context, void* memory) noexcept;

/// Bytes of `count` elements of T. Throws Error (ENOMEM) if they exceed an address space, so the product never wraps.
template <class T>
std::size_t bytes_of(std::size_t count) {
  if (count > PTRDIFF_MAX / sizeof(T)) {
    throw Error(ENOMEM, "allocating " + std::to_string(count) + " elements of " + std::to_string(sizeof(T)) +
                            " bytes: more than an address space holds; ask for fewer");
  }
  return count * sizeof(T);
}
}  // namespace detail

/// Zeroed memory that kernels and the host both reach, for flags, results and small tables.
///
/// The destructor returns at once; the host must not use the memory after it. Kernels that were launched before may go
/// on using it: the memory is kept until they have ended. On a GPU it is kept until no kernel of any context runs,
/// because freeing it would wait for all of them. For the same reason allocating may wait for kernels there: allocate
/// before you launch kernels that wait for something.
template <class T>
class Mapped {
 public:
  /// Makes `count` elements in a context, which must outlive them. Throws Error: (ENOMEM) there is no memory for them,
  /// (ECANCELED) in a forked child.
  Mapped(Context& context, std::size_t count)
      : context_(&context),
        data_(static_cast<T*>(detail::allocate_mapped(context, detail::bytes_of<T>(count)))),
        count_(count) {}
  ~Mapped() {
    if (data_ != nullptr) detail::free_mapped(*context_, data_);
  }
  /// Takes the other's memory.
  Mapped(Mapped&& other) noexcept : context_(other.context_), data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  Mapped& operator=(Mapped&&) = delete;

  T* data() const { return data_; }                                ///< an address for kernels and the host
  std::size_t size() const { return count_; }                      ///< elements
  T& operator[](std::size_t index) const { return data_[index]; }  ///< not checked for bounds
  T* begin() const { return data_; }                               ///< the first element
  T* end() const { return data_ + count_; }                        ///< one past the last element

 private:
  Context* context_;
  T* data_;
  std::size_t count_;
};

/// Zeroed device memory, with copies in and out. The destructor returns at once, as that of Mapped.
template <class T>
class DeviceBuffer {
 public:
  /// Makes `count` elements in a context, which must outlive them. Throws Error: (ENOMEM) there is no memory for them,
  /// (ECANCELED) in a forked child.
  DeviceBuffer(Context& context, std::size_t count)
      : context_(&context),
        data_(static_cast<T*>(detail::allocate_device(context, detail::bytes_of<T>(count)))),
        count_(count) {}
  ~DeviceBuffer() {
    if (data_ != nullptr) detail::free_device(*context_, data_);
  }
  /// Takes the other's memory.
  DeviceBuffer(DeviceBuffer&& other) noexcept : context_(other.context_), data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  T* data() const { return data_; }            ///< an address for kernels
  std::size_t size() const { return count_; }  ///< elements

  /// Copies host memory to elements from `offset` on, and waits until done. Throws Error (EINVAL) past the end.
  void copy_in(std::span<const T> from, std::size_t offset = 0) {
    check(from.size(), offset);
    detail::copy_to_device(*context_, data_ + offset, from.data(), from.size_bytes());
  }
  /// Copies elements from `offset` on to host memory, and waits until done. Throws Error (EINVAL) past the end.
  void copy_out(std::span<T> to, std::size_t offset = 0) const {
    check(to.size(), offset);
    detail::copy_from_device(*context_, to.data(), data_ + offset, to.size_bytes());
  }

 private:
  void check(std::size_t count, std::size_t offset) const {
    if (offset > count_ || count > count_ - offset) {
      throw Error(EINVAL, "DeviceBuffer: copying " + std::to_string(count) + " elements at " + std::to_string(offset) +
                              " of a buffer of " + std::to_string(count_));
    }
  }

  Context* context_;
  T* data_;
  std::size_t count_;
};

}  // namespace gpusock

#include "gpusock/launch.hpp"
