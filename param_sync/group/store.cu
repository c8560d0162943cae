#include "param_sync/store.hpp"

#include "param_sync/group/connected_group.hpp"
#include "param_sync/schedule/consistent_hash.hpp"
#include "param_sync/store/connect.cuh"
#include "param_sync/store/float_memory.hpp"
#include "param_sync/store/owners.hpp"
#include "param_sync/store/server.cuh"
#include "param_sync/wire/hash.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <deque>
#include <numeric>
#include <optional>
#include <string>

namespace param_sync {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // threads of a block share one processor
#else
constexpr unsigned kThreads = 256;
#endif
constexpr unsigned kConnectionsMax = 16;
constexpr int kBacklog = 512;
constexpr float kCompensationMax = 1e6f;

[[noreturn]] void refuse_store(const std::string& why) { throw gpusock::Error(EINVAL, "a store: " + why); }

/// Each range has an owner. Each rank's keys follow.
std::vector<store::RangeInfo> ranges_of(std::span<const std::vector<float>> initial, const StoreOptions& options,
                                        int ranks) {
  std::vector<std::uint64_t> floats;
  floats.reserve(initial.size());
  for (const std::vector<float>& weights : initial) floats.push_back(weights.size());
  const std::vector<int> owners = store::owners_of(floats, ranks);
  std::vector<store::RangeInfo> ranges;
  std::uint64_t begin = 0;
  for (std::size_t range = 0; range < floats.size(); begin += floats[range++]) {
    ranges.push_back({owners[range], begin, floats[range]});
  }
  if (options.keys_max == 0) return ranges;
  const std::uint64_t of_keys = options.keys_max * options.row_floats;
  for (int rank = 0; rank < ranks; ++rank, begin += of_keys) ranges.push_back({rank, begin, of_keys});
  return ranges;
}

/// A hash that differs (except by chance) if ranks have other ranges or options.
std::uint64_t hash_of(std::span<const std::vector<float>> initial, std::span<const std::vector<float>> states,
                      const StoreOptions& options) {
  const std::uint64_t numbers[] = {options.connections,
                                   options.row_floats,
                                   options.rows_max,
                                   options.keys_max,
                                   options.tree_depth,
                                   static_cast<std::uint64_t>(options.replicas),
                                   static_cast<std::uint64_t>(options.push_format),
                                   static_cast<std::uint64_t>(options.pull_format)};
  const std::uint64_t clock = options.clock.index();
  std::uint64_t hash = fnv1a(numbers, sizeof numbers, hash_of(options.update));
  hash = fnv1a(&clock, sizeof clock, hash);
  if (const Ssp* const ssp = std::get_if<Ssp>(&options.clock))
    hash = fnv1a(&ssp->staleness, sizeof ssp->staleness, hash);
  if (const Backup* const backup = std::get_if<Backup>(&options.clock)) {
    hash = fnv1a(&backup->backups, sizeof backup->backups, hash);
    hash = fnv1a(&backup->grace_ns, sizeof backup->grace_ns, hash);
  }
  if (const Coded* const coded = std::get_if<Coded>(&options.clock))
    hash = fnv1a(&coded->stragglers, sizeof coded->stragglers, hash);
  const float of_late[] = {options.correction.compensation, static_cast<float>(options.correction.divides_by_lag)};
  hash = fnv1a(of_late, sizeof of_late, hash);
  for (const auto& ranges : {initial, states}) {
    for (const std::vector<float>& range : ranges) {
      const std::uint64_t count = range.size();
      hash = fnv1a(&count, sizeof count, hash);
      hash = fnv1a(range.data(), range.size() * sizeof(float), hash);
    }
  }
  return hash;
}

void check_replicas(const StoreOptions& options, int ranks) {
  if (options.replicas < 1 || options.replicas > ranks) {
    refuse_store(std::to_string(options.replicas) + " replicas of each range, and " + std::to_string(ranks) + " ranks");
  }
  if (options.replicas == 1) return;
  const bool plain = options.push_format == WireFormat::float32 && options.pull_format == WireFormat::float32;
  if (std::holds_alternative<Bsp>(options.clock) && plain && options.rows_max == 0 && options.tree_depth == 0) return;
  refuse_store("replicas with another clock than bsp, with formats, rows, keys or a tree");
}

/// Returns the options. Throws gpusock::Error (EINVAL).
const StoreOptions& checked(std::span<const std::vector<float>> initial, std::span<const std::vector<float>> states,
                            const StoreOptions& options, int ranks) {
  check_replicas(options, ranks);
  constexpr std::size_t kKeysMax = (std::size_t{1} << 32) - 2;
  if (initial.empty() && options.keys_max == 0) refuse_store("no range of weights, and no keys");
  if (options.keys_max > kKeysMax) refuse_store(std::to_string(options.keys_max) + " keys a rank, not up to 2^32 - 2");
  if (options.keys_max != 0 && (options.rows_max == 0 || options.row_floats == 0)) {
    refuse_store("keys, and calls that move none: give rows_max and row_floats, too");
  }
  if (options.connections == 0 || options.connections > kConnectionsMax) {
    refuse_store(std::to_string(options.connections) + " connections to each owner, not 1 to " +
                 std::to_string(kConnectionsMax));
  }
  for (std::size_t i = 0; i < initial.size(); ++i) {
    const std::size_t row = options.row_floats;
    if (row != 0 && initial[i].size() % row == 0 && initial[i].size() / row <= std::uint64_t{1} << 32) continue;
    refuse_store("range " + std::to_string(i) + " has " + std::to_string(initial[i].size()) + " weights, and a row " +
                 std::to_string(row) + ": a range is a whole number of rows, at most 2^32");
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states.size() == initial.size() && states[i].size() == initial[i].size() * Sgd::kStateFloats) continue;
    refuse_store("states of other weights: " + std::to_string(states.size()) + " ranges, of which range " +
                 std::to_string(i) + " has " + std::to_string(states[i].size()) + " floats");
  }
  const Correction& correction = options.correction;
  if (!(correction.compensation >= 0 && correction.compensation <= kCompensationMax)) {
    refuse_store("a compensation of " + std::to_string(correction.compensation) + ", which is not from 0 to 1e6");
  }
  if (options.tree_depth != 0 && !std::holds_alternative<Bsp>(options.clock)) {
    refuse_store("a tree with another clock than bsp: ranks pass on weights that are the same for all");
  }
  if (options.tree_depth != 0 && options.pull_format != WireFormat::float32) {
    refuse_store("a tree, and a pull_format: ranks pass weights on as float32");
  }
  if (!states.empty() && !std::holds_alternative<Bsp>(options.clock)) {
    refuse_store("states with another clock than bsp: each rank has states of its own then");
  }
  if (const std::string problem = problem_of(options.clock, ranks); !problem.empty()) refuse_store(problem);
  const bool sums = store::Clock(options.clock).is_in_rank_order();
  if (sums && (correction.divides_by_lag || correction.compensation != 0)) {
    refuse_store("a correction of late pushes: with the clocks bsp, backup and coded no late push is applied");
  }
  return options;
}

