#pragma once
/// @file What both ends of a transfer share on the host.

#include "examples/coded_transfer/plan.hpp"

#include <gpusock/gpusock.hpp>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace coded {

using Words = std::vector<std::uint64_t>;

/// Where both ends of one process meet. What is in rings when the receiver says stop was sent in vain: they are small.
inline constexpr char kHere[] = "127.0.0.1:0,ring=64K";

/// What an end is started with; the command line says what each one means.
struct Options {
  std::string listen, connect, code = "lt", slow, kill, json_file;
  std::uint64_t bytes = 4 << 20, chunk_bytes = 4096, rate = 0, seed = 1;
  unsigned paths = 4, timeout_s = 10;
  bool operator==(const Options&) const = default;

  std::uint64_t patience_ms() const { return timeout_s * std::uint64_t{1000}; }
};

/// The two numbers of a text such as "2:8" or "1@64000"; nothing if it is another one.
using Pair = std::pair<unsigned, std::uint64_t>;
inline std::optional<Pair> pair_of(const std::string& text, char between) {
  Pair found;
  const char* const end = text.data() + text.size();
  const auto one = std::from_chars(text.data(), end, found.first);
  if (one.ec != std::errc() || one.ptr == end || *one.ptr != between) return {};
  const auto two = std::from_chars(one.ptr + 1, end, found.second);
  if (two.ec != std::errc() || two.ptr != end) return {};
  return found;
}

/// How many of the paths carry coded chunks: K of --code rs:K, 0 with another code; nothing if there is no such code.
inline std::optional<unsigned> spare_of(const std::string& code) {
  if (code == "plain" || code == "lt") return 0;
  if (!code.starts_with("rs:")) return {};
  unsigned spare = 0;
  const char* const end = code.data() + code.size();
  const auto [last, error] = std::from_chars(code.data() + 3, end, spare);
  if (error != std::errc() || last != end || spare == 0) return {};
  return spare;
}

/// `options`: with a code that there is.
inline Plan plan_of(const Options& options) {
  return {options.paths,
          *spare_of(options.code),
          options.code == "lt" ? 1u : 0u,
          static_cast<std::uint32_t>(options.chunk_bytes),
          options.bytes,
          options.seed,
          0};
}

inline std::string name_of(const coded::Plan& plan) {
  return plan.is_lt != 0 ? "lt" : plan.spare == 0 ? "plain" : "rs:" + std::to_string(plan.spare);
}

/// Says which paths were lost, and why.
inline std::string lost_paths(const std::vector<coded::PathReport>& reports) {
  std::string all;
  for (std::size_t path = 0; path < reports.size(); ++path) {
    if (reports[path].error == 0) continue;
    const int error = -reports[path].error;
    all += (all.empty() ? "lost path " : "; lost path ") + std::to_string(path) + " after " +
           std::to_string(reports[path].bytes) +
           " bytes: " + (error == EPIPE ? "the other end has closed it" : gpusock::describe_errno(error));
  }
  return all;
}

/// The addresses of the chunks of a group.
inline std::vector<unsigned char*> chunks_of(const coded::Plan& plan, Words& slots, std::uint32_t group) {
  std::vector<unsigned char*> chunks(plan.paths);
  for (std::uint32_t i = 0; i < plan.paths; ++i) {
    chunks[i] = reinterpret_cast<unsigned char*>(slots.data()) +
                (std::size_t{group} * plan.paths + i) * plan.chunk_bytes;
  }
  return chunks;
}

}  // namespace coded
