#include "report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

struct Column {
  const char* key;
  const char* title;
  double Figures::*figure;
  double scale;
};

/// What the table shows of each contestant.
std::vector<Column> columns_of(Question question) {
  if (question == Question::bandwidth) return {{"gigabytes_per_s", "GB/s", &Figures::gigabytes_per_s, 1}};
  return {{"p50_ns", "p50 us", &Figures::p50_ns, 1e-3}, {"p99_ns", "p99 us", &Figures::p99_ns, 1e-3}};
}

/// All figures of a round.
std::vector<Column> all_of(Question question) {
  if (question == Question::bandwidth) return columns_of(question);
  auto columns = columns_of(question);
  columns.push_back({"min_ns", "min us", &Figures::min_ns, 1e-3});
  columns.push_back({"mean_ns", "mean us", &Figures::mean_ns, 1e-3});
  return columns;
}

std::string describe_device(const MachineFacts& machine) {
  if (machine.device_kind == "gpu") return machine.device_name;
  return fmt::format("CPU device ({}); these are not a GPU's figures", machine.device_name);
}

std::string head(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result) {
  std::string text = fmt::format("{} over {}\n  device   {}\n  machine  {}, {} cores, {}, load {:.2f}\n",
                                 options.question == Question::latency ? "round trip" : "one-way bandwidth",
                                 gpusock::to_string(options.link), describe_device(machine), machine.cpu_model,
                                 machine.cores, machine.kernel, machine.load);
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    text += fmt::format("  {:<8} {}\n", i == 0 ? "gpusock" : "rival", result.descriptions[i]);
  }
  text += fmt::format("  rounds   {}, in turn; figures are medians over the rounds, the ratio is gpusock / {}\n\n",
                      options.repeat, result.names[1]);
  return text;
}

Json figures_json(const Figures& figures, Question question) {
  Json json{{"messages", figures.messages}};
  for (const Column& column : all_of(question)) json[column.key] = figures.*column.figure;
  return json;
}

Json round_json(const std::vector<RoundResult>& row, const ContestResult& result, Question question) {
  Json json;
  for (std::size_t i = 0; i < row.size(); ++i) {
    Json& entry = json[result.names[i]] = figures_json(row[i].figures, question);
    if (i != 0) continue;
    entry["proxy_steps"] = row[i].proxy_steps;
    entry["proxy_wakeups"] = row[i].proxy_wakeups;
  }
  return json;
}

Json size_json(const SizeResult& size, const ContestResult& result, Question question) {
  Json json{{"bytes", size.bytes}, {"ratio", size.median_ratio(columns_of(question)[0].figure)}};
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    for (const Column& column : all_of(question)) {
      json["medians"][result.names[i]][column.key] = size.median_of(i, column.figure);
    }
  }
  json["rounds"] = Json::array();
  for (const auto& row : size.rounds) json["rounds"].push_back(round_json(row, result, question));
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
  return {{"link", gpusock::to_string(options.link)},
          {"between", to_string(options.between)},
          {"group", to_string(options.group)},
          {"threads", options.threads()},
          {"sizes", options.sizes},
          {"iterations", options.iterations},
          {"duration_s", options.duration_s},
          {"repeat", options.repeat},
          {"ring_bytes", options.ring_bytes}};
}

}  // namespace

std::string make_table(const BenchOptions& options, const MachineFacts& machine, const ContestResult& result) {
  const auto columns = columns_of(options.question);
  std::string text = head(options, machine, result) + fmt::format("{:>10}", "bytes");
  for (const std::string& name : result.names) {
    for (const Column& column : columns) text += fmt::format("{:>22}", name + ' ' + column.title);
  }
  text += fmt::format("{:>9}\n", "ratio");
  for (const SizeResult& size : result.sizes) {
    text += fmt::format("{:>10}", size.bytes);
    for (std::size_t i = 0; i < result.names.size(); ++i) {
      for (const Column& column : columns)
        text += fmt::format("{:>22.3f}", size.median_of(i, column.figure) * column.scale);
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
            {"options", options_json(options)}};
  json["contestants"] = Json::array();
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    json["contestants"].push_back({{"name", result.names[i]}, {"description", result.descriptions[i]}});
  }
  json["sizes"] = Json::array();
  for (const SizeResult& size : result.sizes) json["sizes"].push_back(size_json(size, result, options.question));
  return json.dump(2) + '\n';
}

}  // namespace bench
