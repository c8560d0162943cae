// MSCCL's XML.
#include "foreign/read.hpp"

#if GPUSOCK_WITH_PUGIXML
#include <pugixml.hpp>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>

namespace param_sync::foreign {

#if GPUSOCK_WITH_PUGIXML

namespace {

constexpr std::size_t kXmlBytesMax = std::size_t{64} << 20;
constexpr std::uint64_t kXmlTreeBytesMax = std::uint64_t{1} << 30;
constexpr int kNodeBytes = 64;       // that pugixml takes for an element
constexpr int kAttributeBytes = 40;  // and for an attribute

/// A text of XML, whose errors name the line.
class XmlText {
 public:
  explicit XmlText(std::string_view text) : text_(text) {
    if (text.size() > kXmlBytesMax) throw Error(fmt::format("has more than {} MiB", kXmlBytesMax >> 20));
    const auto count = [text](char letter) {
      return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), letter));
    };
    if (count('<') * kNodeBytes + count('=') * kAttributeBytes > kXmlTreeBytesMax) {
      throw Error(
          fmt::format("has so many elements that reading it would take more than {} MiB", kXmlTreeBytesMax >> 20));
    }
    const pugi::xml_parse_result result = document_.load_buffer(text.data(), text.size());
    if (!result) throw Error(fmt::format("line {}: is no XML: {}", line(result.offset), result.description()));
  }

  pugi::xml_node root() const { return document_.document_element(); }

  [[noreturn]] void refuse(const pugi::xml_node& node, const std::string& why) const {
    throw Error(
        fmt::format("line {}: <{}> {}", line(node.offset_debug()), std::string(node.name()).substr(0, 40), why));
  }
  std::string words(const pugi::xml_node& node, const char* name) const {
    const pugi::xml_attribute found = node.attribute(name);
    if (!found) refuse(node, fmt::format("has no attribute \"{}\"", name));
    return found.value();
  }
  int number(const pugi::xml_node& node, const char* name, int min, int max) const {
    const std::string text = words(node, name);
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      refuse(node, fmt::format("has {}=\"{}\", not a whole number from {} to {}", name, text.substr(0, 40), min, max));
    }
    return value;
  }
  std::uint64_t large_number(const pugi::xml_node& node, const char* name) const {
    const std::string text = words(node, name);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    refuse(node, fmt::format("has {}=\"{}\", not a whole number", name, text.substr(0, 40)));
  }

 private:
  std::ptrdiff_t line(std::ptrdiff_t offset) const {
    const auto end = text_.begin() + std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
    return std::count(text_.begin(), end, '\n') + 1;
  }

  std::string_view text_;
  pugi::xml_document document_;
};

/// What a type of step does with its two places.
struct StepType {
  const char* name;
  bool receives, reads_source, reads_target, writes_target, sends;
};

constexpr StepType kStepTypes[] = {
    {"s", false, true, false, false, true},     {"r", true, false, false, true, false},
    {"rcs", true, false, false, true, true},    {"rrc", true, true, false, true, false},
    {"rrs", true, true, false, false, true},    {"rrcs", true, true, false, true, true},
    {"cpy", false, true, false, true, false},   {"re", false, true, true, true, false},
    {"nop", false, false, false, false, false},
};

class MscclReader {
 public:
  explicit MscclReader(std::string_view text) : xml_(text) {}

  Plan read() {
    const pugi::xml_node algo = xml_.root();
    if (std::strcmp(algo.name(), "algo") != 0) xml_.refuse(algo, "is the first element, not <algo>");
    read_head(algo);
    plan_.sizes.resize(static_cast<std::size_t>(plan_.ranks));
    std::vector<bool> is_read(static_cast<std::size_t>(plan_.ranks));
    for (const pugi::xml_node gpu : algo.children("gpu")) {
      const int rank = xml_.number(gpu, "id", 0, plan_.ranks - 1);
      if (is_read[static_cast<std::size_t>(rank)])
        xml_.refuse(gpu, fmt::format("is the second one with id=\"{}\"", rank));
      is_read[static_cast<std::size_t>(rank)] = true;
      read_gpu(gpu, rank);
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      if (!is_read[static_cast<std::size_t>(rank)]) xml_.refuse(algo, fmt::format("has no <gpu id=\"{}\">", rank));
    }
    return std::move(plan_);
  }

