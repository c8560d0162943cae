#pragma once
/// @file Observes all contexts of a folder of pages: finds new ones, drops ended ones, computes rates.

#include "gpusock/tools/top/page_reader.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::top {

/// What one look found.
struct Look {
  std::vector<ContextView> contexts;  ///< sorted by process and number
  int others = 0;                     ///< files with a page's name that belong to other users
  int rubbish = 0;                    ///< files with a page's name that are no pages, or have another version's layout
  int removed = 0;                    ///< pages of processes that died, removed by this look
};

class Observation {
 public:
  /// Observes the pages in this folder; only those of process `pid`, if given. With `tcp` also the state of TCP
  /// connections.
  Observation(std::string folder, std::optional<std::uint32_t> pid, bool tcp = false)
      : folder_(std::move(folder)), pid_(pid), tcp_(tcp) {}

  /// Asks all contexts for news until `for_ns` from now, and returns the newest view of each. A context is stalled if
  /// it has owed an answer for `patience_ns`. Throws Error if the folder cannot be read.
  Look look(std::uint64_t for_ns, std::uint64_t patience_ns);

  /// Looks until every context has answered after `since_ns`, or is stalled. Between two looks it calls `nap`, which
  /// waits a moment; if that returns false, it stops.
  Look look_for_answers(std::uint64_t since_ns, std::uint64_t patience_ns, const std::function<bool()>& nap);

 private:
  struct Observed {
    PageReader page;
    std::uint64_t asked_ns;             ///< when it was asked first
    std::optional<ContextView> newest;  ///< with the rates since the one before
  };

  void find_pages(Look& look);
  bool update(Observed& observed, std::uint64_t now_ns, std::uint64_t patience_ns) const;

  std::string folder_;
  std::optional<std::uint32_t> pid_;
  bool tcp_;
  std::map<std::string, Observed> pages_;
};

/// Fills in the rates of `now` against an earlier view of the same context.
void add_rates(ContextView& now, const ContextView& before);

}  // namespace gpusock::top
