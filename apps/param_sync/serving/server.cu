#include "serving/server.hpp"

#include "publishing/follower.cuh"
#include "serving/cohorts.cuh"

#include "gpusock/gpusock.hpp"
#include "gpusock/launch.hpp"
#include "gpusock/server.cuh"
#include "program/arguments.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <variant>

namespace param_sync::serving {
namespace {

constexpr int kBacklog = 128;
#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kServerThreads = 1;  // threads of a block share one processor
#else
constexpr unsigned kServerThreads = 256;
#endif

__global__ void follow_training(Follower follower) { follow(gpusock::this_block(), follower); }

void set_kind(ServedLayer& layer, const AnyLayer& kind) {
  if (const auto* dense = std::get_if<Dense>(&kind)) layer.as_dense = *dense;
  if (const auto* convolution = std::get_if<Conv2d>(&kind)) {
    layer.kind = ServedLayer::convolution;
    layer.as_convolution = *convolution;
  }
  if (const auto* batch_norm = std::get_if<BatchNorm>(&kind)) {
    layer.kind = ServedLayer::batch_norm;
    layer.as_batch_norm = evaluated(*batch_norm);
  }
  static_assert(std::variant_size_v<AnyLayer> == 3, "a kind of layer that cannot be served");
}

/// Of one block: a stream, on which its kernel runs by itself, and its memory.
struct BlockOfServer {
  BlockOfServer(gpusock::Context& context, const ServerSettings& settings, const Layout& layout,
                const SampleShape& sample, unsigned seats)
      : stream(context),
        layers(context, layout.layers.size()),
        seat(context, seats),
        entries(context, seats + 1),
        received(context, std::size_t{seats} * (sizeof(AskHead) + std::size_t{sample.rows} * sample.columns)),
        answers(context, std::size_t{seats} * (sizeof(AnswerHead) + sample.classes * sizeof(float))),
        queue(context, seats),
        cohort_ns(context, settings.cohort + 1),
        served(context, 1) {
    served[0] = {};
    server.model = make_model(context, settings.cohort, layout, sample);
    server.seats = seat.data();
    server.entries = entries.data();
    server.received = received.data();
    server.answers = answers.data();
    server.queue = queue.data();
    server.cohort_ns = cohort_ns.data();
    server.seat_count = seats;
    server.cohort = settings.cohort;
    server.objective_ns = settings.objective_ns;
    server.stale_ns = settings.stale_ns;
    server.served = served.data();
  }

  ServedModel make_model(gpusock::Context& context, unsigned cohort, const Layout& layout, const SampleShape& sample) {
    std::vector<ServedLayer> all;
    const auto floats = [&](std::uint32_t of_image) {
      buffers.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(context, std::size_t{cohort} * of_image));
      return buffers.back()->data();
    };
    for (const Layer& layer : layout.layers) {
      ServedLayer served_layer;
      served_layer.offset = layer.offset;
      served_layer.output = {floats(layer.outputs()), floats(layer.sum_count())};
      set_kind(served_layer, layer.kind);
      all.push_back(served_layer);
    }
    layers.copy_in(all);
    ServedModel model;
    model.layers = layers.data();
    model.count = layout.size();
    model.rows = sample.rows;
    model.columns = sample.columns;
    model.border = layout.border;
    model.classes = sample.classes;
    model.inputs = floats(layout[0].inputs());
    return model;
  }

  gpusock::Stream stream;
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> buffers;
  gpusock::DeviceBuffer<ServedLayer> layers;
  gpusock::DeviceBuffer<Seat> seat;
  gpusock::DeviceBuffer<gpusock::PollEntry> entries;
  gpusock::DeviceBuffer<char> received, answers;
  gpusock::DeviceBuffer<unsigned> queue;
  gpusock::DeviceBuffer<std::uint64_t> cohort_ns;
  gpusock::Mapped<Served> served;
  Server server;
};

/// The weights, and the block that follows a training.
struct Weights {
  Weights(gpusock::Context& context, const ServerSettings& settings, std::uint64_t floats)
      : stream(context),
        word(context, 1),
        slots(context, (settings.blocks + 2) * floats),
        versions(context, settings.blocks + 2),
        confirmed_ns(context, 1),
        report(context, 1),
        snapshots{word.data(), slots.data(), versions.data(), floats, settings.blocks + 2} {
    report[0] = {};
    if (settings.training) return;
    const std::uint64_t always = gpusock::kForever;
    slots.copy_in(settings.weights);
    confirmed_ns.copy_in({&always, 1});
  }

