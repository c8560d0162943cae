// Stands for GDRCopy's library. On the double a GPU's memory is the process's own: a mapping is that memory.
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>

namespace {

struct Library {
  int open = 0;
  std::map<unsigned long, std::size_t> pinned;
  std::map<void*, std::size_t> mapped;
  int calls = 0;
  int fails = 0;  ///< the n-th call from now on; 0: none
  int major = 2;

  bool fails_now() {
    ++calls;
    return fails != 0 && --fails == 0;
  }
};
Library& library() {
  static Library one;
  return one;
}

constexpr unsigned long kPage = 65536;

}  // namespace

extern "C" {

struct gdr;
struct gdr_mh_s {
  unsigned long h;
};

// As gdrapi.h has them.
gdr* gdr_open() {
  if (library().fails_now()) return nullptr;
  ++library().open;
  return reinterpret_cast<gdr*>(&library());
}
int gdr_close(gdr*) {
  --library().open;
  return 0;
}
int gdr_pin_buffer(gdr*, unsigned long address, std::size_t bytes, std::uint64_t, std::uint32_t, gdr_mh_s* handle) {
  if (library().fails_now()) return ENOMEM;
  if (address % kPage != 0 || bytes % kPage != 0) return EINVAL;  // whole pages of the GPU
  library().pinned.emplace(address, bytes);
  handle->h = address;
  return 0;
}
int gdr_unpin_buffer(gdr*, gdr_mh_s handle) {
  for (const auto& [memory, bytes] : library().mapped) {
    if (reinterpret_cast<unsigned long>(memory) == handle.h) return EBUSY;
  }
  return library().pinned.erase(handle.h) == 1 ? 0 : EINVAL;
}
int gdr_map(gdr*, gdr_mh_s handle, void** mapping, std::size_t bytes) {
  if (library().fails_now()) return EAGAIN;
  if (library().pinned.at(handle.h) != bytes) return EINVAL;
  *mapping = reinterpret_cast<void*>(handle.h);
  // Host threads may use a mapping. Where processors have protection keys, the double keeps them out of a GPU's memory.
  // Where there are no keys this call fails, and the memory is ordinary.
  static_cast<void>(pkey_mprotect(*mapping, bytes, PROT_READ | PROT_WRITE, 0));
  library().mapped.emplace(*mapping, bytes);
  return 0;
}
int gdr_unmap(gdr*, gdr_mh_s, void* mapping, std::size_t) { return library().mapped.erase(mapping) == 1 ? 0 : EINVAL; }
void gdr_runtime_get_version(int* major, int* minor) {
  *major = library().major;
  *minor = 4;
}

// What tests ask of it.
void gdrapi_double_fail(int nth_call) { library().fails = nth_call; }
int gdrapi_double_calls() { return library().calls; }
int gdrapi_double_left() {
  return library().open + static_cast<int>(library().pinned.size() + library().mapped.size());
}
}
