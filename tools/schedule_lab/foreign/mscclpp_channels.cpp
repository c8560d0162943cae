#include "foreign/mscclpp_channels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace param_sync::foreign {

using schedule::JsonNode;

namespace {

void read_groups(const JsonNode& channel, int all_ranks, RankChannels& made) {
  const Buffer kind = read_buffer(channel.field(channel.has("buffer_type") ? "buffer_type" : "buff"));
  const JsonNode groups = channel.field("rank_groups");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const JsonNode ranks = groups.item(i).field("ranks");
    RankChannels::Group& group = made.groups.emplace_back();
    group.buffer = kind;
    for (std::size_t j = 0; j < ranks.size(); ++j) group.ranks.push_back(ranks.item(j).number(0, all_ranks - 1));
    std::sort(group.ranks.begin(), group.ranks.end());
    const bool has_twins = std::adjacent_find(group.ranks.begin(), group.ranks.end()) != group.ranks.end();
    if (group.ranks.empty() || has_twins) ranks.refuse("is empty, or has a rank twice");
  }
}

}  // namespace

Link read_link(const JsonNode& node) {
  const std::string text = node.text();
  if (text == "memory") return Link::memory;
  if (text == "port") return Link::port;
  if (text == "switch") return Link::multicast;
  node.refuse(fmt::format("is {}, not \"memory\", \"port\" or \"switch\"", node.shown()));
}

Buffer read_buffer(const JsonNode& node) {
  const std::string text = node.text();
  if (text == "i") return Buffer::input;
  if (text == "o") return Buffer::output;
  if (text == "s") return Buffer::scratch;
  node.refuse(fmt::format("is {}, not \"i\", \"o\" or \"s\"", node.shown()));
}

int read_below(const JsonNode& node, std::size_t size) {
  if (size == 0) node.refuse(fmt::format("is {}, but there is none", node.shown()));
  return node.number(0, static_cast<int>(size) - 1);
}

RankChannels read_channels(const JsonNode& gpu, int rank, int ranks) {
  RankChannels made;
  std::map<std::pair<Link, int>, int> ordinals;
  const JsonNode channels = gpu.field("channels");
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const JsonNode channel = channels.item(i);
    if (channel.has("type") && !channel.has("channel_type")) {
      channel.refuse(
          "has \"type\": this is a draft of MSCCL++ 0.8's format, which no release has. We read that of 0.8 and later: "
          "\"channel_type\"");
    }
    const Link kind = read_link(channel.field("channel_type"));
    if (kind == Link::multicast) {
      read_groups(channel, ranks, made);
      continue;
    }
    const JsonNode peers = channel.field("connected_to");
    for (std::size_t j = 0; j < peers.size(); ++j) {
      const int peer = peers.item(j).number(0, ranks - 1);
      if (peer == rank) peers.item(j).refuse("is the rank itself");
      made.channels[static_cast<std::size_t>(kind)].push_back({peer, ordinals[{kind, peer}]++});
    }
  }
  if (gpu.has("remote_buffers")) {
    const JsonNode remote = gpu.field("remote_buffers");
    for (std::size_t i = 0; i < remote.size(); ++i) {
      made.remote.push_back(
          {remote.item(i).field("rank").number(0, ranks - 1), read_buffer(remote.item(i).field("type"))});
    }
  }
  return made;
}

BlockNames read_names(const JsonNode& block, const RankChannels& rank) {
  BlockNames names;
  if (block.has("channels")) {
    const JsonNode channels = block.field("channels");
    for (std::size_t i = 0; i < channels.size(); ++i) {
      const auto kind = static_cast<std::size_t>(read_link(channels.item(i).field("channel_type")));
      const std::size_t size = kind < 2 ? rank.channels[kind].size() : rank.groups.size();
      const JsonNode ids = channels.item(i).field("channel_ids");
      for (std::size_t j = 0; j < ids.size(); ++j) names.channels[kind].push_back(read_below(ids.item(j), size));
    }
  }
  if (block.has("remote_buffer_refs")) {
    const JsonNode references = block.field("remote_buffer_refs");
    for (std::size_t i = 0; i < references.size(); ++i) {
      const Link kind = read_link(references.item(i).field("access_channel_type"));
      const JsonNode ids = references.item(i).field("remote_buffer_ids");
      if (kind == Link::multicast) references.item(i).refuse("is of a switch");
      for (std::size_t j = 0; j < ids.size(); ++j) {
        names.remote[static_cast<std::size_t>(kind)].push_back(read_below(ids.item(j), rank.remote.size()));
      }
    }
  }
  return names;
}

}  // namespace param_sync::foreign
