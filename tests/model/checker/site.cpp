#include "site.hpp"

#include <filesystem>
#include <utility>

namespace gpusock::model {
namespace {

/// "gpusock/detail/side.cuh" of "../../gpusock/detail/../detail/side.cuh": no compiler's folder before it.
std::string without_steps(const char* file) {
  std::string path = std::filesystem::path(file).lexically_normal().generic_string();
  while (path.compare(0, 3, "../") == 0) path.erase(0, 3);
  return path;
}

/// True if both may name one file of the source tree: one of them ends in the other, from a folder on.
bool is_same_file(const std::string& one, const std::string& other) {
  const std::string &longer = one.size() < other.size() ? other : one, &shorter = &longer == &one ? other : one;
  const std::size_t at = longer.size() - shorter.size();
  return longer.compare(at, std::string::npos, shorter) == 0 && (at == 0 || longer[at - 1] == '/');
}

}  // namespace

Sites& sites() {
  static Sites all;
  return all;
}

Site& Sites::at(const Where& where, Operation operation, Order order, Order failure) {
  // The compiler keeps one copy of each file's name; where it keeps several, the name decides. They may differ: with a
  // cache of compilations some begin at the source tree, others at the file system's root.
  const std::uint64_t source = reinterpret_cast<std::uintptr_t>(where.file) << 20 ^ where.line << 2 ^
                               static_cast<std::uint32_t>(operation);
  Site*& known = by_source_[source];
  if (known != nullptr) {
    ++known->uses;
    return *known;
  }
  std::string file = without_steps(where.file);
  for (Site& site : sites_) {
    if (site.line == where.line && site.operation == operation && is_same_file(site.file, file)) {
      if (file.size() > site.file.size()) site.file = std::move(file);
      return ++site.uses, *(known = &site);
    }
  }
  return *(known = &sites_.emplace_back(Site{std::move(file), where.line, operation, order, failure, 1}));
}

Order Sites::order(const Site& site, Order asked) const {
  if (mutant_.site != &site) return asked;
  switch (mutant_.weakening) {
    case Weakening::no_acquire:
      return asked == Order::acq_rel ? Order::release : Order::relaxed;
    case Weakening::no_release:
      return asked == Order::acq_rel ? Order::acquire : Order::relaxed;
    case Weakening::not_sequential:
      return Order::acq_rel;
    default:
      return asked;
  }
}

}  // namespace gpusock::model
