#include "traces/chakra.hpp"

#if GPUSOCK_WITH_PROTOBUF
#include "chakra.pb.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#endif

namespace param_sync::traces {

#if GPUSOCK_WITH_PROTOBUF
namespace {

/// The version of the format that ASTRA-sim's own traces name.
constexpr const char* kVersion = "0.0.4";

void append(std::string& bytes, const google::protobuf::MessageLite& message) {
  google::protobuf::io::StringOutputStream end(&bytes);
  google::protobuf::io::CodedOutputStream stream(&end);
  stream.WriteVarint32(static_cast<std::uint32_t>(message.ByteSizeLong()));
  message.SerializeToCodedStream(&stream);
}

/// Writes the file of one rank.
class RankTrace {
 public:
  RankTrace(const Tasks& tasks, std::size_t rank) : tasks_(tasks), rank_(static_cast<int>(rank)) {
    std::vector<bool> has_start(tasks.size());
    for (const Task& task : tasks) {
      for (const Dependency& before : task.after) {
        if (before.on_start) has_start[static_cast<std::size_t>(before.task)] = true;
      }
    }
    std::uint64_t id = 0;
    for (const bool has : has_start) {
      starts_.push_back(id);
      ends_.push_back(has ? id + 1 : id);
      id = ends_.back() + 1;
    }
  }

  std::string write() {
    chakra::GlobalMetadata metadata;
    metadata.set_version(kVersion);
    append(bytes_, metadata);
    if (tasks_.empty()) append(bytes_, node(0, "compute", chakra::COMP_NODE));  // ASTRA-sim waits for a last node
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      chakra::Node first = node(starts_[i], "start", chakra::COMP_NODE);
      chakra::Node last = node(ends_[i], "", chakra::COMP_NODE);
      const bool has_start = starts_[i] != ends_[i];
      for (const Dependency& before : tasks_[i].after) {
        const auto& ids = before.on_start ? starts_ : ends_;
        (has_start ? first : last).add_data_deps(ids[static_cast<std::size_t>(before.task)]);
      }
      if (has_start) {
        append(bytes_, first);
        last.add_data_deps(first.id());
      }
      describe(tasks_[i], last);
      append(bytes_, last);
    }
    return std::move(bytes_);
  }

 private:
  static chakra::Node node(std::uint64_t id, const std::string& name, chakra::NodeType type) {
    chakra::Node made;
    made.set_id(id);
    made.set_name(name);
    made.set_type(type);
    chakra::Attribute& on_cpu = *made.add_attr();
    on_cpu.set_name("is_cpu_op");
    on_cpu.set_bool_val(false);
    return made;
  }

  void describe(const Task& task, chakra::Node& node) const {
    if (task.kind == Kind::compute) {
      node.set_name("compute");
      node.set_duration_micros((task.ns + 500) / 1000);
      return;
    }
    const bool sends = task.kind == Kind::send;
    node.set_name(fmt::format("{} {} tag {}", sends ? "send to" : "recv from", task.peer, task.tag));
    node.set_type(sends ? chakra::COMM_SEND_NODE : chakra::COMM_RECV_NODE);
    chakra::Attribute& size = *node.add_attr();
    size.set_name("comm_size");
    size.set_int64_val(static_cast<std::int64_t>(std::max<std::uint64_t>(task.bytes, 1)));
    add(node, "comm_src", sends ? rank_ : task.peer);
    add(node, "comm_dst", sends ? task.peer : rank_);
    add(node, "comm_tag", static_cast<int>(task.tag));
  }

  static void add(chakra::Node& node, const std::string& name, int value) {
    chakra::Attribute& attribute = *node.add_attr();
    attribute.set_name(name);
    attribute.set_int32_val(value);
  }

  const Tasks& tasks_;
  int rank_;
  std::vector<std::uint64_t> starts_, ends_;  // ids, by task: of the node that starts it, and of the node that ends it
  std::string bytes_;
};

}  // namespace

bool writes_chakra() { return true; }

std::vector<std::string> to_chakra(const std::vector<Tasks>& ranks) {
  std::vector<std::string> files;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) files.push_back(RankTrace(ranks[rank], rank).write());
  return files;
}

#else

bool writes_chakra() { return false; }

std::vector<std::string> to_chakra(const std::vector<Tasks>& /*ranks*/) {
  throw schedule::Error(
      "this build cannot write Chakra's traces: install libprotobuf-dev and protobuf-compiler, then run CMake again");
}

#endif

}  // namespace param_sync::traces
