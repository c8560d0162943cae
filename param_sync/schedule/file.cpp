#include "param_sync/schedule/file.hpp"

#include "param_sync/schedule/json_node.hpp"
#include "gpusock/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

namespace param_sync::schedule {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{128} << 20;

template <class Enum>
Enum word(const JsonNode& node, Enum last) {
  const std::string text = node.text();
  std::string words;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (text == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
    words += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", to_string(static_cast<Enum>(i)));
  }
  node.refuse(fmt::format("is {}, which is none of {}", node.shown(), words));
}

Op read_op(const JsonNode& node, const Schedule& schedule) {
  const int last_rank = schedule.nodes() - 1;
  Op op;
  op.kind = word(node.field("op"), Kind::apply);
  op.chunk = node.field("chunk").number(0, schedule.chunks - 1);
  op.count = node.field("count").number(0, schedule.chunks - op.chunk);
  if (op.receives()) op.from = node.field("from").number(0, last_rank);
  if (op.sends()) op.to = node.field("to").number(0, last_rank);
  if (node.has("channel")) op.channel = node.field("channel").number(0, kChannelsMax - 1);
  if (!node.has("after")) return op;
  const JsonNode after = node.field("after");
  for (std::size_t i = 0; i < after.size(); ++i) {
    const JsonNode pair = after.item(i);
    if (pair.size() != 2) pair.refuse("is no pair [lane, index]");
    op.after.push_back(
        {pair.item(0).number(0, kLanesMax - 1), pair.item(1).number(0, std::numeric_limits<int>::max())});
  }
  return op;
}

Rank read_rank(const JsonNode& node, const Schedule& schedule) {
  Rank rank;
  const JsonNode lanes = node.field("lanes");
  if (lanes.size() > kLanesMax) lanes.refuse(fmt::format("has {} lanes, more than {}", lanes.size(), kLanesMax));
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const JsonNode ops = lanes.item(lane);
    rank.lanes.emplace_back().reserve(ops.size());
    for (std::size_t index = 0; index < ops.size(); ++index) {
      rank.lanes.back().push_back(read_op(ops.item(index), schedule));
    }
  }
  return rank;
}

Schedule read_schedule(const JsonNode& node) {
  Schedule schedule;
  node.field("version").number(1, 1);
  schedule.scheme = node.field("scheme").text();
  const int nodes = node.field("nodes").number(1, kNodesMax);
  schedule.chunks = node.field("chunks").number(1, kChunksMax);
  schedule.result = word(node.field("result"), Result::gather);
  schedule.workers = node.has("workers") ? node.field("workers").number(1, nodes) : nodes;
  if (node.has("root")) schedule.root = node.field("root").number(0, schedule.workers - 1);
  const JsonNode ranks = node.field("ranks");
  if (ranks.size() != static_cast<std::size_t>(nodes)) {
    ranks.refuse(fmt::format("has {} entries, but \"nodes\" is {}", ranks.size(), nodes));
  }
  schedule.ranks.resize(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    schedule.ranks[rank] = read_rank(ranks.item(rank), schedule);
  }
  validate(schedule);
  return schedule;
}

std::string op_text(const Op& op) {
  std::string text = fmt::format(R"({{"op": "{}", "chunk": {}, "count": {})", to_string(op.kind), op.chunk, op.count);
  if (op.receives()) text += fmt::format(R"(, "from": {})", op.from);
  if (op.sends()) text += fmt::format(R"(, "to": {})", op.to);
  if (op.channel != 0) text += fmt::format(R"(, "channel": {})", op.channel);
  for (std::size_t i = 0; i < op.after.size(); ++i) {
    text += fmt::format("{}[{}, {}]", i == 0 ? R"(, "after": [)" : ", ", op.after[i].lane, op.after[i].index);
  }
  return text + (op.after.empty() ? "}" : "]}");
}

}  // namespace

Schedule from_json(std::string_view text) { return read_schedule(JsonDocument(text, "the schedule").root()); }

std::string to_json(const Schedule& schedule) {
  const std::string scheme =
      nlohmann::json(schedule.scheme).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::string text = fmt::format(R"({{"version": 1, "scheme": {}, "nodes": {}, "chunks": {}, "result": "{}")", scheme,
                                 schedule.nodes(), schedule.chunks, to_string(schedule.result));
  if (schedule.workers != schedule.nodes()) text += fmt::format(R"(, "workers": {})", schedule.workers);
  if (schedule.root != 0) text += fmt::format(R"(, "root": {})", schedule.root);
  text += ", \"ranks\": [";
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += rank == 0 ? "\n {\"lanes\": [" : ",\n {\"lanes\": [";
    const auto& lanes = schedule.ranks[rank].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      text += lane == 0 ? "\n  [" : ",\n  [";
      for (std::size_t i = 0; i < lanes[lane].size(); ++i)
        text += (i == 0 ? "\n   " : ",\n   ") + op_text(lanes[lane][i]);
      text += "]";
    }
    text += "]}";
  }
  return text + "]}\n";
}

std::string printable(const std::string& name) {
  constexpr std::size_t kNameMax = 64;
  const auto is_plain = [](unsigned char byte) { return byte >= 0x20 && byte < 0x7f; };
  std::string text = name;
  if (!std::all_of(name.begin(), name.end(), is_plain)) {
    text = nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    text = text.substr(1, text.size() - 2);
    while (text.find('\x7f') != std::string::npos) text.replace(text.find('\x7f'), 1, "\\u007f");
  }
  if (text.size() > kNameMax) text.replace(kNameMax, std::string::npos, "...");
  return text;
}

std::string read_text(const std::string& file) {
  std::ifstream opened;
  errno = 0;
  if (file != "-") opened.open(file, std::ios::binary);
  std::istream& in = file == "-" ? std::cin : opened;
  std::string text;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kFileBytesMax) throw Error(fmt::format("{} has more than {} MiB", file, kFileBytesMax >> 20));
  }
  if (in.bad() || (file != "-" && !opened.is_open())) {
    const int error = errno != 0 ? errno : EIO;
    throw Error(fmt::format("cannot read {}: {}", file, gpusock::describe_errno(error)));
  }
  return text;
}

}  // namespace param_sync::schedule
