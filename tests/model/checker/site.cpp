#include "site.hpp"

namespace gpusock::model {

Sites& sites() {
  static Sites all;
  return all;
}

Site& Sites::at(const Where& where, Operation operation, Order order, Order failure) {
  // The compiler keeps one copy of each file's name; where it keeps several, the name decides.
  const std::uint64_t place = reinterpret_cast<std::uintptr_t>(where.file) << 20 ^ where.line << 2 ^
                              static_cast<std::uint32_t>(operation);
  Site*& known = by_place_[place];
  if (known != nullptr) {
    ++known->uses;
    return *known;
  }
  for (Site& site : sites_) {
    if (site.line == where.line && site.operation == operation && site.file == where.file)
      return ++site.uses, *(known = &site);
  }
  return *(known = &sites_.emplace_back(Site{where.file, where.line, operation, order, failure, 1}));
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
