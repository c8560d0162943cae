#pragma once
/// @file The CUDA streams that all contexts of the process use on one GPU.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace gpusock::cudart {

/// Streams are made once and used again. CUDA gives streams to hardware queues in the order in which they are made, so
/// a new stream could share a queue with one whose kernel waits for the new stream's kernel. There are never more
/// streams than queues. (The program's own streams take queues, too.)
class Streams {
 public:
  explicit Streams(int gpu) : gpu_(gpu) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  enum class Use { kernels, copies };

  /// Returns a stream for the caller alone. Throws Error: (ENOBUFS) all hardware queues have a stream, (ENOMEM) CUDA
  /// refuses.
  cudaStream_t take(Use use);
  /// Takes back a stream. All work on it has ended.
  void give_back(cudaStream_t stream) noexcept;
  /// True if a kernel was launched on one of the streams and has not ended.
  bool any_kernel_runs();

 private:
  const int gpu_;
  std::mutex mutex_;
  struct Taken {
    cudaStream_t stream;
    Use use;
  };
  std::vector<Taken> taken_;
  std::vector<cudaStream_t> free_;
};

/// Owns a stream. Its destructor waits for the work on the stream.
class OwnStream {
 public:
  OwnStream(Streams& streams, Streams::Use use) : streams_(streams), stream_(streams.take(use)) {}
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  Streams& streams_;
  cudaStream_t stream_;
};

}  // namespace gpusock::cudart
