// The runtime's functions for memory. What may wait for kernels on a GPU does so here.
#include "tests/support/cuda_double/machine.hpp"

#include "cpu_device/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace {

using namespace cuda_double;

/// Streams for copies; the runtime takes memory of any kind for cudaMemcpyDefault.
cudaError_t check_copy(const Machine& machine, const void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind) {
  const auto is = [&](const void* address, bool device) {
    bool whole = true;
    const Allocation* const allocation = machine.allocation_at(address, bytes, &whole);
    return whole && device == (allocation != nullptr && allocation->kind == Kind::device);
  };
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return is(to, true) && is(from, false) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToHost:
      return is(to, false) && is(from, true) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToDevice:
      return is(to, true) && is(from, true) ? cudaSuccess : cudaErrorInvalidValue;
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}

bool is_device_memory(const Machine& machine, const void* memory, std::size_t bytes) {
  bool whole = false;
  const Allocation* const allocation = machine.allocation_at(memory, bytes, &whole);
  return allocation != nullptr && allocation->kind == Kind::device && whole;
}

void set(void* memory, int value, std::size_t bytes) {
  const std::vector<unsigned char> values(bytes, static_cast<unsigned char>(value));
  cpu_device::copy_device_memory(memory, values.data(), bytes);
}

cudaError_t allocate(Call& call, void** memory, std::size_t bytes, Kind kind) {
  constexpr std::size_t kFreshMax = 64 << 10;
  call.wait_for_work();
  if (kind == Kind::device) call.wait_for_peers(call.gpu());
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  try {
    void* const made = kind == Kind::device ? cpu_device::allocate_device_memory(bytes)
                                            : ::operator new (bytes, std::align_val_t{4096});
    set(made, kFresh, std::min(bytes, kFreshMax));
    call.machine().memory[reinterpret_cast<std::uintptr_t>(made)] = {bytes, kind, call.gpu()};
    *memory = made;
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}

/// Memory of this kind at this address; nothing: the machine does not have it.
auto find(Machine& machine, const void* memory, Kind kind) {
  const auto found = machine.memory.find(reinterpret_cast<std::uintptr_t>(memory));
  const bool is_it = found != machine.memory.end() && found->second.kind == kind && !found->second.is_mapped;
  return is_it ? found : machine.memory.end();
}

cudaError_t release(Call& call, void* memory, Kind kind) {
  if (memory == nullptr) return cudaSuccess;
  Machine& machine = call.machine();
  if (find(machine, memory, kind) == machine.memory.end()) return cudaErrorInvalidValue;
  call.wait_for_work();
  if (kind == Kind::device) call.wait_for_peers(find(machine, memory, kind)->second.gpu);
  machine.memory.erase(find(machine, memory, kind));
  if (kind == Kind::device) {
    cpu_device::free_device_memory(memory);
  } else {
    ::operator delete (memory, std::align_val_t{4096});
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  Call call("cudaMalloc");
  return call.ends() ? call.error() : call.end(allocate(call, memory, bytes, Kind::device));
}

cudaError_t cudaFree(void* memory) {
  Call call("cudaFree", Call::Effect::frees_or_waits);
  return call.end(release(call, memory, Kind::device));
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) {
  Call call("cudaHostAlloc");
  return call.ends() ? call.error() : call.end(allocate(call, memory, bytes, Kind::pinned));
}

cudaError_t cudaFreeHost(void* memory) {
  Call call("cudaFreeHost", Call::Effect::frees_or_waits);
  return call.end(release(call, memory, Kind::pinned));
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned int) {
  Call call("cudaHostRegister");
  if (call.ends()) return call.error();
  if (memory == nullptr || bytes == 0) return call.end(cudaErrorInvalidValue);
  call.wait_for_work();
  Machine& machine = call.machine();
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto next = machine.memory.lower_bound(begin);
  const bool overlaps = machine.allocation_at(memory, 1) != nullptr ||
                        (next != machine.memory.end() && next->first < begin + bytes);
  if (overlaps) return call.end(cudaErrorHostMemoryAlreadyRegistered);
  machine.memory[begin] = {bytes, Kind::registered, call.gpu()};
  return call.end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* memory) {
  Call call("cudaHostUnregister", Call::Effect::frees_or_waits);
  Machine& machine = call.machine();
  if (find(machine, memory, Kind::registered) == machine.memory.end())
    return call.end(cudaErrorHostMemoryNotRegistered);
  call.wait_for_work();
  machine.memory.erase(find(machine, memory, Kind::registered));
  return call.end(cudaSuccess);
}

/// On the legacy stream, which no non-blocking stream waits for: it ends as late as it may.
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  Call call("cudaMemset");
  if (call.ends()) return call.error();
  Machine& machine = call.machine();
  if (!is_device_memory(machine, memory, bytes)) return call.end(cudaErrorInvalidValue);
  machine.gpus[static_cast<std::size_t>(call.gpu())].late.push_back([&machine, memory, value, bytes] {
    if (is_device_memory(machine, memory, bytes)) set(memory, value, bytes);
  });
  return call.end(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  Call call("cudaMemsetAsync");
  if (call.ends()) return call.error();
  Machine& machine = call.machine();
  if (!machine.streams.contains(stream)) return call.end(cudaErrorInvalidResourceHandle);
  if (!is_device_memory(machine, memory, bytes)) return call.end(cudaErrorInvalidValue);
  machine.enqueue(call.lock(), *stream, call.name(), true, [=] { set(memory, value, bytes); });
  return call.end(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, enum cudaMemcpyKind kind) {
  Call call("cudaMemcpy");
  if (call.ends()) return call.error();
  const cudaError_t error = check_copy(call.machine(), to, from, bytes, kind);
  if (error != cudaSuccess) return call.end(error);
  call.machine().run_late(call.lock(), call.gpu());
  cpu_device::copy_device_memory(to, from, bytes);
  return call.end(cudaSuccess);
}

/// With pageable memory the call returns when the bytes have been taken from it, or lie in it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Call call("cudaMemcpyAsync");
  if (call.ends()) return call.error();
  Machine& machine = call.machine();
  if (!machine.streams.contains(stream)) return call.end(cudaErrorInvalidResourceHandle);
  const cudaError_t error = check_copy(machine, to, from, bytes, kind);
  if (error != cudaSuccess) return call.end(error);
  const Work copy = machine.enqueue(call.lock(), *stream, call.name(), true,
                                    [=] { cpu_device::copy_device_memory(to, from, bytes); });
  const bool pageable = machine.allocation_at(from, 1) == nullptr || machine.allocation_at(to, 1) == nullptr;
  if (pageable) call.wait_without_driver(copy);
  return call.end(cudaSuccess);
}

}  // extern "C"