/// Says why a rank has not passed weights on, or taken them.
std::string describe_tree(const store::Failure& failure) {
  const bool is_parent = failure.kind == store::FailureKind::parent;
  const std::string rank = "rank " + std::to_string(failure.rank);
  const std::string range = "range " + std::to_string(failure.range);
  if (failure.error == ECANCELED) return "a store: the context of this rank ends";
  if (failure.error == EBUSY) {
    return "a store: two groups of threads call pull_by_tree for ranges of one owner at the same time, one of them "
           "for " +
           range;
  }
  if (failure.error != ETIMEDOUT && failure.error != EAGAIN) {
    return "a store lost " + rank + (is_parent ? ", which passes on " : ", to which this rank passes on ") + range;
  }
  if (is_parent) return "a store: " + rank + " has not passed on " + range + " by the deadline";
  return "a store: " + rank + " has not taken " + range + ", which this rank passes on, by the deadline";
}

std::string describe(const store::Failure& failure) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  switch (failure.kind) {
    case store::FailureKind::connect:
      return "a store cannot connect to " + rank;
    case store::FailureKind::accept:
      return "a store: " + rank + " has not connected in time";
    case store::FailureKind::mismatch:
      return "a store: " + rank + " has other ranges, initial weights or options: all ranks must give the same";
    case store::FailureKind::left:
      return "a store: " + rank + " has ended while ranks connect: see what it says";
    case store::FailureKind::worker:
      return "a store lost " + rank + ": a pull of range " + std::to_string(failure.range) + " must wait for its push";
    case store::FailureKind::told:
      return "a store lost " + rank + ": rank " + std::to_string(failure.teller) + " has lost it, and told so";
    case store::FailureKind::failed:
      return "a store lost " + rank + ", which has failed: see what it says";
    case store::FailureKind::request:
      return "a store: " + rank +
             " has sent a request that does not follow the one before it, or rows or keys that do not ascend";
    case store::FailureKind::keys:
      return "a store: " + rank + " has named more keys than this rank has room for: see StoreOptions::keys_max";
    case store::FailureKind::full:
      return "a store: " + rank + " has no room for a key that this rank has named: see StoreOptions::keys_max";
    case store::FailureKind::parent:
    case store::FailureKind::child:
      return describe_tree(failure);
    case store::FailureKind::owner:
      break;
  }
  const std::string owner = rank + ", which owns range " + std::to_string(failure.range);
  if (failure.error == ECANCELED) return "a store: the context of this rank ends";
  if (failure.error == EBUSY) {
    return "a store: two groups of threads use a connection to " + owner +
           " at the same time: ranges i of equal i % StoreOptions::connections share one";
  }
  if (failure.error != ETIMEDOUT && failure.error != EAGAIN) return "a store lost " + owner;
  return "a store: no answer by the deadline from " + owner +
         ": it does not run, or the clock makes it wait for the push of a slower rank";
}

