#pragma once
/// @file The lines of code that access words atomically, and the mutants of them: each a line with a weaker order, or a
/// store that comes behind the step after it.

#include "view.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

namespace gpusock::model {

/// Where an operation stands in the source.
struct Where {
  const char* file = "";
  std::uint32_t line = 0;
};

enum class Operation : std::uint8_t { load, store, modify, fence };

constexpr const char* to_string(Operation operation) {
  constexpr const char* kNames[] = {"load", "store", "read-modify-write", "fence"};
  return kNames[static_cast<int>(operation)];
}

struct Site {
  std::string file;
  std::uint32_t line = 0;
  Operation operation = Operation::load;
  Order order = Order::relaxed;    ///< as first seen there
  Order failure = Order::relaxed;  ///< of a compare-and-swap that fails
  std::uint64_t uses = 0;          ///< how often it was reached
};

enum class Weakening : std::uint8_t {
  none,
  no_acquire,
  no_release,
  no_failure_acquire,
  not_sequential,
  no_fence,
  late,
  too_late,
  left_out,
  apart
};

constexpr const char* to_string(Weakening weakening) {
  constexpr const char* kNames[] = {"as it is",
                                    "without acquire",
                                    "without release",
                                    "a failure without acquire",
                                    "acq_rel for seq_cst",
                                    "without the fence",
                                    "behind the next step",
                                    "behind all until a wait",
                                    "left out",
                                    "a load and a store"};
  return kNames[static_cast<int>(weakening)];
}

struct Mutant {
  const Site* site = nullptr;
  Weakening weakening = Weakening::none;
};

/// All sites that were reached, and the one mutant that is being tried.
class Sites {
 public:
  Site& at(const Where& where, Operation operation, Order order, Order failure = Order::relaxed);
  const std::deque<Site>& all() const { return sites_; }
  void forget_uses() {
    for (Site& site : sites_) site.uses = 0;
  }

  void try_mutant(const Mutant& mutant) { mutant_ = mutant; }
  bool is(const Site& site, Weakening weakening) const {
    return mutant_.site == &site && mutant_.weakening == weakening;
  }
  /// What becomes of this order there.
  Order order(const Site& site, Order asked) const;
  Order failure_order(const Site& site, Order asked) const {
    return is(site, Weakening::no_failure_acquire) ? Order::relaxed : asked;
  }

 private:
  std::unordered_map<std::uint64_t, Site*> by_source_;
  std::deque<Site> sites_;
  Mutant mutant_;
};

Sites& sites();

}  // namespace gpusock::model
