#include "foreign/contents.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace param_sync::foreign {
namespace {

constexpr std::size_t kPartsMax = std::size_t{1} << 25;       // of all sums: at most 1 GiB with their index
constexpr std::size_t kPartsOfSumMax = std::size_t{1} << 16;  // of one: a right one has one for each rank
constexpr std::size_t kMergedMax = std::size_t{1} << 28;      // that are copied for sums

std::string name(const Part& part, int slices) {
  const std::string slice = slices == 1 ? "" : fmt::format(" (slice {} of {})", part.cell % slices, slices);
  return fmt::format("chunk {}{} of rank {}", part.cell / slices, slice, part.rank);
}

/// At most three names, and how many more there are.
std::string list(const std::vector<Part>& parts, int slices) {
  constexpr std::size_t kNamedMax = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kNamedMax); ++i) {
    text += (i == 0 ? "" : ", ") + name(parts[i], slices);
  }
  return parts.size() <= kNamedMax ? text : fmt::format("{} and {} more", text, parts.size() - kNamedMax);
}

}  // namespace

std::size_t Contents::Hash::operator()(const std::vector<Part>& parts) const {
  std::uint64_t hash = parts.size();
  for (const Part& part : parts) {
    hash = (hash ^ (static_cast<std::uint64_t>(part.rank) << 32 | static_cast<std::uint64_t>(part.cell))) *
           0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

Contents::Id Contents::intern(std::vector<Part> parts) {
  const auto found = numbers_.find(parts);
  if (found != numbers_.end()) return found->second;
  if (parts.size() > kPartsOfSumMax) throw schedule::Error("a sum has too many parts to be proved");
  parts_ += parts.size() + 4;
  if (parts_ > kPartsMax) throw schedule::Error("its sums have too many parts to be proved");
  const auto id = static_cast<Id>(sums_.size());
  sums_.push_back(parts);
  numbers_.emplace(std::move(parts), id);
  return id;
}

Contents::Id Contents::part(const Part& part) { return intern({part}); }

Contents::Id Contents::sum(Id first, Id second) {
  if (first == kNothing || second == kNothing) return kNothing;
  const std::uint64_t pair = std::uint64_t{std::min(first, second)} << 32 | std::max(first, second);
  const auto known = pairs_.find(pair);
  if (known != pairs_.end()) return known->second;
  std::vector<Part> parts;
  std::merge(sums_[first].begin(), sums_[first].end(), sums_[second].begin(), sums_[second].end(),
             std::back_inserter(parts));
  merged_ += parts.size();
  if (merged_ > kMergedMax) throw schedule::Error("its sums have too many parts to be proved");
  const Id id = intern(std::move(parts));
  pairs_.emplace(pair, id);
  return id;
}

std::string Contents::difference(Id is, Id should, int slices) const {
  if (is == should) return "";
  if (is == kNothing) return fmt::format("has data that no step wrote, not {}", list(sums_[should], slices));
  std::vector<Part> missing;
  std::vector<Part> surplus;
  std::set_difference(sums_[should].begin(), sums_[should].end(), sums_[is].begin(), sums_[is].end(),
                      std::back_inserter(missing));
  std::set_difference(sums_[is].begin(), sums_[is].end(), sums_[should].begin(), sums_[should].end(),
                      std::back_inserter(surplus));
  std::string text;
  if (!missing.empty()) text += "lacks " + list(missing, slices);
  if (!surplus.empty()) text += fmt::format("{}has {} too many", text.empty() ? "" : " and ", list(surplus, slices));
  return text;
}

}  // namespace param_sync::foreign