__global__ void run_server(store::Server server, Sgd update) { store::ServerLoop(server, update).run(); }

}  // namespace

struct Store::Impl {
  Impl(Group& with, std::span<const std::vector<float>> initial, std::span<const std::vector<float>> states,
       const StoreOptions& given)
      : group(listening_group(*with.impl_)),
        options(checked(initial, states, given, with.nodes())),
        settings(hash_of(initial, states, given)),
        ranges(ranges_of(initial, given, group.nodes)),
        ports(group.context, group.executor, group.addresses, group.nodes),
        infos(group.context, ranges.size()),
        clocks(group.context, ranges.size()),
        traffic(group.context, ranges.size()),
        named(group.context, ranges.size()),
        sockets(group.context, ranks() * of_pair()),
        parents(group.context, ranks()),
        children(group.context, ranks() * ranks()),
        heads(group.context, connections()),
        failing(group.context, 1),
        failed(group.context, 1),
        failure(group.context, 1),
        server_failed(group.context, 1),
        server_failure(group.context, 1),
        events(group.context, options.history_events),
        event_count(group.context, 1),
        worker(group.context, 1),
        server_connections(group.context, ranks() * of_pair()),
        words_from(group.context, ranks()),
        spoken(group.context, ranks()),
        owned(group.context, ranges.size()),
        lists(group.context, ranges.size() * ranks()),
        points(group.context, options.keys_max == 0 ? 1 : ranks() * schedule::ConsistentHash::kPointsOfNode),
        key_numbers(group.context, 2 * keys_of_call() + store::KeyOwners::kThreadsMax),
        first_keys(group.context, ranks() + 1),
        received(group.context, ranges.size() * ranks()),
        enough_ns(group.context, ranges.size()),
        contained(group.context, ranges.size() * ranks()),
        read_of_others(group.context, ranges.size() * ranks()),
        replicated(group.context, ranges.size() * ranks()),
        replicas(group.context, ranges.size()),
        lost(group.context, ranks() + 1),
        set(group.context, 1),
        stop(group.context, 1),
        listening(group.context, 1),
        addresses(group.context, ranks()) {
    infos.copy_in(ranges);
    for (auto* const some : {&sockets, &parents, &children}) {
      some->copy_in(std::vector<gpusock::Socket>(some->size(), -1));
    }
    server_connections.copy_in(std::vector<store::Connection>(server_connections.size()));
    failure[0].what = server_failure[0].what = {};
    set[0] = -1;
    stop[0] = 0;
    listening[0] = {};
    make_owned(initial, states);
    make_replicas(initial, states);
    make_lists();
    make_points();
    worker.copy_in(std::vector{make_worker()});
    gpusock::launch(group.context, {.stream = &stream}, open_listener, group.context.net(),
                    group.listens_at.with_port(0), kBacklog, listening.data());
    stream.synchronize();
    if (listening[0].socket < 0) throw gpusock::Error(-listening[0].socket, "a store cannot listen");
    ports.set(group.rank, listening[0].at.port);
  }

