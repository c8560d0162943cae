#include "figures/figures.hpp"

#include "param_sync/schedule/json_price.hpp"
#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace param_sync::figures {
namespace {

constexpr int kRanksMax = 8;  // rows of more ranks would be too small to see

/// The activities of kernels and lanes, in the order of the figure's key, and their colours.
const std::pair<const char*, const char*> kColours[] = {
    {"forward wait", "#dddddd"},
    {"forward", "#4477aa"},
    {"loss", "#999933"},
    {"backward", "#228833"},
    {"factor wait", "#dddddd"},
    {"rebuild", "#117733"},
    {"push", "#cc6677"},
    {"reduce", "#ddaa33"},
    {"reduce and push", "#ee8866"},
    {"gather", "#88ccee"},
    {"gather and push", "#44aa99"},
    {"apply", "#aa3377"},
    {"publish", "#332288"},
    {"pull", "#88ccee"},
    {"pull and publish", "#44aa99"},
    {"grant", "#666666"},
    {"grant wait", "#eeeeee"},
};

struct Span {
  std::string activity;
  int layer = -1;  ///< first layer of a lane's activity; -1 for a kernel that computes
  int rank = 0;
  int thread = 0;
  std::string label;  ///< label of a kernel that computes
  double begin_ms = 0;
  double end_ms = 0;
};

bool is_wait(const Span& span) { return span.activity == "forward wait" || span.activity == "factor wait"; }

bool computes(const std::string& activity) {
  static const std::set<std::string> all{"forward wait", "forward", "loss", "backward", "factor wait", "rebuild"};
  return all.contains(activity);
}

/// Returns the spans of the last step. The first one begins at 0. Sets `step` to the number of that step.
std::vector<Span> read_spans(const nlohmann::json& trace, int& step) {
  step = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") step = std::max(step, event.at("args").at("step").get<int>());
  }
  std::vector<Span> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("args").at("step") != step || event.at("pid") >= kRanksMax) continue;
    Span span;
    span.activity = event.at("cat").get<std::string>();
    span.rank = event.at("pid").get<int>();
    span.thread = event.at("tid").get<int>();
    span.begin_ms = event.at("ts").get<double>() / 1e3;
    span.end_ms = span.begin_ms + event.at("dur").get<double>() / 1e3;
    const int layer = event.at("args").value("first_layer", -1);
    if (computes(span.activity)) {
      span.label = span.activity == "loss" ? "" : std::to_string(layer);
    } else {
      span.layer = layer;
    }
    spans.push_back(std::move(span));
  }
  if (spans.empty()) throw schedule::Error(fmt::format("{} has no spans: give the training a --scheme", kTraceFile));
  const auto earliest = std::min_element(spans.begin(), spans.end(),
                                         [](const Span& a, const Span& b) { return a.begin_ms < b.begin_ms; });
  const double start_ms = earliest->begin_ms;
  for (Span& span : spans) span.begin_ms -= start_ms, span.end_ms -= start_ms;
  return spans;
}

/// The figure's rows: one for each rank's kernels and for each of its layers. Each lane has a part of a row.
struct Rows {
  explicit Rows(const std::vector<Span>& spans) {
    for (const Span& span : spans) lanes_[{span.rank, span.layer}].insert(span.thread);
  }
  int count() const { return static_cast<int>(lanes_.size()); }

  /// Returns the upper and the lower edge of the span, in rows from the top.
  std::pair<double, double> bounds(const Span& span) const {
    const auto row = lanes_.find({span.rank, span.layer});
    const auto& lanes = row->second;
    const double height = 0.9 / static_cast<double>(lanes.size());
    const double from = static_cast<double>(std::distance(lanes_.begin(), row)) +
                        height * static_cast<double>(std::distance(lanes.begin(), lanes.find(span.thread)));
    return {from, from + height};
  }

  std::string labels() const {
    std::string text;
    int row = 0;
    for (const auto& [of, lanes] : lanes_) {
      const std::string what = of.second < 0 ? fmt::format("rank {}: kernels", of.first)
                                             : fmt::format("layer {}", of.second);
      text += fmt::format("{}'{}' {}", row == 0 ? "" : ", ", what, row + 0.45);
      ++row;
    }
    return text;
  }

 private:
  std::map<std::pair<int, int>, std::set<int>> lanes_;  // by rank and layer
};

Figure draw(const std::vector<Span>& spans, int step) {
  const Rows rows(spans);
  double end_ms = 0;
  for (const Span& span : spans) end_ms = std::max(end_ms, span.end_ms);
  Figure figure{"layers", "", "# begin, end (ms), row from, row to; a block for each activity\n"};
  std::string plots, labels;
  int block = 0;
  for (const auto& [activity, colour] : kColours) {
    std::string lines;
    for (const Span& span : spans) {
      if (span.activity != activity) continue;
      const auto [from, to] = rows.bounds(span);
      lines += fmt::format("{:.6f} {:.6f} {:.4f} {:.4f}\n", span.begin_ms, span.end_ms, from, to);
      if (!span.label.empty() && span.end_ms - span.begin_ms > end_ms / 60 && !is_wait(span)) {
        labels += fmt::format("set label '{}' at {:.6f},{:.4f} center front textcolor rgb 'white'\n", span.label,
                              (span.begin_ms + span.end_ms) / 2, (from + to) / 2);
      }
    }
    if (lines.empty()) continue;
    figure.data += lines + "\n\n";
    plots += fmt::format(
        "{}'layers.dat' index {} using 1:3:1:2:3:4 with boxxyerror fill solid noborder linecolor rgb '{}' title '{}'",
        block == 0 ? "plot " : ", \\\n     ", block, colour, activity);
    ++block;
  }
  figure.script = fmt::format(
      "set terminal svg size 1100,{} dynamic background rgb 'white'\nset output 'layers.svg'\n"
      "set title 'step {}: each layer has a row, and each lane a part of it. What receives begins when it starts to "
      "wait'\n"
      "set xlabel 'ms'\nset xrange [0:{:.6f}]\nset yrange [{}:0]\nset ytics ({}) nomirror\nset grid x\n"
      "set key outside below horizontal\n{}{}\n",
      150 + 28 * rows.count(), step, end_ms, rows.count(), rows.labels(), labels, plots);
  return figure;
}

}  // namespace

Figure layers(std::string_view trace) {
  schedule::require_parsable(trace, kTraceFile);
  try {
    int step = 0;
    const std::vector<Span> spans = read_spans(nlohmann::json::parse(trace), step);
    return draw(spans, step);
  } catch (const nlohmann::json::exception& error) {
    throw schedule::Error(fmt::format("{}: not a file of --trace: {}", kTraceFile, error.what()));
  }
}

}  // namespace param_sync::figures
