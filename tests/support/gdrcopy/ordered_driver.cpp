// As much of a CUDA driver as says that its GPUs see what comes over the bus in order.
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device);
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  constexpr int kWritesOrdering = 118, kOrderingOwner = 100;  // rdma/visibility.hpp
  *value = attribute == kWritesOrdering ? kOrderingOwner : 0;
  return 0;
}