 private:
  void read_head(const pugi::xml_node& algo) {
    plan_.format = "MSCCL";
    plan_.name = algo.attribute("name").value();
    plan_.ranks = xml_.number(algo, "ngpus", 1, schedule::kNodesMax);
    plan_.data_chunks = xml_.number(algo, "nchunksperloop", 1, kChunksMax);
    plan_.protocol = xml_.words(algo, "proto");
    if (plan_.protocol != "Simple" && plan_.protocol != "LL" && plan_.protocol != "LL128") {
      xml_.refuse(algo, fmt::format("has proto=\"{}\", not Simple, LL or LL128", plan_.protocol.substr(0, 40)));
    }
    // RCCL's buffers, if no variable changes them: 8 steps, of which a piece takes 4 (Simple) or 1.
    plan_.slots = plan_.protocol == "Simple" ? 2 : 8;
    plan_.piece_bytes = plan_.protocol == "Simple" ? 2 << 20 : plan_.protocol == "LL" ? 16 << 10 : 52 << 10;
    if (algo.attribute("maxBytes")) plan_.bytes_max = xml_.large_number(algo, "maxBytes");
    try {
      plan_.collective = parse_collective(xml_.words(algo, "coll"));
      sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
    } catch (const Error& error) {
      xml_.refuse(algo, std::string("is not understood: ") + error.what());
    }
    if (algo.attribute("root")) plan_.root = xml_.number(algo, "root", 0, plan_.ranks - 1);
    plan_.runs_in_place = xml_.number(algo, "inplace", 0, 1) == 1;
    plan_.runs_out_of_place = algo.attribute("outofplace") ? xml_.number(algo, "outofplace", 0, 1) == 1
                                                           : !plan_.runs_in_place;
    if (!plan_.runs_in_place && !plan_.runs_out_of_place) xml_.refuse(algo, "runs neither in place nor out of place");
  }

  void read_gpu(const pugi::xml_node& gpu, int rank) {
    Sizes& sizes = plan_.sizes[static_cast<std::size_t>(rank)];
    sizes.input = xml_.number(gpu, "i_chunks", 0, kChunksMax);
    sizes.output = xml_.number(gpu, "o_chunks", 0, kChunksMax);
    sizes.scratch = xml_.number(gpu, "s_chunks", 0, kChunksMax);
    const std::size_t first = plan_.blocks.size();
    std::vector<std::vector<int>> posted;  // by block and number of a step in the file: Block::steps's index of the
                                           // step that tells that this one is done; kNone if none does
    std::vector<Waiting> waiting;
    for (const pugi::xml_node tb : gpu.children("tb")) {
      const auto number = static_cast<int>(plan_.blocks.size() - first);
      const int id = xml_.number(tb, "id", 0, kBlocksMax - 1);
      if (id != number) xml_.refuse(tb, fmt::format("has id=\"{}\", but is number {} of its <gpu>", id, number));
      if (plan_.blocks.size() == kBlocksMax) xml_.refuse(tb, fmt::format("is more than {} thread blocks", kBlocksMax));
      plan_.blocks.push_back({rank, id, {}});
      posted.push_back(read_block(tb, waiting));
    }
    resolve(rank, first, posted, waiting);
  }

  /// A step that waits for another block's step, by numbers of the file.
  struct Waiting {
    pugi::xml_node node;
    std::size_t block;  // of Plan::blocks
    std::size_t step;   // of Block::steps
    int other, other_step;
  };

  std::vector<int> read_block(const pugi::xml_node& tb, std::vector<Waiting>& waiting) {
    Block& block = plan_.blocks.back();
    const int send_peer = peer(tb, "send", block.rank);
    const int receive_peer = peer(tb, "recv", block.rank);
    const int channel = xml_.number(tb, "chan", 0, schedule::kChannelsMax - 1);
    std::vector<int> done;        // by number in the file: the index in Block::steps that has done it
    std::vector<bool> is_posted;  // true if the step tells that it is done
    for (const pugi::xml_node node : tb.children("step")) {
      const auto number = static_cast<int>(done.size());
      const int given = xml_.number(node, "s", 0, kStepsMax);
      if (given != number) xml_.refuse(node, fmt::format("has s=\"{}\", but is number {} of its <tb>", given, number));
      if (++steps_ > kStepsMax) xml_.refuse(node, fmt::format("is more than {} steps", kStepsMax));
      const std::string type_name = xml_.words(node, "type");
      const auto* type = std::find_if(std::begin(kStepTypes), std::end(kStepTypes),
                                      [&type_name](const StepType& each) { return type_name == each.name; });
      if (type == std::end(kStepTypes)) {
        xml_.refuse(node, fmt::format("has type=\"{}\", which we do not know", type_name.substr(0, 40)));
      }
      const int other = xml_.number(node, "depid", -1, kBlocksMax - 1);
      if (other >= 0) {
        waiting.push_back(
            {node, plan_.blocks.size() - 1, block.steps.size(), other, xml_.number(node, "deps", 0, kStepsMax)});
        Step await;
        await.kind = Kind::await;
        await.name = type_name;
        await.index = number;
        block.steps.push_back(std::move(await));
      }
      const bool is_nop = type_name == "nop";
      is_posted.push_back(xml_.number(node, "hasdep", 0, 1) == 1 && !is_nop);  // an interpreter joins a nop to the next
                                                                               // step
      if (!is_nop) read_move(node, *type, number, send_peer, receive_peer, channel);
      done.push_back(static_cast<int>(block.steps.size()) - 1);
    }
    // An interpreter counts steps: a later step that tells its number also tells that earlier ones are done.
    int next = kNone;
    std::vector<int> posted(done.size(), kNone);
    for (std::size_t i = done.size(); i-- > 0;) posted[i] = next = is_posted[i] ? done[i] : next;
    return posted;
  }

