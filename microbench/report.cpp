#include "report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

struct Column {
  const char* key;
  const char* title;
  double Figures::*figure;
  double scale;
  int decimals;
};

/// The columns of the times. A time in the table is in microseconds.
const std::vector<Column> kTimes{{"p50_ns", "p50 us", &Figures::p50_ns, 1e-3, 3},
                                 {"p99_ns", "p99 us", &Figures::p99_ns, 1e-3, 3}};

/// The table's columns for each contestant. The ratio is that of the first column.
std::vector<Column> columns_of(const BenchOptions& options) {
  if (options.question == Question::latency) return kTimes;
  const Column trips{"round_trips_per_s", "trips/s", &Figures::messages_per_s, 1, 0};
  if (options.question == Question::scale) return {kTimes[0], kTimes[1], trips};
  if (options.question == Question::connections) {
    return {{"connections_per_s", "conn/s", &Figures::messages_per_s, 1, 0}, kTimes[0], kTimes[1]};
  }
  if (options.question == Question::rate) {
    return {trips, kTimes[0], kTimes[1]};
  }
  std::vector<Column> columns{{"gigabytes_per_s", "GB/s", &Figures::gigabytes_per_s, 1, 3}};
  if (options.direction == Direction::both) {
    columns.push_back({"out_gigabytes_per_s", "out GB/s", &Figures::out_gigabytes_per_s, 1, 3});
    columns.push_back({"in_gigabytes_per_s", "in GB/s", &Figures::in_gigabytes_per_s, 1, 3});
  }
  columns.push_back({"messages_per_s", "msg/s", &Figures::messages_per_s, 1, 0});
  return columns;
}

/// All figures of a round.
std::vector<Column> all_of(const BenchOptions& options) {
  auto columns = columns_of(options);
  if (options.question == Question::bandwidth) return columns;
  columns.push_back({"min_ns", "min us", &Figures::min_ns, 1e-3, 3});
  columns.push_back({"mean_ns", "mean us", &Figures::mean_ns, 1e-3, 3});
  return columns;
}

const char* title_of(Question question) {
  switch (question) {
    case Question::latency:
      return "round trip";
    case Question::bandwidth:
      return "bandwidth";
    case Question::connections:
      return "connections";
    case Question::rate:
      return "round trips a second";
    default:
      return "round trip of one group with many sockets";
  }
}

/// True if the numbers of sockets are a column of the table.
bool shows_sockets(const BenchOptions& options) {
  return options.question == Question::rate || options.question == Question::scale;
}

/// The number of sockets, and their direction.
std::string describe_sockets(const BenchOptions& options) {
  if (options.question == Question::scale) {
    return fmt::format("{} exist, of one group on each side; rings of {} bytes (--ring-bytes)",
                       fmt::join(options.counts, ", "), options.ring_bytes);
  }
  if (shows_sockets(options)) {
    return fmt::format("{} at the same time; {} message{} of each on {} way", fmt::join(options.counts, ", "),
                       options.window, options.window == 1 ? "" : "s", options.window == 1 ? "its" : "their");
  }
  const std::string count = fmt::format("{} socket{}", options.sockets, options.sockets == 1 ? "" : "s");
  if (options.question != Question::bandwidth) return count;
  if (options.direction == Direction::both) return count + " in each direction, at the same time";
  return count + (options.direction == Direction::out ? ", the connecting side sends" : ", the listening side sends");
}

std::string describe_device(const MachineFacts& machine) {
  if (machine.device_kind == "gpu") return machine.device_name;
  return fmt::format("CPU device ({}); these are not a GPU's figures", machine.device_name);
}

std::string head(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result) {
  std::string text = fmt::format("{} over {}\n  device   {}\n  machine  {}, {} cores, {}, load {:.2f}\n",
                                 title_of(options.question), gpusock::to_string(options.link), describe_device(machine),
                                 machine.cpu_model, machine.cores, machine.kernel, machine.load);
  if (const std::string busy = warning_of_load(machine.load, machine.cores); !busy.empty()) {
    text += fmt::format("  warning  {}\n", busy);
  }
  if (!options.to.empty()) text += fmt::format("  server   {} at {}\n", result.server, options.to);
  text += fmt::format("  sockets  {}\n", describe_sockets(options));
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    text += fmt::format("  {:<8} {}\n", i == 0 ? "gpusock" : "rival", result.descriptions[i]);
    if (i != 0) continue;
    for (const std::string& other : result.others) text += fmt::format("  {:<8} {}\n", "gpusock", other);
  }
  text += fmt::format("  rounds   {}, in turn; figures are medians over the rounds, the ratio is gpusock / {}\n\n",
                      options.repeat, result.names[1]);
  return text;
}

Json figures_json(const Figures& figures, const BenchOptions& options) {
  Json json{{"messages", figures.messages}};
  for (const Column& column : all_of(options)) json[column.key] = figures.*column.figure;
  return json;
}

