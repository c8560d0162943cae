// The runtime's functions: devices, errors, streams, events, kernels. Memory is in memory.cpp.
#include "tests/support/cuda_double/machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace {

using namespace cuda_double;

bool is_gpu(int device) { return device >= 0 && device < kGpus; }

bool is_shape(const dim3& grid, const dim3& block) {
  return grid.x != 0 && grid.y != 0 && grid.z != 0 && grid.y <= 65535 && grid.z <= 65535 && block.x != 0 &&
         block.y != 0 && block.z != 0 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
         block.x * block.y * block.z <= 1024;
}

cudaError_t launch(Call& call, Kernel& kernel, const void* symbol, const cpu_device::LaunchShape& shape,
                   void** arguments, cudaStream_t stream) {
  Machine& machine = call.machine();
  if (!machine.streams.contains(stream) || stream->gpu != call.gpu()) return cudaErrorInvalidResourceHandle;
  if (!is_shape(shape.grid, shape.block)) return cudaErrorInvalidConfiguration;
  if (shape.shared_bytes > kernel.shared_bytes_max) return cudaErrorInvalidValue;
  if (kernel.stack_bytes > kStackBytesMax) return cudaErrorLaunchOutOfResources;
  if (kernel.registers * shape.block.x * shape.block.y * shape.block.z > kRegisters)
    return cudaErrorLaunchOutOfResources;
  machine.load(call.lock(), call.gpu(), kernel, call.name());
  machine.set_stack(call.lock(), call.gpu(), kernel.stack_bytes, call.name() + " of " + kernel.name);
  machine.wait_for_room(call.lock(), *stream, call.name() + " of " + kernel.name);
  auto body = kernel.bind(symbol, arguments);
  // Each launch has a stream of the CPU device: it ends with the operation.
  const Work work = machine.enqueue(call.lock(), *stream, kernel.name, false,
                                    [shape, name = kernel.name, body = std::move(body)] {
                                      cpu_device::Stream on_cpu;
                                      on_cpu.enqueue(shape, name, body);
                                      on_cpu.synchronize();
                                    });
  machine.end_launch(call.lock(), work, call.name());
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount");
  if (call.ends()) return call.error();
  *count = kGpus;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  Call call("cudaGetDevice");
  if (call.ends()) return call.error();
  *device = t_gpu;
  return call.end(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice");
  if (call.ends()) return call.error();
  if (!is_gpu(device)) return call.end(cudaErrorInvalidDevice);
  t_gpu = device;
  t_has_context = true;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties");
  if (call.ends()) return call.error();
  if (!is_gpu(device)) return call.end(cudaErrorInvalidDevice);
  std::snprintf(properties->name, sizeof properties->name, "double %d", device);
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr, int device) {
  Call call("cudaDeviceGetAttribute");
  if (call.ends()) return call.error();
  if (!is_gpu(device)) return call.end(cudaErrorInvalidDevice);
  *value = 1;
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
  Call call("cudaDeviceGetPCIBusId");
  if (call.ends()) return call.error();
  if (!is_gpu(device) || bytes < 13) return call.end(cudaErrorInvalidValue);
  std::snprintf(address, static_cast<std::size_t>(bytes), "ffff:0%d:00.0", device);
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* address) {
  Call call("cudaDeviceGetByPCIBusId");
  if (call.ends()) return call.error();
  for (*device = 0; *device < kGpus; ++*device) {
    if (std::string_view(address) == "ffff:0" + std::to_string(*device) + ":00.0") return call.end(cudaSuccess);
  }
  return call.end(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit, std::size_t value) {
  Call call("cudaDeviceSetLimit");
  if (call.ends()) return call.error();
  if (value > kStackBytesMax) return call.end(cudaErrorMemoryAllocation);
  call.machine().set_stack(call.lock(), call.gpu(), value, call.name());
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, enum cudaLimit) {
  Call call("cudaDeviceGetLimit");
  if (call.ends()) return call.error();
  *value = call.machine().gpus[static_cast<std::size_t>(call.gpu())].stack_bytes;
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void) {
  Call call("cudaDeviceSynchronize", Call::Effect::frees_or_waits);
  call.wait_for_work();
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  Call call("cudaDeviceCanAccessPeer");
  if (call.ends()) return call.error();
  if (!is_gpu(device) || !is_gpu(peer)) return call.end(cudaErrorInvalidDevice);
  *can = device != peer && call.machine().peers_reach_each_other ? 1 : 0;
  return call.end(cudaSuccess);
}

/// Maps all memory of the other GPU, so it may wait for kernels of both.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  Call call("cudaDeviceEnablePeerAccess");
  if (call.ends()) return call.error();
  if (!is_gpu(peer) || peer == call.gpu()) return call.end(cudaErrorInvalidDevice);
  if (flags != 0) return call.end(cudaErrorInvalidValue);
  Machine& machine = call.machine();
  bool& reaches = machine.gpus[static_cast<std::size_t>(call.gpu())].reaches[static_cast<std::size_t>(peer)];
  if (reaches) return call.end(cudaErrorPeerAccessAlreadyEnabled);
  if (!machine.peers_reach_each_other) return call.end(cudaErrorPeerAccessUnsupported);
  call.wait_for_work();
  machine.wait_for_work(call.lock(), peer, call.name());
  reaches = true;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t sticky = [] {
    Machine& machine = Machine::get();
    const Lock lock(machine.mutex);
    return machine.sticky;
  }();
  return std::exchange(t_last_error, sticky);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered:
      return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the double";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  Call call("cudaStreamCreateWithFlags");
  if (call.ends()) return call.error();
  if (flags != cudaStreamNonBlocking)
    return call.end(cudaErrorInvalidValue);  // the legacy stream waits for no other kind here
  Machine& machine = call.machine();
  Gpu& gpu = machine.gpus[static_cast<std::size_t>(call.gpu())];
  auto& made = machine.all_streams.emplace_back(std::make_unique<CUstream_st>());
  made->gpu = call.gpu();
  made->number = ++gpu.streams_made;
  made->queue = (made->number - 1) % machine.queues;
  machine.streams.insert(*stream = made.get());
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call("cudaStreamDestroy", Call::Effect::frees_or_waits);
  return call.end(call.machine().streams.erase(stream) != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Call call("cudaStreamQuery");
  if (call.ends()) return call.error();
  if (!call.machine().streams.contains(stream)) return call.end(cudaErrorInvalidResourceHandle);
  return call.end(stream->last == nullptr || stream->last->ended ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call("cudaStreamSynchronize", Call::Effect::frees_or_waits);
  if (stream == nullptr) {
    call.machine().run_late(call.lock(), call.gpu());
    return call.end(cudaSuccess);
  }
  if (!call.machine().streams.contains(stream)) return call.end(cudaErrorInvalidResourceHandle);
  call.wait_without_driver(stream->last);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  Call call("cudaEventCreateWithFlags");
  if (call.ends()) return call.error();
  call.machine().events.insert(*event = new CUevent_st);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call("cudaEventDestroy", Call::Effect::frees_or_waits);
  if (call.machine().events.erase(event) == 0) return call.end(cudaErrorInvalidResourceHandle);
  delete event;
  return call.end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call("cudaEventQuery");
  if (!call.machine().events.contains(event)) return call.end(cudaErrorInvalidResourceHandle);
  const bool ended = event->last == nullptr || event->last->ended;
  if (call.ends() && !ended)
    call.machine().wait_for(call.lock(), event->last, call.name());  // an error means that it has ended
  return call.end(ended ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call("cudaEventRecord");
  if (call.ends()) return call.error();
  if (!call.machine().events.contains(event) || !call.machine().streams.contains(stream))
    return call.end(cudaErrorInvalidResourceHandle);
  event->last = stream->last;
  return call.end(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void* symbol, enum cudaFuncAttribute, int value) {
  Call call("cudaFuncSetAttribute");
  if (call.ends()) return call.error();
  CUkern_st* const kernel = call.machine().kernel_of(symbol);
  if (kernel == nullptr) return call.end(cudaErrorInvalidDeviceFunction);
  if (value < 0 || static_cast<std::size_t>(value) > cpu_device::kSharedBytesMax)
    return call.end(cudaErrorInvalidValue);
  call.machine().load(call.lock(), call.gpu(), *kernel, call.name());
  kernel->shared_bytes_max = static_cast<std::size_t>(value);
  return call.end(cudaSuccess);
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* symbol) {
  Call call("cudaGetKernel");
  if (call.ends()) return call.error();
  *kernel = call.machine().kernel_of(symbol);
  return call.end(*kernel != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaLaunchKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
  Call call("cudaLaunchKernel");
  if (call.ends()) return call.error();
  CUkern_st* const kernel = call.machine().kernel_of(symbol);
  if (kernel == nullptr) return call.end(cudaErrorInvalidDeviceFunction);
  return call.end(launch(call, *kernel, symbol, {grid, block, shared_bytes}, arguments, stream));
}

}  // extern "C"