  ~Impl() {
    try {
      stop_server();
      disconnect();
    } catch (const gpusock::Error&) {
      // A kernel has failed. The context's end takes back the sockets.
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static std::unique_ptr<Impl> make(Group& group, std::span<const std::vector<float>> initial,
                                    std::span<const std::vector<float>> states, const StoreOptions& options) try {
    return std::make_unique<Impl>(group, initial, states, options);
  } catch (const gpusock::Error&) {
    group.impl_->executor.give_up();  // other ranks would wait for this one in start()
    throw;
  }

  static Group::Impl& listening_group(Group::Impl& group) {
    if (group.listens) return group;
    throw gpusock::Error(ENOTCONN, "a store of a group that does not listen: call listen first");
  }

  std::size_t ranks() const { return static_cast<std::size_t>(group.nodes); }
  std::size_t connections() const { return ranks() * options.connections; }
  /// Connections of a worker to an owner: the last one is for last words.
  std::size_t of_pair() const { return options.connections + 1; }
  std::uint32_t range_count() const { return static_cast<std::uint32_t>(ranges.size()); }
  store::Tree tree() const {
    return options.tree_depth == 0 ? store::Tree{} : store::Tree::of_depth(group.nodes, options.tree_depth);
  }
  bool in_rank_order() const { return store::Clock(options.clock).is_in_rank_order(); }

  store::Replicas of_replicas() const { return {group.nodes, options.replicas}; }

  /// Makes the replicas that this rank keeps. The first version is there at once.
  void make_replicas(std::span<const std::vector<float>> initial, std::span<const std::vector<float>> states) {
    std::vector<store::Replica> all(ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::size_t floats = ranges[i].floats;
      if (!of_replicas().keeps(ranges[i].owner, group.rank) || floats == 0) continue;
      FloatMemory& made = make_floats(2 * store::replica_floats(floats));
      made.copy_in(initial[i]);
      if (!states.empty()) made.copy_in(states[i], floats);
      all[i] = {made.data(), store::replica_floats(floats), {0, store::Replica::kNone}};
    }
    replicas.copy_in(all);
  }

  /// Makes the memory of the ranges that this rank owns.
  void make_owned(std::span<const std::vector<float>> initial, std::span<const std::vector<float>> of_states) {
    std::vector<store::OwnedRange> all(ranges.size());
    own_states.resize(ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      all[i].floats = ranges[i].floats;
      if (ranges[i].owner != group.rank || ranges[i].floats == 0) continue;
      const std::size_t floats = ranges[i].floats;
      const bool has_keys = i >= initial.size();
      // Pushes that are applied by themselves have velocities of their ranks: then a rank's velocity decays once with
      // each of its pushes, as it does with Bsp.
      const bool apart = !in_rank_order() && options.update.momentum != 0;
      const std::size_t states = floats * (apart ? ranks() : 1), with_states = floats + states * Sgd::kStateFloats;
      FloatMemory& made = make_floats(with_states);
      all[i].weights = made.data();
      all[i].states = {made.data() + floats, states};
      own_states[i] = made.data() + floats;
      all[i].states_of_rank = apart ? floats : 0;
      if (has_keys) all[i].keys = make_key_rows();
      if (!has_keys) made.copy_in(initial[i]);
      if (!of_states.empty()) made.copy_in(of_states[i], floats);
      if (options.replicas != 1) all[i].before = make_floats(with_states).data();
      if (in_rank_order()) all[i].pushed = make_floats(floats * ranks()).data();
      if (options.correction.compensation == 0) continue;
      all[i].squares = make_floats(floats).data();
      all[i].read = make_floats(floats * ranks()).data();
      for (std::size_t rank = 0; rank < ranks() && !has_keys; ++rank) memory.back().copy_in(initial[i], rank * floats);
    }
    owned.copy_in(all);
  }

  /// Makes the table of the keys that this rank owns. A third of its cells stay free, so that searches are short.
  store::KeyRows make_key_rows() {
    const std::size_t cells = std::bit_ceil(options.keys_max + options.keys_max / 2 + 1);
    std::uint64_t* const keys = key_cells.emplace(group.context, cells).data();
    std::uint32_t* const rows = key_rows.emplace(group.context, cells + 1).data();
    std::vector<std::uint32_t> none(cells + 1, store::KeyRows::kNone);
    none.back() = 0;
    key_rows->copy_in(none);
    return {{.keys = keys, .cells = cells}, rows, rows + cells, options.keys_max};
  }

  /// How many keys a call may name.
  std::size_t keys_of_call() const { return options.keys_max == 0 ? 0 : options.rows_max; }

  /// Makes the circle of consistent hashing.
  void make_points() {
    if (options.keys_max == 0) return;
    std::vector<int> all(ranks());
    std::iota(all.begin(), all.end(), 0);
    std::vector<store::HashPoint> made;
    made.reserve(points.size());
    const schedule::ConsistentHash hash(all);
    for (const auto& [position, rank] : hash.points()) made.push_back({position, rank});
    points.copy_in(made);
  }

  /// How many rows of a range a call may move. Of keys it may name more than an owner has room for: the owner says so.
  std::uint64_t rows_max(std::size_t range) const {
    const bool has_keys = options.keys_max != 0 && range + ranks() >= ranges.size();
    const std::uint64_t rows = ranges[range].floats / options.row_floats;
    return has_keys ? options.rows_max : std::min<std::uint64_t>(options.rows_max, rows);
  }

  /// Makes what workers and owners remember of the rows that they have named.
  void make_lists() {
    std::vector<store::NamedRows> of_worker(ranges.size());
    std::vector<store::RowList> of_ranks(lists.size());
    std::uint64_t all = 0;
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      of_worker[range].rows_max = rows_max(range);
      if (ranges[range].owner == group.rank) all += rows_max(range) * ranks();
    }
    named.copy_in(of_worker);
    std::uint32_t* next = listed.emplace(group.context, std::max<std::uint64_t>(1, all)).data();
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      if (ranges[range].owner != group.rank) continue;
      for (std::size_t rank = 0; rank < ranks(); ++rank, next += rows_max(range)) {
        of_ranks[range * ranks() + rank] = {.rows = next, .rows_max = rows_max(range)};
      }
    }
    lists.copy_in(of_ranks);
  }

