// MSCCL++'s JSON.
#include "foreign/mscclpp_channels.hpp"
#include "foreign/read.hpp"

#include "param_sync/schedule/json_node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace param_sync::foreign {
namespace {

using schedule::JsonDocument;
using schedule::JsonNode;

constexpr int kSeveral = 3;  // iterations of a loop that we look at, unless scratch memory is reused
constexpr std::int64_t kScratchBytes = 1 << 26;  // of the executor, if plans share it ("reuse_resources")
constexpr std::size_t kPlacesMax = std::size_t{1} << 22;
constexpr int kBytesMax = std::numeric_limits<int>::max();

/// Which part of each chunk an operation uses.
struct Part {
  int index = 0, parts = 1;  ///< of a thread block group
  int iteration = kNone;     ///< of a loop
  int chunks = 0;            ///< that the loop covers
};

/// One of the places of an operation, in chunks.
struct Reference {
  std::vector<Place> places;  ///< several: of all ranks of a switch's group
  int size = 0;               ///< chunks
  bool is_remote = false;     ///< true if it is another rank's, or a switch's
  bool is_switch = false;     ///< true if it is a switch's
};

class MscclppReader {
 public:
  MscclppReader(std::string_view text, int iterations) : document_(text, "the plan"), iterations_(iterations) {}

  Plan read() {
    read_head(document_.root());
    const JsonNode gpus = document_.root().field("gpus");
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const JsonNode gpu = gpus.item(static_cast<std::size_t>(rank));
      ranks_.push_back(read_channels(gpu, rank, plan_.ranks));
      read_semaphores(gpu, rank);
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const JsonNode blocks = gpus.item(static_cast<std::size_t>(rank)).field("threadblocks");
      for (std::size_t i = 0; i < blocks.size(); ++i) read_block(blocks.item(i), rank, static_cast<int>(i));
    }
    require_one_use_of_scratch();
    return std::move(plan_);
  }

 private:
  static bool flag(const JsonNode& node) {
    const std::string text = node.shown();
    if (text != "true" && text != "false") node.refuse(fmt::format("is {}, not true or false", text));
    return text == "true";
  }
  static bool flag_or_no(const JsonNode& node, const char* name) { return node.has(name) && flag(node.field(name)); }