  void read_move(const pugi::xml_node& node, const StepType& type, int number, int send_peer, int receive_peer,
                 int channel) {
    Block& block = plan_.blocks.back();
    Step step;
    step.name = type.name;
    step.index = number;
    step.count = xml_.number(node, "cnt", 0, kChunksMax);
    if (type.receives) {
      if (receive_peer == kNone) xml_.refuse(node, "receives, but its <tb> has recv=\"-1\"");
      step.receives = connect(receive_peer, block.rank, channel, block, receivers_);
    }
    if (type.sends) {
      if (send_peer == kNone) xml_.refuse(node, "sends, but its <tb> has send=\"-1\"");
      step.sends = connect(block.rank, send_peer, channel, block, senders_);
    }
    bool is_inside = true;
    if (type.reads_source) is_inside &= add_place(node, "srcbuf", "srcoff", step, step.from);
    if (type.reads_target) is_inside &= add_place(node, "dstbuf", "dstoff", step, step.from);
    if (type.writes_target) is_inside &= add_place(node, "dstbuf", "dstoff", step, step.to);
    if (is_inside) block.steps.push_back(std::move(step));
  }

  /// Adds a place. False if it is outside the buffer.
  bool add_place(const pugi::xml_node& node, const char* buffer_name, const char* offset_name, const Step& step,
                 std::vector<Place>& places) {
    const Block& block = plan_.blocks.back();
    const Sizes& sizes = plan_.sizes[static_cast<std::size_t>(block.rank)];
    const std::string text = xml_.words(node, buffer_name);
    Place place;
    place.rank = block.rank;
    int chunks = sizes.input;
    if (text == "o") {
      place.buffer = Buffer::output;
      chunks = sizes.output;
    } else if (text == "s") {
      place.buffer = Buffer::scratch;
      chunks = sizes.scratch;
    } else if (text != "i") {
      xml_.refuse(node, fmt::format("has {}=\"{}\", not i, o or s", buffer_name, text.substr(0, 40)));
    }
    place.cell = xml_.number(node, offset_name, 0, kChunksMax);
    places.push_back(place);
    if (place.cell + step.count <= chunks) return true;
    note_fault(fmt::format("bounds: {} uses {} chunks from {} on, but there are {}", location(plan_, block, step),
                           step.count, name_of(plan_, place), chunks));
    return false;
  }

  void note_fault(std::string fault) {
    if (plan_.fault.empty()) plan_.fault = std::move(fault);
  }

  int peer(const pugi::xml_node& tb, const char* name, int rank) const {
    const int peer = xml_.number(tb, name, -1, plan_.ranks - 1);
    if (peer == rank) xml_.refuse(tb, fmt::format("has {}=\"{}\", which is its own <gpu>", name, peer));
    return peer;
  }

  int connect(int from, int to, int channel, const Block& block, std::map<int, int>& users) {
    const auto [found, is_new] = connections_.try_emplace({from, to, channel},
                                                          static_cast<int>(plan_.connections.size()));
    if (is_new) plan_.connections.push_back({from, to, channel});
    const auto [user, is_first] = users.try_emplace(found->second, block.id);
    if (!is_first && user->second != block.id) {
      note_fault(fmt::format(
          "channel: thread blocks {} and {} of rank {} both use channel {} from rank {} to rank {}: each end has one",
          user->second, block.id, block.rank, channel, from, to));
    }
    return found->second;
  }

  void resolve(int rank, std::size_t first, const std::vector<std::vector<int>>& posted,
               const std::vector<Waiting>& waiting) {
    for (const Waiting& each : waiting) {
      const auto other = static_cast<std::size_t>(each.other);
      if (other >= posted.size()) {
        xml_.refuse(each.node,
                    fmt::format("has depid=\"{}\", but the <gpu> has {} thread blocks", other, posted.size()));
      }
      if (static_cast<std::size_t>(each.other_step) >= posted[other].size()) {
        xml_.refuse(each.node, fmt::format("has deps=\"{}\", but thread block {} has {} steps", each.other_step, other,
                                           posted[other].size()));
      }
      Block& block = plan_.blocks[each.block];
      Step& step = block.steps[each.step];
      step.awaited_block = static_cast<int>(first + other);
      step.awaited_step = posted[other][static_cast<std::size_t>(each.other_step)];
      if (step.awaited_step != kNone) continue;
      note_fault(fmt::format(
          "deadlock: {} waits for step {} of thread block {} of rank {}, but no step there from {} on has hasdep=\"1\"",
          location(plan_, block, step), each.other_step, other, rank, each.other_step));
    }
  }

  XmlText xml_;
  Plan plan_;
  int steps_ = 0;
  std::map<std::tuple<int, int, int>, int> connections_;
  std::map<int, int> senders_, receivers_;  // by connection: the block's number in its rank
};

}  // namespace

bool reads_xml() { return true; }

Plan read_msccl(std::string_view text) { return MscclReader(text).read(); }

#else

bool reads_xml() { return false; }

Plan read_msccl(std::string_view) {
  throw Error("is XML, which this build does not read: install libpugixml-dev and build again");
}

#endif

}  // namespace param_sync::foreign
