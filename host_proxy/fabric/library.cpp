#include "host_proxy/fabric/library.hpp"

#include <dlfcn.h>

#include <string>

namespace gpusock::proxy::fabric {
namespace {

struct Loaded {
  Library library{};
  std::string problem;

  Loaded() {
    void* handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      problem = std::string(dlerror()) + " (Debian: libfabric1)";
      return;
    }
    // The versions that a linker would have bound: the structures of the headers are those of just these.
    find(handle, library.getinfo, "fi_getinfo", GPUSOCK_FI_GETINFO);
    find(handle, library.freeinfo, "fi_freeinfo", GPUSOCK_FI_FREEINFO);
    find(handle, library.dupinfo, "fi_dupinfo", GPUSOCK_FI_DUPINFO);
    find(handle, library.fabric, "fi_fabric", GPUSOCK_FI_FABRIC);
    find(handle, library.strerror, "fi_strerror", GPUSOCK_FI_STRERROR);
  }

  template <class Function>
  void find(void* handle, Function*& function, const char* name, const char* version) {
    function = reinterpret_cast<Function*>(dlvsym(handle, name, version));
    if (function == nullptr) problem = "libfabric.so.1 here has no " + std::string(name) + "@" + version + ": it is older than the one built against";
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