  void read_head(const JsonNode& root) {
    plan_.format = "MSCCL++";
    plan_.steps_called = "operation";
    plan_.syncs_itself = false;
    plan_.name = root.field("name").text();
    plan_.protocol = root.field("protocol").text();
    const JsonNode gpus = root.field("gpus");
    if (gpus.size() < 1 || gpus.size() > schedule::kNodesMax) {
      gpus.refuse(fmt::format("has {} entries, not 1 to {}", gpus.size(), schedule::kNodesMax));
    }
    plan_.ranks = static_cast<int>(gpus.size());
    if (gpus.item(0).has("inputChunks")) {
      gpus.item(0).refuse(
          "has \"inputChunks\": this is the format of MSCCL++ 0.5 to 0.7. We read that of 0.8 and later: "
          "\"input_chunks\"");
    }
    if (!gpus.item(0).has("input_chunks")) gpus.item(0).refuse("\"input_chunks\" is missing: it is no plan of MSCCL++");
    try {
      plan_.collective = parse_collective(root.field("collective").text());
    } catch (const Error& error) {
      root.refuse(error.what());
    }
    (flag(root.field("inplace")) ? plan_.runs_in_place : plan_.runs_out_of_place) = true;
    reuses_scratch_ = flag_or_no(root, "reuse_resources");
    plan_.doubles_scratch = flag_or_no(root, "use_double_scratch_buffer");
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) read_sizes(gpus.item(rank), static_cast<int>(rank));
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      const JsonNode blocks = gpus.item(rank).field("threadblocks");
      for (std::size_t block = 0; block < blocks.size(); ++block) {
        const JsonNode operations = blocks.item(block).field("ops");
        for (std::size_t i = 0; i < operations.size(); ++i) {
          cut(operations.item(i), plan_.sizes[rank]);
        }
      }
    }
    plan_.slices = parts_ * loop_cells_;
    if (plan_.slices > kSlicesMax)
      root.refuse(fmt::format("cuts chunks into {} slices, more than {}", plan_.slices, kSlicesMax));
    if (parts_ > 1 && loop_unit_ != 0)
      root.refuse("has thread block groups and pipelines: we do not know which data are whose");
  }

  void read_sizes(const JsonNode& gpu, int rank) {
    gpu.field("id").number(rank, rank);
    Sizes sizes;
    sizes.input = gpu.field("input_chunks").number(0, kChunksMax);
    sizes.output = gpu.field("output_chunks").number(0, kChunksMax);
    sizes.scratch = gpu.field("scratch_chunks").number(0, kChunksMax);
    int chunks = std::max(sizes.input, sizes.output);
    if (plan_.collective == Collective::all_gather && sizes.output == 0) chunks = sizes.input * plan_.ranks;
    if (plan_.collective == Collective::reduce_scatter && sizes.input == 0) chunks = sizes.output * plan_.ranks;
    if (chunks < 1) gpu.refuse("has neither input nor output chunks");
    if (chunks > kChunksMax) gpu.refuse(fmt::format("has more than {} chunks", kChunksMax));
    if (rank == 0) plan_.data_chunks = chunks;
    if (chunks != plan_.data_chunks) {
      gpu.refuse(fmt::format("has {} chunks of data, but rank 0 has {}", chunks, plan_.data_chunks));
    }
    try {
      sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
    } catch (const Error& error) {
      gpu.refuse(error.what());
    }
    plan_.sizes.push_back(sizes);
  }

  /// Finds out into how many cells chunks must be cut, so that each operation uses whole cells.
  void cut(const JsonNode& operation, const Sizes& sizes) {
    if (operation.has("tbg_info")) {
      parts_ = std::lcm(parts_, operation.field("tbg_info").field("tbg_size").number(1, kSlicesMax));
      if (parts_ > kSlicesMax) operation.refuse(fmt::format("cuts chunks into more than {} parts", kSlicesMax));
    }
    if (!operation.has("iter_context")) return;
    const int unit = operation.field("iter_context").field("unit_size").number(1, kBytesMax);
    if (loop_unit_ != 0 && loop_unit_ != unit) {
      operation.refuse(fmt::format("has unit_size {}, but another pipeline has {}: we do not know which data are whose",
                                   unit, loop_unit_));
    }
    loop_unit_ = unit;
    if (reuses_scratch_ && sizes.scratch > 0) {
      const std::int64_t turns = kScratchBytes / sizes.scratch / unit;  // until scratch memory is used again
      if (turns < 1 || turns > kSlicesMax) {
        operation.refuse(fmt::format("uses scratch memory again after {} iterations, not 1 to {}", turns, kSlicesMax));
      }
      scratch_turns_ = scratch_turns_ == 0 ? static_cast<int>(turns)
                                           : std::min(scratch_turns_, static_cast<int>(turns));
    }
    loop_cells_ = iterations_ != 0 ? iterations_ : std::max(kSeveral, scratch_turns_ + 2);
    plan_.iteration_bytes = static_cast<std::uint64_t>(unit);
  }

  void read_semaphores(const JsonNode& gpu, int rank) {
    if (!gpu.has("semaphores")) return;
    const JsonNode semaphores = gpu.field("semaphores");
    for (std::size_t i = 0; i < semaphores.size(); ++i) {
      semaphores_[{rank, static_cast<int>(i)}] = static_cast<int>(plan_.counters.size());
      plan_.counters.push_back({fmt::format("semaphore {} of rank {}", i, rank),
                                semaphores.item(i).field("init_value").number(0, kStepsMax)});
    }
  }

  void read_block(const JsonNode& node, int rank, int id) {
    node.field("id").number(id, id);
    if (plan_.blocks.size() == kBlocksMax) node.refuse(fmt::format("is one of more than {} thread blocks", kBlocksMax));
    names_ = read_names(node, ranks_[static_cast<std::size_t>(rank)]);
    plan_.blocks.push_back({rank, id, {}});
    const JsonNode operations = node.field("ops");
    for (std::size_t i = 0; i < operations.size(); ++i) {
      index_ = static_cast<int>(i);
      read_operation(operations.item(i));
    }
  }

  void read_operation(const JsonNode& node) {
    const std::string name = node.field("name").text();
    if (name != "pipeline") {
      Part part;
      if (node.has("tbg_info")) {
        part.parts = node.field("tbg_info").field("tbg_size").number(1, kSlicesMax);
        part.index = node.field("tbg_info").field("tb_id").number(0, part.parts - 1);
      }
      do_operation(node, name, name, part);
      return;
    }
    const int chunks = node.field("iter_context").field("num_chunks").number(1, kChunksMax);
    const JsonNode operations = node.field("ops");
    for (int iteration = 0; iteration < chunks * loop_cells_; ++iteration) {
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const std::string inner = operations.item(i).field("name").text();
        if (inner == "pipeline") operations.item(i).refuse("is a pipeline in a pipeline");
        do_operation(operations.item(i), inner, fmt::format("{}, number {} of a pipeline", inner, i),
                     {0, 1, iteration, chunks});
      }
    }
  }

  Step& add(Kind kind, const std::string& shown, const Part& part) {
    Block& block = plan_.blocks.back();
    if (++steps_ > kStepsMax) throw Error(fmt::format("the plan has more than {} operations", kStepsMax));
    Step step;
    step.kind = kind;
    step.name = shown;
    step.index = index_;
    step.iteration = part.iteration;
    block.steps.push_back(std::move(step));
    return block.steps.back();
  }

  void do_operation(const JsonNode& node, const std::string& name, const std::string& shown, const Part& part) {
    if (name == "nop") {
      add(Kind::sync, shown, part);
    } else if (name == "barrier") {
      do_barrier(node, shown, part);
    } else if (name == "signal" || name == "rlxsignal" || name == "wait" || name == "rlxwait") {
      do_signals(node, name, shown, part);
    } else if (name == "sem_acquire" || name == "sem_release") {
      const JsonNode ids = node.field("semaphore_ids");
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto found = semaphores_.find({plan_.blocks.back().rank, ids.item(i).number(0, kStepsMax)});
        if (found == semaphores_.end()) ids.item(i).refuse("is none of the semaphores of the rank");
        add(name == "sem_acquire" ? Kind::wait : Kind::signal, shown, part).counter = found->second;
      }
    } else if (name == "flush") {
      require_link(node, Link::port);
      const JsonNode ids = node.field("channel_ids");
      for (std::size_t i = 0; i < ids.size(); ++i)
        add(Kind::flush, shown, part).queue = queue(channel(ids.item(i), Link::port));
    } else {
      do_move(node, name, shown, part);
    }
  }

  void do_barrier(const JsonNode& node, const std::string& shown, const Part& part) {
    const int rank = plan_.blocks.back().rank;
    const int id = node.field("barrier_id").number(0, kStepsMax);
    const int blocks = node.field("num_threadblocks").number(1, kBlocksMax);
    const auto [found, is_new] = barriers_.try_emplace({rank, id}, static_cast<int>(plan_.barriers.size()));
    if (is_new) plan_.barriers.push_back({fmt::format("barrier {} of rank {}", id, rank), blocks});
    if (plan_.barriers[static_cast<std::size_t>(found->second)].blocks != blocks) {
      node.refuse(fmt::format("waits for {} thread blocks, but an earlier barrier {} waits for {}", blocks, id,
                              plan_.barriers[static_cast<std::size_t>(found->second)].blocks));
    }
    add(Kind::barrier, shown, part).barrier = found->second;
  }

  static Link link_of(const JsonNode& node) {
    return node.has("channel_type") && node.field("channel_type").text() != "none"
               ? read_link(node.field("channel_type"))
               : Link::memory;
  }
  static void require_link(const JsonNode& node, Link needed) {
    if (link_of(node) == needed) return;
    node.refuse(fmt::format("needs a {} channel", needed == Link::port     ? "port"
                                                  : needed == Link::memory ? "memory"
                                                                           : "switch"));
  }

  /// A channel of the rank, by the number that the thread block gives it.
  int channel(const JsonNode& id, Link kind) const {
    const std::vector<int>& ids = names_.channels[static_cast<std::size_t>(kind)];
    return ids[static_cast<std::size_t>(read_below(id, ids.size()))];
  }

  /// The queue of a port channel of this rank.
  int queue(int number) {
    const int rank = plan_.blocks.back().rank;
    const auto [found, is_new] = queues_.try_emplace({rank, number}, static_cast<int>(plan_.queues.size()));
    if (is_new) plan_.queues.push_back(rank);
    return found->second;
  }

  /// The counter of a channel at `at`, which `from` signals.
  int counter(int at, int from, Link kind, int ordinal) {
    const auto [found, is_new] = counters_.try_emplace({at, from, kind, ordinal},
                                                       static_cast<int>(plan_.counters.size()));
    if (is_new) {
      plan_.counters.push_back({fmt::format("the signal of rank {} to rank {} on {} channel {} between them", from, at,
                                            kind == Link::port ? "port" : "memory", ordinal),
                                0});
    }
    return found->second;
  }

  void add_signal(int number, Link kind, const std::string& shown, const Part& part, bool relaxed) {
    const int rank = plan_.blocks.back().rank;
    const RankChannels::Channel& made = ranks_[static_cast<std::size_t>(rank)]
                                            .channels[static_cast<std::size_t>(kind)][static_cast<std::size_t>(number)];
    const int of_peer = counter(made.peer, rank, kind, made.ordinal);
    const int queued = kind == Link::port ? queue(number) : kNone;
    Step& step = add(Kind::signal, shown, part);
    step.counter = of_peer;
    step.queue = queued;
    step.relaxed = relaxed;
  }

  void do_signals(const JsonNode& node, const std::string& name, const std::string& shown, const Part& part) {
    const Link kind = link_of(node);
    if (kind == Link::multicast) node.refuse("needs a memory or port channel");
    const bool relaxed = name.starts_with("rlx") && kind == Link::memory;  // a port's signals always follow its data
    const int rank = plan_.blocks.back().rank;
    const JsonNode ids = node.field("channel_ids");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const int number = channel(ids.item(i), kind);
      if (name.ends_with("signal")) {
        add_signal(number, kind, shown, part, relaxed);
        continue;
      }
      const RankChannels::Channel& made = ranks_[static_cast<std::size_t>(rank)].channels[static_cast<std::size_t>(
          kind)][static_cast<std::size_t>(number)];
      const int own = counter(rank, made.peer, kind, made.ordinal);
      Step& step = add(Kind::wait, shown, part);
      step.counter = own;
      step.relaxed = name == "rlxwait";
    }
  }

  /// Reads an item of src_buff or dst_buff.
  Reference reference(const JsonNode& node, Link kind, const Part& part) const {
    const int rank = plan_.blocks.back().rank;
    const RankChannels& made = ranks_[static_cast<std::size_t>(rank)];
    Reference read;
    const int index = node.field("index").number(0, kChunksMax);
    read.size = node.field("size").number(0, kChunksMax);
    if (node.has("switch_channel_id")) {
      const RankChannels::Group& group =
          made.groups[static_cast<std::size_t>(channel(node.field("switch_channel_id"), Link::multicast))];
      for (const int member : group.ranks) read.places.push_back({member, group.buffer});
      read.is_remote = read.is_switch = true;
    } else if (node.has("buffer_id")) {
      if (kind == Link::multicast) node.refuse("has a buffer_id, but the channel is a switch's");
      const std::vector<int>& ids = names_.remote[static_cast<std::size_t>(kind)];
      read.places.push_back(made.remote[static_cast<std::size_t>(
          ids[static_cast<std::size_t>(read_below(node.field("buffer_id"), ids.size()))])]);
      read.is_remote = true;
    } else {
      read.places.push_back({rank, read_buffer(node.field("type"))});
    }
    for (Place& place : read.places) place.cell = first_cell(node, place.buffer, index, read.size, part);
    return read;
  }

  /// The first cell of a place that has `size` chunks.
  int first_cell(const JsonNode& node, Buffer kind, int index, int size, const Part& part) const {
    const int first = index * plan_.slices;
    if (part.iteration == kNone)
      return first + static_cast<int>(static_cast<std::int64_t>(size) * plan_.slices * part.index / part.parts);
    if (size != part.chunks) {
      node.refuse(
          fmt::format("has size {} in a pipeline of {} chunks: we do not know which data it uses", size, part.chunks));
    }
    const bool wraps = kind == Buffer::scratch && scratch_turns_ > 0;
    return first + (wraps ? part.iteration % scratch_turns_ : part.iteration);
  }

  int cells(int size, const Part& part) const {
    if (part.iteration != kNone) return 1;
    const std::int64_t all = static_cast<std::int64_t>(size) * plan_.slices;
    return static_cast<int>(all * (part.index + 1) / part.parts - all * part.index / part.parts);
  }

  std::vector<Reference> references(const JsonNode& node, const char* name, Link kind, const Part& part) const {
    std::vector<Reference> read;
    const JsonNode list = node.field(name);
    for (std::size_t i = 0; i < list.size(); ++i) read.push_back(reference(list.item(i), kind, part));
    if (read.empty()) list.refuse("is empty");
    for (std::size_t i = 0; i < read.size(); ++i) {
      if (read[i].size != read[0].size && name[0] == 's' && !is_by_pairs_)
        list.item(i).refuse("has another size than the first one");
    }
    return read;
  }

  /// How an operation uses its places.
  struct Use {
    const char* name;
    bool by_pairs;  ///< each source goes to the target of the same number; else all sources are summed to all targets
    int first_packets_in;  ///< sources from here on are packets; kNever: none
    int first_packets_out;
    bool remote_in, remote_out;  ///< true if sources, or targets, may be of other ranks
  };
  static constexpr int kNever = 100;
  static constexpr Use kUses[] = {
      {"put", true, kNever, kNever, false, true},
      {"pws", true, kNever, kNever, false, true},
      {"pwsf", true, kNever, kNever, false, true},
      {"get", true, kNever, kNever, true, false},
      {"copy", true, kNever, kNever, false, false},
      {"re", false, kNever, kNever, false, false},
      {"res", false, kNever, kNever, false, true},
      {"rre", false, kNever, kNever, true, false},
      {"rres", false, kNever, kNever, true, true},
      {"ppkt", true, kNever, 0, false, true},
      {"rppkt", false, 0, 0, false, true},
      {"repkt", false, 1, kNever, false, false},
      {"respkt", false, 1, 1, false, true},
      {"recpkt", false, 1, 1, false, false},
      {"recspkt", false, 1, 1, false, true},
      {"upkt", true, 0, kNever, false, false},
      {"cpkt", true, kNever, 0, false, false},
      {"glres", false, kNever, kNever, true, true},
      {"gstore", false, kNever, kNever, false, true},
      {"gstorepkt", false, 0, 0, false, true},
  };

  void do_move(const JsonNode& node, const std::string& name, const std::string& shown, const Part& part) {
    const auto* use = std::find_if(std::begin(kUses), std::end(kUses),
                                   [&name](const Use& each) { return name == each.name; });
    if (use == std::end(kUses))
      node.field("name").refuse(fmt::format("is {}, which we do not know", node.field("name").shown()));
    const Link kind = link_of(node);
    is_by_pairs_ = use->by_pairs;
    std::vector<Reference> sources = references(node, "src_buff", kind, part);
    std::vector<Reference> targets = references(node, "dst_buff", kind, part);
    const bool is_put = name == "put" || name == "pws" || name == "pwsf" || name == "ppkt" || name == "rppkt";
    if (kind == Link::port && !is_put) node.refuse("needs a memory channel");
    if ((name == "pws" || name == "pwsf") && kind != Link::port) node.refuse("needs a port channel");
    if (part.iteration != kNone && (use->first_packets_in != kNever || use->first_packets_out != kNever)) {
      node.refuse("uses packets in a pipeline: the executor ignores the loop there");
    }
    const bool ports_packets = kind == Link::port && name == "ppkt";  // its source has packets, too
    mark_packets(node, sources, ports_packets ? 0 : use->first_packets_in, !ports_packets);
    mark_packets(node, targets, use->first_packets_out, false);
    require_ranks(node, sources, use->remote_in);
    require_ranks(node, targets, use->remote_out);
    if (use->by_pairs) {
      if (sources.size() != targets.size()) {
        node.refuse(fmt::format("has {} sources, but {} targets", sources.size(), targets.size()));
      }
      for (std::size_t i = 0; i < sources.size(); ++i) {
        if (sources[i].size != targets[i].size) node.refuse("has sources and targets of different sizes");
        add_move(node, shown, part, {sources[i]}, {targets[i]}, kind == Link::port ? static_cast<int>(i) : kNone, name);
      }
      return;
    }
    for (const Reference& target : targets) {
      if (target.size != sources[0].size) node.refuse("has sources and targets of different sizes");
    }
    if (kind != Link::port) {
      add_move(node, shown, part, sources, targets, kNone, name);
      return;
    }
    add_move(node, shown, part, sources, {}, kNone, name);  // it waits for the packets; then the proxy copies them
    add(Kind::sync, shown, part);
    for (Reference& source : sources) {
      for (Place& place : source.places) place.waits_for_packets = false;
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      add_move(node, shown, part, sources, {targets[i]}, static_cast<int>(i), name);
    }
  }

  static void mark_packets(const JsonNode& node, std::vector<Reference>& list, int first, bool waits) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (static_cast<int>(i) < first) continue;
      for (Place& place : list[i].places) {
        if (place.buffer != Buffer::scratch) node.refuse("has packets that are not in scratch memory");
        place.buffer = Buffer::packets;
        place.waits_for_packets = waits;
      }
    }
  }

  static void require_ranks(const JsonNode& node, const std::vector<Reference>& list, bool may_be_remote) {
    for (const Reference& each : list) {
      if (each.is_remote && !may_be_remote) node.refuse("uses another rank's buffer, which this operation cannot");
    }
  }

  /// Adds a move, and what follows it on a port channel: `port` is the number of its channel in channel_ids, or kNone.
  void add_move(const JsonNode& node, const std::string& shown, const Part& part, const std::vector<Reference>& sources,
                const std::vector<Reference>& targets, int port, const std::string& name) {
    int number = kNone;
    if (port != kNone) {
      const JsonNode ids = node.field("channel_ids");
      if (static_cast<std::size_t>(port) >= ids.size()) ids.refuse("has fewer entries than the operation has targets");
      number = channel(ids.item(static_cast<std::size_t>(port)), Link::port);
    }
    const int queued = port == kNone ? kNone : queue(number);
    Step& step = add(Kind::move, shown, part);
    step.count = cells(sources[0].size, part);
    step.queue = queued;
    for (const Reference& source : sources) {
      step.from.insert(step.from.end(), source.places.begin(), source.places.end());
      step.uses_switch |= source.is_switch;
    }
    for (const Reference& target : targets) {
      step.to.insert(step.to.end(), target.places.begin(), target.places.end());
      step.uses_switch |= target.is_switch;
    }
    places_ += step.from.size() + step.to.size();
    if (places_ > kPlacesMax) throw Error(fmt::format("the plan's operations use more than {} places", kPlacesMax));
    require_inside(step);
    if (name == "pws" || name == "pwsf") add_signal(number, Link::port, shown, part, false);
    if (name == "pwsf") add(Kind::flush, shown, part).queue = queued;
  }

  void note_fault(std::string fault) {
    if (plan_.fault.empty()) plan_.fault = std::move(fault);
  }

  /// Notes a fault if the step leaves a buffer; then it does nothing.
  void require_inside(Step& step) {
    const Sizes whole = sizes_of(plan_.collective, plan_.ranks, plan_.data_chunks);
    for (const std::vector<Place>* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        const Sizes& sizes = plan_.sizes[static_cast<std::size_t>(place.rank)];
        int chunks = sizes.scratch;
        if (place.buffer == Buffer::input) chunks = std::max(sizes.input, whole.input);
        if (place.buffer == Buffer::output) chunks = std::max(sizes.output, whole.output);
        if (place.cell + step.count <= chunks * plan_.slices) continue;
        note_fault(fmt::format("bounds: {} goes beyond the end of the buffer: {} is not there",
                               location(plan_, plan_.blocks.back(), step),
                               name_of(plan_, {place.rank, place.buffer, place.cell + step.count - 1})));
        step.count = 0;
        return;
      }
    }
  }

  /// Packets and plain data lie in scratch memory at different addresses, and may overlap.
  void require_one_use_of_scratch() const {
    std::vector<std::array<bool, 2>> used(static_cast<std::size_t>(plan_.ranks));
    for (const Block& block : plan_.blocks) {
      for (const Step& step : block.steps) {
        for (const std::vector<Place>* places : {&step.from, &step.to}) {
          for (const Place& place : *places) {
            if (place.buffer == Buffer::scratch) used[static_cast<std::size_t>(place.rank)][0] = true;
            if (place.buffer == Buffer::packets) used[static_cast<std::size_t>(place.rank)][1] = true;
          }
        }
      }
    }
    for (std::size_t rank = 0; rank < used.size(); ++rank) {
      if (used[rank][0] && used[rank][1]) {
        throw Error(
            fmt::format("the plan has both packets and plain data in the scratch memory of rank {}: we do not know "
                        "which ones overlap",
                        rank));
      }
    }
  }

  JsonDocument document_;
  Plan plan_;
  bool reuses_scratch_ = false;
  int parts_ = 1;          // of each chunk, for thread block groups
  int loop_unit_ = 0;      // bytes of an iteration; 0: there is no loop
  int iterations_;         // of a loop for each chunk, if it was given
  int loop_cells_ = 1;     // of each chunk, for loops: iterations that we look at
  int scratch_turns_ = 0;  // iterations after which scratch memory is used again; 0: never
  int steps_ = 0;
  std::size_t places_ = 0;  // of all steps
  int index_ = 0;           // of the operation that is read
  bool is_by_pairs_ = false;
  std::vector<RankChannels> ranks_;
  BlockNames names_;
  std::map<std::pair<int, int>, int> semaphores_, barriers_, queues_;
  std::map<std::tuple<int, int, Link, int>, int> counters_;
};

}  // namespace

Plan read_mscclpp(std::string_view text, int iterations) { return MscclppReader(text, iterations).read(); }

}  // namespace param_sync::foreign