  gpusock::Stream stream;
  gpusock::DeviceBuffer<std::uint64_t> word;
  gpusock::DeviceBuffer<float> slots;
  gpusock::DeviceBuffer<std::uint64_t> versions, confirmed_ns;
  gpusock::Mapped<FollowReport> report;
  Snapshots snapshots;
};

gpusock::Options options_for(const ServerSettings& settings) {
  gpusock::Options options = gpusock::Options::from_env();
  // A closed connection keeps its slot until the last byte of its answer is delivered: makes room for some of those.
  options.connections_max = settings.clients + settings.clients / 4 + 16;
  options.sockets_max = std::max(options.sockets_max, options.connections_max);
  options.ring_bytes = 64 << 10;
  return options;
}

gpusock::Listener listen(gpusock::Context& context, const ServerSettings& settings) try {
  return gpusock::open_listener(context, settings.listen_at, kBacklog);
} catch (const gpusock::Error& error) {
  using gpusock::program::Attempt;
  if (!std::string_view(error.what()).starts_with("listening at ")) throw;  // the launch failed
  throw gpusock::program::SocketFailure("listening on " + settings.where, Attempt::listening, error.code().value(),
                                        settings.listen_at);
}

/// Says on stderr how it stands with the training whenever that changes.
class TrainingWatch {
 public:
  TrainingWatch(const ServerSettings& settings, FollowReport& report) : settings_(settings), report_(report) {}

