#include "gpusock/cuda/gdrcopy.hpp"

#include <dlfcn.h>

namespace gpusock::cudart {
namespace {

constexpr const char* kLibrary = "libgdrapi.so.2";
constexpr int kMajor = 2;

struct Search {
  GdrCopy functions;
  std::string why;  ///< empty: the library can be used
};

template <class Function>
bool find(void* library, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) why = std::string(kLibrary) + " has no " + name;
  return function != nullptr;
}

Search search() {
  Search result;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (library == nullptr) {
    result.why = std::string("GDRCopy's library ") + kLibrary + " is not installed";
    return result;
  }
  GdrCopy& all = result.functions;
  std::string& why = result.why;
  const bool complete = find(library, "gdr_open", all.open, why) && find(library, "gdr_close", all.close, why) &&
                        find(library, "gdr_pin_buffer", all.pin_buffer, why) &&
                        find(library, "gdr_unpin_buffer", all.unpin_buffer, why) &&
                        find(library, "gdr_map", all.map, why) && find(library, "gdr_unmap", all.unmap, why) &&
                        find(library, "gdr_runtime_get_version", all.runtime_get_version, why);
  if (!complete) return result;
  int major = 0, minor = 0;
  all.runtime_get_version(&major, &minor);
  if (major != kMajor) {
    why = std::string(kLibrary) + " is of version " + std::to_string(major) + "." + std::to_string(minor) +
          "; version 2 is needed";
  }
  return result;
}

}  // namespace

const GdrCopy* GdrCopy::get(std::string& why) {
  static const Search found = search();
  why = found.why;
  return why.empty() ? &found.functions : nullptr;
}

}  // namespace gpusock::cudart