  /// Zeroed memory that lives as long as the store.
  FloatMemory& make_floats(std::size_t count) {
    return memory.emplace_back(group.context, count, options.in_host_memory);
  }

  store::Worker make_worker() const {
    store::Worker made;
    made.net = group.context.net();
    made.rank = group.rank;
    made.ranks = group.nodes;
    made.connections = options.connections;
    made.range_count = range_count();
    made.row_floats = options.row_floats;
    made.push_format = options.push_format;
    made.pull_format = options.pull_format;
    made.clock = store::Clock(options.clock);
    made.update = sgd_of(options.update);
    made.correction = options.correction;
    made.ranges = infos.data();
    made.sockets = sockets.data();
    made.tree = tree();
    made.parents = parents.data();
    made.children = children.data();
    made.clocks = clocks.data();
    made.traffic = traffic.data();
    made.named = named.data();
    if (options.keys_max != 0) {
      std::uint32_t* const numbers = key_numbers.data();
      made.keys = {.points = points.data(),
                   .point_count = static_cast<std::uint32_t>(points.size()),
                   .first_range = range_count() - static_cast<std::uint32_t>(ranks()),
                   .keys_max = keys_of_call(),
                   .owners = numbers,
                   .order = numbers + keys_of_call(),
                   .counts = numbers + 2 * keys_of_call(),
                   .first = first_keys.data()};
    }
    if (options.replicas != 1) made.replicas = replicas.data();
    made.heads = heads.data();
    made.words_to = sockets.data() + connections();
    made.spoken = spoken.data();
    made.words_from = words_from.data();
    made.failing = failing.data();
    made.failed = failed.data();
    made.failure = failure.data();
    made.events = events.data();
    made.events_max = events.size();
    made.event_count = event_count.data();
    return made;
  }