  FollowReport::State state() const { return static_cast<FollowReport::State>(seen_ & 0xffff'ffff); }
  /// True if the training is none that could give weights, and none have come before.
  bool is_hopeless() const { return state() == FollowReport::refused && !has_weights_; }

  void look() {
    // relaxed: it only informs
    const std::uint64_t word = executor::SystemWord(report_.state).load(cuda::memory_order_relaxed);
    if (word == seen_) return;
    seen_ = word;
    const FollowReport::State state = this->state();
    const std::string why = std::generic_category().message(static_cast<int>(word >> 32));
    const std::string of = "param_sync serve: the training at " + settings_.from;
    has_weights_ = has_weights_ || state == FollowReport::following || state == FollowReport::has_last;
    if (state == FollowReport::following) say(of + " gives weights");
    if (state == FollowReport::has_last) say(of + " has ended: its last weights are served");
    if (state == FollowReport::lost) {
      say(of + " cannot be reached, and is looked for each second: " + why +
          (word >> 32 == ETIMEDOUT ? " (or it answers as many others as it can)" : "") +
          (word >> 32 == EPROTO ? " (give --from the link= that --publish has)" : ""));
    }
    if (state == FollowReport::refused) {
      say(of + " has other layers, or is none: give the same --model, --hidden, --batch-norm and --data as there");
    }
  }

 private:
  static void say(const std::string& text) { std::fputs((text + '\n').c_str(), stderr); }

  const ServerSettings& settings_;
  FollowReport& report_;
  std::uint64_t seen_ = 0;
  bool has_weights_ = false;
};

/// Adds up what the blocks have done. Throws gpusock::Error if one has failed.
Served sum_of(const std::vector<std::unique_ptr<BlockOfServer>>& blocks, const std::string& where) {
  Served sum{};
  for (const auto& block : blocks) {
    const Served& one = block->served[0];
    if (one.failed != 0) throw gpusock::Error(static_cast<int>(-one.failed), "serving on " + where);
    for (auto member : {&Served::clients, &Served::answered, &Served::late, &Served::stale, &Served::without_weights,
                        &Served::broken, &Served::cohorts}) {
      sum.*member += one.*member;
    }
    if (one.answered == 0) continue;
    const bool is_first = sum.answered == one.answered;
    sum.least_version = is_first ? one.least_version : std::min(sum.least_version, one.least_version);
    for (auto member : {&Served::largest, &Served::age_ns_max, &Served::most_version}) {
      sum.*member = std::max(sum.*member, one.*member);
    }
  }
  return sum;
}

nlohmann::json to_json(const Served& served, const FollowReport& followed) {
  return {{"clients", served.clients},
          {"answered", served.answered},
          {"late", served.late},
          {"stale", served.stale},
          {"without_weights", served.without_weights},
          {"broken", served.broken},
          {"cohorts", served.cohorts},
          {"largest_cohort", served.largest},
          {"least_version", served.least_version},
          {"most_version", served.most_version},
          {"age_ms_max", static_cast<double>(served.age_ns_max) * 1e-6},
          {"versions_taken", followed.versions},
          {"steps_behind_max", followed.steps_behind}};
}

std::string summary_of(const ServerSettings& settings, const Served& served, const FollowReport& followed) {
  const auto text = [](auto number) { return std::to_string(number); };
  std::string all = "answered " + text(served.answered) + " requests of " + text(served.clients) + " clients in " +
                    text(served.cohorts) + " cohorts, the largest of " + text(served.largest) + '\n';
  const std::uint64_t refused = served.late + served.stale + served.without_weights + served.broken;
  if (refused != 0) {
    all += "refused " + text(refused) + ": " + text(served.late) + " would have been late, " + text(served.stale) +
           " had stale weights, " + text(served.without_weights) + " came before weights, " + text(served.broken) +
           " were no requests\n";
  }
  if (settings.training) {
    all += "took " + text(followed.versions) + " versions of the weights, each at most " + text(followed.steps_behind) +
           " steps after the one before\n";
  }
  if (settings.training && served.answered != 0) {
    all += "answers are of weights after " + text(served.least_version) + " to " + text(served.most_version) +
           " steps, at most " + text(served.age_ns_max / 1'000'000) + " ms old\n";
  }
  return all;
}

}  // namespace

int run_server(const ServerSettings& settings, const Layout& layout, const SampleShape& sample) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  std::optional<gpusock::program::JsonOutput> json;
  if (!settings.json_file.empty()) json.emplace(settings.json_file);
  gpusock::Context context(options_for(settings));
  Weights weights(context, settings, layout.parameters());
  const unsigned seats = (settings.clients + settings.blocks - 1) / settings.blocks;
  std::vector<std::unique_ptr<BlockOfServer>> blocks;
  for (unsigned i = 0; i < settings.blocks; ++i) {
    blocks.push_back(std::make_unique<BlockOfServer>(context, settings, layout, sample, seats));
  }
  // Listens last: clients that connect are served.
  const gpusock::Listener listener = listen(context, settings);
  gpusock::program::print_now("listening on " + listener.where.to_string() + "\n");
  if (settings.training) {
    const Follower follower{context.net(),     *settings.training,          weights.snapshots,    layout.fingerprint(),
                            settings.pause_ns, weights.confirmed_ns.data(), weights.report.data()};
    gpusock::launch(context, {.grid = 1, .block = kServerThreads, .stream = &weights.stream}, follow_training,
                    follower);
  }
  for (const auto& block : blocks) {
    block->server.net = context.net();
    block->server.listener = listener.socket;
    block->server.weights = weights.snapshots;
    block->server.confirmed_ns = weights.confirmed_ns.data();
    gpusock::launch(context, {.grid = 1, .block = kServerThreads, .stream = &block->stream}, serve_cohorts,
                    block->server);
  }
  TrainingWatch watch(settings, weights.report[0]);
  gpusock::program::wait_for_stop([&] {
    watch.look();
    return watch.is_hopeless() ||
           std::any_of(blocks.begin(), blocks.end(), [](const auto& block) { return block->stream.idle(); });
  });
  context.cancel();
  context.synchronize();
  watch.look();
  const Served served = sum_of(blocks, settings.where);
  gpusock::program::print(summary_of(settings, served, weights.report[0]));
  if (json) {
    json->write(to_json(served, weights.report[0]).dump(2) + '\n');
    json->close();
  }
  return watch.is_hopeless() ? gpusock::program::kFailure : gpusock::program::kSuccess;
}

}  // namespace param_sync::serving