Json round_json(const std::vector<RoundResult>& row, const ContestResult& result, const BenchOptions& options) {
  Json json;
  for (std::size_t i = 0; i < row.size(); ++i) {
    Json& entry = json[result.names[i]] = figures_json(row[i].figures, options);
    if (i != 0) continue;
    entry["proxy_steps"] = row[i].proxy_steps;
    entry["proxy_wakeups"] = row[i].proxy_wakeups;
  }
  return json;
}

/// Pairs: the first time of an interval, and the number of its samples.
Json histogram_json(const Histogram& histogram) {
  Json json = Json::array();
  for (const auto& [from_ns, samples] : histogram.counts()) json.push_back({from_ns, samples});
  return json;
}

Json size_json(const SizeResult& size, const ContestResult& result, const BenchOptions& options) {
  Json json{{"bytes", size.bytes}};
  if (shows_sockets(options)) json["sockets"] = size.sockets;
  if (options.question == Question::scale) json["in_use"] = size.in_use;
  json["group"] = to_string(size.group);
  json["ratio"] = size.median_ratio(columns_of(options)[0].figure);
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    for (const Column& column : all_of(options)) {
      json["medians"][result.names[i]][column.key] = size.median_of(i, column.figure);
    }
  }
  if (options.question != Question::bandwidth) {
    for (std::size_t i = 0; i < result.names.size(); ++i) {
      json["histograms"][result.names[i]] = histogram_json(size.histograms[i]);
    }
  }
  json["rounds"] = Json::array();
  for (const auto& row : size.rounds) json["rounds"].push_back(round_json(row, result, options));
  return json;
}

Json machine_json(const MachineFacts& machine) {
  return {{"cpu_model", machine.cpu_model},
          {"cores", machine.cores},
          {"kernel", machine.kernel},
          {"compiler", machine.compiler},
          {"load_before", machine.load}};
}

Json options_json(const BenchOptions& options) {
  Json json{{"link", gpusock::to_string(options.link)},
            {"between", to_string(options.between)},
            {"group", options.groups.size() > 1 ? "all" : to_string(options.group)},
            {"threads", options.groups.size() > 1 ? options.block_threads : options.threads()},
            {"to", options.to},
            {"sockets", options.sockets},
            {"direction", to_string(options.direction)},
            {"sizes", options.sizes},
            {"iterations", options.iterations},
            {"duration_s", options.duration_s},
            {"repeat", options.repeat},
            {"ring_bytes", options.ring_bytes}};
  if (!shows_sockets(options)) return json;
  json["sockets"] = options.counts;
  if (options.question == Question::rate) json["window"] = options.window;
  return json;
}

}  // namespace

std::string make_table(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result) {
  constexpr std::size_t kGap = 2, kFigure = 9;
  const auto columns = columns_of(options);
  const bool shows_groups = options.groups.size() > 1;
  std::string titles = fmt::format("{:>10}", "bytes");
  if (shows_sockets(options)) titles += fmt::format("{:>9}", "sockets");
  if (options.question == Question::scale) titles += fmt::format("{:>8}", "in use");
  if (shows_groups) titles += fmt::format("{:>9}", "calls by");
  std::vector<std::size_t> widths;
  for (const std::string& name : result.names) {
    for (const Column& column : columns) {
      const std::string title = name + ' ' + column.title;
      widths.push_back(kGap + std::max(kFigure, title.size()));
      titles += fmt::format("{:>{}}", title, widths.back());
    }
  }
  std::string text = head(options, machine, result) + titles + fmt::format("{:>9}\n", "ratio");
  for (const SizeResult& size : result.sizes) {
    text += fmt::format("{:>10}", size.bytes);
    if (shows_sockets(options)) text += fmt::format("{:>9}", size.sockets);
    if (options.question == Question::scale) text += fmt::format("{:>8}", size.in_use);
    if (shows_groups) text += fmt::format("{:>9}", to_string(size.group));
    auto width = widths.begin();
    for (std::size_t i = 0; i < result.names.size(); ++i) {
      for (const Column& column : columns) {
        text += fmt::format("{:>{}.{}f}", size.median_of(i, column.figure) * column.scale, *width++, column.decimals);
      }
    }
    text += fmt::format("{:>9.2f}\n", size.median_ratio(columns[0].figure));
  }
  return text;
}

std::string make_json(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result) {
  Json json{{"benchmark", to_string(options.question)},
            {"date", machine.date},
            {"commit", options.commit},
            {"device", {{"kind", machine.device_kind}, {"name", machine.device_name}}},
            {"machine", machine_json(machine)},
            {"server", result.server},
            {"options", options_json(options)}};
  json["contestants"] = Json::array();
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    json["contestants"].push_back({{"name", result.names[i]}, {"description", result.descriptions[i]}});
  }
  json["sizes"] = Json::array();
  for (const SizeResult& size : result.sizes) json["sizes"].push_back(size_json(size, result, options));
  return json.dump(2) + '\n';
}

}  // namespace bench
