#include "mutation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>

namespace gpusock::model {
namespace {

/// Stores that may come behind the step after them, and why: what follows does not rest on them.
struct MayBeLate {
  const char* file;
  const char* text;  ///< of the line
  const char* why;
};
constexpr MayBeLate kMayBeLate[] = {
    {"ringbuf/byte_ring.hpp", "", "who commits or releases later only tells it later"},
    {"host_proxy/slots.cpp", "sector.", "the handle is granted behind it (Q1)"},
    {"host_proxy/slots.cpp", "T3, pairs with T4", "a status told later is only told later"},
    {"gpusock/detail/", "T8, pairs with T7", "a lock may be held longer"},
    {"gpusock/detail/", "T11, pairs with T10", "a lock may be held longer"},
    {"gpusock/detail/", "T13, pairs with T12", "a reservation may be held longer"},
    {"gpusock/detail/socket_options.inl", "options.store(", "the next step stores the proxy's copy of it"},
};

const MayBeLate* may_be_late(const Tables& tables, const Site& site) {
  const std::string place = tables.place_of(site), text = tables.text_of(site);
  for (const MayBeLate& one : kMayBeLate) {
    if (place.rfind(one.file, 0) == 0 && text.find(one.text) != std::string::npos) return &one;
  }
  return nullptr;
}

std::vector<Weakening> weakenings(const Site& site) {
  std::vector<Weakening> result;
  if (site.operation == Operation::fence) {
    if (site.order == Order::seq_cst) result.push_back(Weakening::not_sequential);
    result.push_back(Weakening::no_fence);
    return result;
  }
  if (acquires(site.order)) result.push_back(Weakening::no_acquire);
  if (releases(site.order)) result.push_back(Weakening::no_release);
  if (acquires(site.failure)) result.push_back(Weakening::no_failure_acquire);
  if (site.operation == Operation::store) result.push_back(Weakening::late);
  return result;
}

/// The first case that fails, and how; empty: none does.
std::string caught_by(const std::vector<const Case*>& cases, const Limits& limits) {
  for (const Case* one : cases) {
    const Verdict verdict = check(*one, limits);
    if (!verdict.ok) return one->name + ": " + verdict.failure.substr(0, verdict.failure.find('\n'));
  }
  return {};
}

}  // namespace

int try_mutants(const std::vector<Case>& cases, const Tables& tables, const Limits& limits) {
  std::map<const Site*, std::vector<const Case*>> users;
  for (const Case& one : cases) {
    sites().forget_uses();
    check(one, limits);
    for (const Site& site : sites().all()) {
      if (site.uses != 0) users[&site].push_back(&one);
    }
  }
  std::vector<const Site*> order;
  for (const auto& [site, its] : users) {
    if (tables.place_of(*site).find("tests/") == std::string::npos) order.push_back(site);
  }
  std::sort(order.begin(), order.end(), [&](const Site* a, const Site* b) { return std::tie(a->file, a->line) < std::tie(b->file, b->line); });

  Limits quick = limits;
  quick.must_see_all = quick.traces = false;
  int caught = 0, survived = 0, let_off = 0;
  std::printf("%-5s %-34s %-18s %-28s %s\n", "row", "place", "access", "mutant", "caught by");
  for (const Site* site : order) {
    for (const Weakening weakening : weakenings(*site)) {
      const MayBeLate* excuse = weakening == Weakening::late ? may_be_late(tables, *site) : nullptr;
      std::string result;
      if (excuse == nullptr) {
        sites().try_mutant({site, weakening});
        result = caught_by(users[site], quick);
        sites().try_mutant({});
        ++(result.empty() ? survived : caught);
        if (result.empty()) result = "SURVIVES";
      } else {
        ++let_off;
        result = std::string("not tried: ") + excuse->why;
      }
      const std::string label = tables.label_of(*site);
      std::printf("%-5s %-34s %-18s %-28s %s\n", label.empty() ? "-" : label.c_str(), tables.place_of(*site).c_str(),
                  to_string(site->operation), to_string(weakening), result.c_str());
      std::fflush(stdout);
    }
  }
  std::printf("mutants: %d caught, %d survived, %d not tried\n", caught, survived, let_off);
  return survived;
}

}  // namespace gpusock::model
