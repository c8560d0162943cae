#include "commands/bench_stores.hpp"

#include "commands/arguments.hpp"

#include "trial/store_trial.hpp"
#include "trial/trial.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

namespace param_sync::commands {
namespace {

using gpusock::program::print;
using Json = nlohmann::ordered_json;

#if defined(GPUSOCK_DEVICE_CPU)
constexpr const char* kDevice = "cpu";
#else
constexpr const char* kDevice = "cuda";
#endif
const std::vector<std::uint64_t> kRangeSizes = {64, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
constexpr int kPairsMin = 16, kPairsMax = 1000;
constexpr std::uint64_t kBytesOfRound = 32 << 20;  ///< that a worker pushes, if so many pairs are allowed
constexpr int kSumsOfRound = 5;

/// Seconds of a round: of all pairs through the store and on raw sockets, and of one all-reduce.
struct Round {
  double store_s = 0;
  double sockets_s = 0;
  double sum_s = 0;

  double ratio() const { return sockets_s / store_s; }  // of rates
};

/// A line of the table.
struct Row {
  std::uint64_t bytes = 0;
  baseline::StoreLoad load;
  std::vector<Round> rounds;

  template <class Figure>
  double median(Figure figure) const {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(figure(round));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  }
  double median(double Round::*figure) const {
    return median([&](const Round& round) { return round.*figure; });
  }
  /// Pairs of all workers in a second.
  double pairs_per_s(double Round::*figure) const { return load.workers * load.pairs / median(figure); }
  double bytes_per_s(double Round::*figure) const { return pairs_per_s(figure) * 2 * static_cast<double>(bytes); }
};

Row row_of(const StoreBenchOptions& options, std::uint64_t bytes, std::uint64_t owners) {
  Row row{bytes, {options.nodes, static_cast<int>(owners), bytes / sizeof(float), options.pairs}, {}};
  if (row.load.pairs == 0) row.load.pairs = std::clamp(static_cast<int>(kBytesOfRound / bytes), kPairsMin, kPairsMax);
  return row;
}

/// Returns the seconds of one all-reduce of so many bytes.
double sum_s(const StoreBenchOptions& options, std::uint64_t bytes) {
  schedule::Request request;
  request.nodes = options.nodes;
  executor::TrialSettings settings;
  settings.floats = bytes / sizeof(float);
  settings.link = gpusock::parse_link(options.link);
  settings.repeats = kSumsOfRound;
  settings.fills_rings = true;
  return executor::try_out(schedule::generate("ps:even", request), settings).median_s();
}

/// Times the rows of a size. In each round all contestants run once, each by itself.
void run_rounds(const StoreBenchOptions& options, std::vector<Row>& rows) {
  for (int i = 0; i < options.repeats; ++i) {
    Round round;
    round.sum_s = sum_s(options, rows.front().bytes);
    for (Row& row : rows) {
      round.store_s = executor::time_store(row.load, gpusock::parse_link(options.link));
      round.sockets_s = baseline::time_socket_store(row.load);
      row.rounds.push_back(round);
    }
  }
}

void print_row(const Row& row) {
  print(fmt::format("{:>8} {:>7} {:>7}", in_units(row.bytes), row.load.owners, row.load.pairs));
  for (const auto figure : {&Round::store_s, &Round::sockets_s})
    print(fmt::format(" {:>11.0f} {:>8.2f}", row.pairs_per_s(figure), row.bytes_per_s(figure) * 1e-6));
  print(fmt::format(" {:>7.2f} {:>10.3f} {:>10.3f}\n", row.median([](const Round& round) { return round.ratio(); }),
                    row.median(&Round::store_s) * 1e3 / row.load.pairs, row.median(&Round::sum_s) * 1e3));
}

Json to_json(const Row& row) {
  Json json = {{"bytes", row.bytes}, {"owners", row.load.owners}, {"pairs", row.load.pairs}};
  json["ratio"] = row.median([](const Round& round) { return round.ratio(); });
  json["medians"] = {
      {"store", {{"pairs_per_s", row.pairs_per_s(&Round::store_s)}, {"bytes_per_s", row.bytes_per_s(&Round::store_s)}}},
      {"sockets",
       {{"pairs_per_s", row.pairs_per_s(&Round::sockets_s)}, {"bytes_per_s", row.bytes_per_s(&Round::sockets_s)}}},
      {"ps:even", {{"seconds", row.median(&Round::sum_s)}}}};
  for (const Round& round : row.rounds)
    json["rounds"].push_back({{"store_s", round.store_s}, {"sockets_s", round.sockets_s}, {"ps_even_s", round.sum_s}});
  return json;
}

}  // namespace

int bench_stores(const StoreBenchOptions& options) {
  std::optional<gpusock::program::JsonOutput> file;
  if (!options.json_file.empty()) file.emplace(options.json_file);
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  Json json = {{"benchmark", "store"},
               {"device", kDevice},
               {"machine", {{"cores", std::thread::hardware_concurrency()}, {"load_before", load}}},
               {"options", {{"nodes", options.nodes}, {"link", options.link}, {"repeats", options.repeats}}}};
  print(
      fmt::format("{} workers push a range and pull it (clock async), {} device, link {}; medians of {} rounds, load "
                  "{:.2f} before\n",
                  options.nodes, kDevice, options.link, options.repeats, load));
  print(fmt::format("{:>23} {:>20} {:>20} {:>7} {:>10} {:>10}\n{:>8} {:>7} {:>7}", "", "store", "raw sockets", "",
                    "store", "ps:even", "bytes", "owners", "pairs"));
  for (int i = 0; i < 2; ++i) print(fmt::format(" {:>11} {:>8}", "pairs/s", "MB/s"));
  print(fmt::format(" {:>7} {:>10} {:>10}\n", "ratio", "ms a pair", "ms a sum"));
  for (const std::uint64_t bytes : options.sizes_bytes.empty() ? kRangeSizes : options.sizes_bytes) {
    std::vector<Row> rows;
    for (const std::uint64_t owners : options.owners) rows.push_back(row_of(options, bytes, owners));
    run_rounds(options, rows);
    for (const Row& row : rows) {
      print_row(row);
      json["sizes"].push_back(to_json(row));
    }
  }
  if (file) {
    file->write(json.dump(2) + "\n");
    file->close();
  }
  return gpusock::program::kSuccess;
}

}  // namespace param_sync::commands
