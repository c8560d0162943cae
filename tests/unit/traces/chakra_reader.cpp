#include "chakra_reader.hpp"

#include "chakra.pb.h"

#include <google/protobuf/io/coded_stream.h>

#include <map>
#include <stdexcept>

namespace traces_test {
namespace {

namespace chakra = param_sync::chakra;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not a trace: " + what);
}

template <class Message>
bool read_next(google::protobuf::io::CodedInputStream& stream, Message& message) {
  std::uint32_t bytes = 0;
  if (!stream.ReadVarint32(&bytes)) return false;
  const auto limit = stream.PushLimit(static_cast<int>(bytes));
  require(message.ParseFromCodedStream(&stream) && stream.BytesUntilLimit() == 0, "a message of another length");
  stream.PopLimit(limit);
  return true;
}

std::vector<chakra::Node> nodes_of(const std::string& file) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(file.data()),
                                                static_cast<int>(file.size()));
  chakra::GlobalMetadata metadata;
  require(read_next(stream, metadata) && !metadata.version().empty(), "no version");
  std::vector<chakra::Node> nodes;
  for (chakra::Node node; read_next(stream, node);) nodes.push_back(node);
  return nodes;
}

std::int64_t number(const chakra::Node& node, const std::string& name) {
  for (const chakra::Attribute& attribute : node.attr()) {
    if (attribute.name() == name) return name == "comm_size" ? attribute.int64_val() : attribute.int32_val();
  }
  throw std::runtime_error("not a trace: no " + name);
}

GoalOp op_of(const chakra::Node& node, int rank) {
  GoalOp op;
  if (node.type() == chakra::COMP_NODE) {
    op.what = "calc";
    op.size = node.duration_micros();
    return op;
  }
  const bool sends = node.type() == chakra::COMM_SEND_NODE;
  require(sends || node.type() == chakra::COMM_RECV_NODE, "a node of another type");
  require(number(node, sends ? "comm_src" : "comm_dst") == rank, "a message of another rank");
  op.what = sends ? "send" : "recv";
  op.size = static_cast<std::uint64_t>(number(node, "comm_size"));
  op.peer = static_cast<int>(number(node, sends ? "comm_dst" : "comm_src"));
  op.tag = static_cast<std::uint64_t>(number(node, "comm_tag"));
  return op;
}

GoalRank read_rank(const std::string& file, int rank) {
  const std::vector<chakra::Node> nodes = nodes_of(file);
  std::map<std::uint64_t, std::size_t> ops, starts;  // by id: the op that ends with the node, or starts with it
  std::vector<const chakra::Node*> waiting;          // by op: the node that has its dependencies
  GoalRank read;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_start = nodes[i].name() == "start";
    const chakra::Node& last = nodes[is_start ? ++i : i];
    waiting.push_back(is_start ? &nodes[i - 1] : &last);
    if (is_start) {
      require(waiting.back()->type() == chakra::COMP_NODE && waiting.back()->duration_micros() == 0, "a long start");
      require(last.data_deps_size() == 1 && last.data_deps(0) == waiting.back()->id(), "a start of nothing");
      require(starts.try_emplace(waiting.back()->id(), read.size()).second, "an id twice");
    }
    require(ops.try_emplace(last.id(), read.size()).second, "an id twice");
    read.push_back(op_of(last, rank));
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    for (const std::uint64_t id : waiting[i]->data_deps()) {
      const bool on_start = starts.contains(id);
      require(on_start || ops.contains(id), "it waits for no node");
      (on_start ? read[i].started : read[i].ended).push_back(on_start ? starts[id] : ops[id]);
    }
  }
  return read;
}

}  // namespace

std::vector<GoalRank> read_chakra(const std::vector<std::string>& files) {
  std::vector<GoalRank> ranks;
  for (const std::string& file : files) ranks.push_back(read_rank(file, static_cast<int>(ranks.size())));
  return ranks;
}

}  // namespace traces_test