  store::Connecting connecting() const {
    store::Connecting made;
    made.net = group.context.net();
    made.hello.settings = settings;
    made.hello.rank = group.rank;
    made.ranks = group.nodes;
    made.of_pair = static_cast<int>(of_pair());
    made.listening = listening.data();
    made.set = set.data();
    made.addresses = addresses.data();
    made.sockets = sockets.data();
    made.connections = server_connections.data();
    made.tree = tree();
    made.parents = parents.data();
    made.children = children.data();
    made.timeout_ns = group.options.connect_timeout_ns;
    made.failed = failed.data();
    made.failure = failure.data();
    return made;
  }

  store::Server server() const {
    store::Server made;
    made.net = group.context.net();
    made.set = set[0];
    made.ranks = group.nodes;
    made.connection_count = static_cast<std::int32_t>(server_connections.size());
    made.of_pair = static_cast<std::int32_t>(of_pair());
    made.range_count = range_count();
    made.row_floats = options.row_floats;
    made.push_format = options.push_format;
    made.pull_format = options.pull_format;
    made.clock = store::Clock(options.clock);
    made.connections = server_connections.data();
    made.lists = lists.data();
    made.ranges = owned.data();
    made.received = received.data();
    made.enough_ns = enough_ns.data();
    made.contained = contained.data();
    made.read_of_others = read_of_others.data();
    made.correction = options.correction;
    made.rank = group.rank;
    made.replicas = of_replicas();
    made.replicated = replicated.data();
    made.lost = lost.data();
    made.losses = lost.data() + ranks();
    made.words_to = sockets.data() + connections();
    made.spoken = spoken.data();
    made.stop = stop.data();
    made.failed = server_failed.data();
    made.failure = server_failure.data();
    return made;
  }

  void connect() {
    addresses.copy_in(ports.exchange(group.options.connect_timeout_ns));
    gpusock::launch(group.context, {.grid = 2, .stream = &stream}, store::connect_all, connecting());
    stream.synchronize();
    const gpusock::PollSet opened = set[0];
    if (opened < 0 || is_recorded(failure[0])) disconnect();  // so that other ranks learn at once that this one ends
    check();
    if (opened < 0) throw gpusock::Error(-opened, "a store cannot open a poll set");
    std::vector<store::Connection> accepted(server_connections.size());
    server_connections.copy_out(accepted);
    std::vector<gpusock::Socket> from(ranks());
    for (std::size_t rank = 0; rank < from.size(); ++rank) from[rank] = accepted[(rank + 1) * of_pair() - 1].socket;
    words_from.copy_in(from);
  }

