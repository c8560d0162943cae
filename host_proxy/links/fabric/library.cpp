#include "host_proxy/links/fabric/library.hpp"

#include "host_proxy/base/log.hpp"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <dlfcn.h>

#include <string>

namespace gpusock::proxy::fabric {
namespace {

/// A memory monitor for libfabric that monitors nothing, so that libfabric caches no registrations.
///
/// There are two reasons against that cache. First, memory stays registered in it after its Registration was destroyed,
/// so a peer could still write there. Second, libfabric must learn which memory is unmapped. Without userfaultfd it
/// patches jumps into the first bytes of libc's munmap and similar functions when a domain of verbs or efa opens, and
/// removes them later ("memhooks", its issues 7569 and 10943). A thread that is in such a function at that moment
/// returns into the middle of an instruction, and crashes. FI_MR_CACHE_MONITOR=disabled has the same effect as this
/// class, but a library cannot safely set the environment of a program that has threads.
struct NoCache {
  static int start(fid_mem_monitor*) { return 0; }
  static void stop(fid_mem_monitor*) {}
  static int subscribe(fid_mem_monitor*, const void*, std::size_t) { return -FI_ENOSYS; }  // so that it is not cached
  static void unsubscribe(fid_mem_monitor*, const void*, std::size_t) {}
  static bool valid(fid_mem_monitor*, const void*, std::size_t) { return false; }

  fi_ops_mem_monitor operations{sizeof(fi_ops_mem_monitor), start, stop, subscribe, unsubscribe, valid};
  fid_mem_monitor monitor{};

  /// Call it once in a process, before any domain is opened.
  void import_into(const Library& library) {
    monitor.fid.fclass = FI_CLASS_MEM_MONITOR;
    monitor.export_ops = &operations;
    fid* cache = nullptr;
    int result = library.open(kApi, "mr_cache", nullptr, 0, 0, &cache, nullptr);
    if (result == 0) {
      result = fi_import_fid(cache, &monitor.fid, 0);
      fi_close(cache);
    }
    if (result != 0) {
      log_warn("libfabric's cache of memory registrations stays on (" + std::string(library.strerror(-result)) +
               "): set FI_MR_CACHE_MONITOR=disabled in the environment");
    }
  }
};

struct Loaded {
  Library library{};
  std::string problem;
  NoCache no_cache;

  Loaded() {
    void* handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      problem = std::string(dlerror()) + " (Debian: libfabric1)";
      return;
    }
    // The symbol versions that a linker would have bound: the headers' structures belong to exactly these versions.
    find(handle, library.getinfo, "fi_getinfo", GPUSOCK_FI_GETINFO);
    find(handle, library.freeinfo, "fi_freeinfo", GPUSOCK_FI_FREEINFO);
    find(handle, library.dupinfo, "fi_dupinfo", GPUSOCK_FI_DUPINFO);
    find(handle, library.fabric, "fi_fabric", GPUSOCK_FI_FABRIC);
    find(handle, library.open, "fi_open", GPUSOCK_FI_OPEN);
    find(handle, library.strerror, "fi_strerror", GPUSOCK_FI_STRERROR);
    if (problem.empty()) no_cache.import_into(library);
  }

  template <class Function>
  void find(void* handle, Function*& function, const char* name, const char* version) {
    function = reinterpret_cast<Function*>(dlvsym(handle, name, version));
    if (function == nullptr)
      problem = "libfabric.so.1 here has no " + std::string(name) + "@" + version +
                ": it is older than the one built against";
  }
};

const Loaded& loaded() {
  static const auto* once = new Loaded;  // never unloaded: its threads may outlive main
  return *once;
}

}  // namespace

const Library* library() { return loaded().problem.empty() ? &loaded().library : nullptr; }
const char* library_problem() { return loaded().problem.c_str(); }

}  // namespace gpusock::proxy::fabric