  /// Closes all connections, after the kernels that use them.
  void disconnect() {
    stream.synchronize();
    gpusock::launch(group.context, {.stream = &stream}, store::disconnect_all, connecting());
    stream.synchronize();
  }

  void start_server() {
    serves = true;
    gpusock::launch(group.context, {.block = kThreads, .stream = &stream, .blocks_share_threads = true}, run_server,
                    server(), sgd_of(options.update));
  }

  void stop_server() {
    if (!serves || stop[0] != 0) return;
    // relaxed: it only ends the loop, and wake() comes after it
    executor::SystemWord(stop[0]).store(1, cuda::memory_order_relaxed);
    group.context.net().wake(gpusock::this_thread(), set[0]);
  }

  /// Copies what this rank has of a range: weights, and after them their states.
  HeldRange held_at(std::size_t range, std::uint64_t clock, const float* from) const {
    const std::size_t floats = ranges[range].floats;
    const auto of_memory = std::ranges::find_if(
        memory, [&](const FloatMemory& some) { return from >= some.data() && from < some.data() + some.size(); });
    const auto offset = static_cast<std::size_t>(from - of_memory->data());
    HeldRange held{range, clock, std::vector<float>(floats), std::vector<float>(floats * Sgd::kStateFloats)};
    of_memory->copy_out(held.weights, offset);
    of_memory->copy_out(held.states, offset + floats);
    return held;
  }

  std::vector<HeldRange> held() const {
    std::vector<store::OwnedRange> of_owner(owned.size());
    std::vector<store::Replica> kept(replicas.size());
    std::vector<std::uint64_t> applied(contained.size());
    owned.copy_out(of_owner);
    replicas.copy_out(kept);
    contained.copy_out(applied);
    std::vector<HeldRange> all;
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      if (const store::OwnedRange& of = of_owner[range]; of.before != nullptr) {
        const std::uint64_t clock = applied[range * ranks()];  // of any rank: all pushes of a clock are applied
                                                               // together
        all.push_back(held_at(range, clock, of.weights));
        if (clock != 0) all.push_back(held_at(range, clock - 1, of.before));
      }
      const store::Replica& replica = kept[range];
      for (const std::uint64_t clock : replica.clocks) {
        if (replica.memory == nullptr || clock == store::Replica::kNone) continue;
        all.push_back(held_at(range, clock, replica.of(clock)));
      }
    }
    return all;
  }

  /// Of the worker's failure and the server's, the worker's ends calls.
  void check() {
    if (!is_recorded(failure[0]) && !is_recorded(server_failure[0])) return;
    const store::Failure what = is_recorded(failure[0]) ? failure[0].what : server_failure[0].what;
    throw gpusock::Error::with_cause(what.error != 0 ? what.error : ECONNRESET, describe(what));
  }

  Group::Impl& group;
  StoreOptions options;
  std::uint64_t settings;  // a hash
  std::vector<store::RangeInfo> ranges;
  PortExchange ports;
  gpusock::Stream stream{group.context};
  std::deque<FloatMemory> memory;  // of what this rank owns
  // Of the worker.
  gpusock::DeviceBuffer<store::RangeInfo> infos;
  gpusock::DeviceBuffer<std::uint64_t> clocks;
  gpusock::DeviceBuffer<StoreTraffic> traffic;
  gpusock::DeviceBuffer<store::NamedRows> named;  // by range
  gpusock::DeviceBuffer<gpusock::Socket> sockets, parents, children;
  gpusock::DeviceBuffer<store::Head> heads;
  gpusock::DeviceBuffer<std::uint64_t> failing;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<FailureRecord<store::Failure>> failure;
  gpusock::DeviceBuffer<std::uint64_t> server_failed;
  gpusock::Mapped<FailureRecord<store::Failure>> server_failure;
  gpusock::DeviceBuffer<store::Event> events;
  gpusock::DeviceBuffer<std::uint64_t> event_count;
  gpusock::DeviceBuffer<store::Worker> worker;
  // Of the server.
  gpusock::DeviceBuffer<store::Connection> server_connections;
  gpusock::DeviceBuffer<gpusock::Socket> words_from;  // by rank
  gpusock::DeviceBuffer<std::uint64_t> spoken;        // by rank; the worker's, too
  std::vector<const float*> own_states;               // by range: null, or what this rank owns
  gpusock::DeviceBuffer<store::OwnedRange> owned;
  gpusock::DeviceBuffer<store::RowList> lists;  // by range and rank
  std::optional<gpusock::DeviceBuffer<std::uint32_t>> listed;
  // Of keys.
  gpusock::DeviceBuffer<store::HashPoint> points;
  gpusock::DeviceBuffer<std::uint32_t> key_numbers;  // see KeyOwners
  gpusock::DeviceBuffer<std::uint64_t> first_keys;   // likewise
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> key_cells;
  std::optional<gpusock::DeviceBuffer<std::uint32_t>> key_rows;
  gpusock::DeviceBuffer<std::uint64_t> received, enough_ns, contained, read_of_others;
  gpusock::DeviceBuffer<std::uint64_t> replicated;  // by range and rank
  gpusock::DeviceBuffer<store::Replica> replicas;   // by range; the worker's
  gpusock::DeviceBuffer<std::uint32_t> lost;        // by rank, and how many
  gpusock::Mapped<gpusock::PollSet> set;
  gpusock::Mapped<std::uint64_t> stop;
  gpusock::Mapped<Listening> listening;
  gpusock::DeviceBuffer<gpusock::Endpoint> addresses;
  bool serves = false;
};

Store::Store(Group& group, std::span<const std::vector<float>> initial, const StoreOptions& options)
    : impl_(Impl::make(group, initial, {}, options)) {}

Store::Store(Group& group, const RecoveredRanges& recovered, const StoreOptions& options)
    : impl_(Impl::make(group, recovered.weights, recovered.states, options)) {}

Store::~Store() = default;

StoreHandle Store::start() {
  if (impl_->serves) refuse_store("start() was called before");
  impl_->connect();
  impl_->start_server();
  return {impl_->worker.data()};
}

void Store::stop() {
  impl_->stop_server();
  impl_->stream.synchronize();
}

void Store::check() { impl_->check(); }

int Store::owner(std::size_t range) const {
  if (range < impl_->ranges.size()) return impl_->ranges[range].owner;
  refuse_store("range " + std::to_string(range) + " of " + std::to_string(impl_->ranges.size()));
}

const float* Store::states(std::size_t range) const { return impl_->own_states.at(range); }

std::vector<HeldRange> Store::held() {
  impl_->stop_server();
  impl_->disconnect();
  return impl_->held();
}

std::vector<StoreTraffic> Store::traffic() const {
  std::vector<StoreTraffic> moved(impl_->ranges.size());
  impl_->traffic.copy_out(moved);
  return moved;
}

std::vector<StoreEvent> Store::history() const {
  std::vector<std::uint64_t> count(1);
  impl_->event_count.copy_out(count);
  std::vector<store::Event> all(impl_->events.size());
  if (!all.empty()) impl_->events.copy_out(all);
  all.resize(std::min<std::size_t>(all.size(), count[0]));
  std::vector<StoreEvent> history;
  for (const store::Event& event : all) {
    const bool is_push = (event.what & store::Event::kPush) != 0;
    const store::RangeInfo& range = impl_->ranges[event.what & ~(store::Event::kPush | store::Event::kCached)];
    StoreEvent& made = history.emplace_back();
    made.is_push = is_push;
    made.is_cached = (event.what & store::Event::kCached) != 0;
    made.clock = event.clock;
    made.begin = range.begin;
    made.end = range.begin + range.floats;
    if (!is_push) made.seen.assign(event.seen, event.seen + impl_->ranks());
  }
  return history;
}

}  // namespace param_sync
