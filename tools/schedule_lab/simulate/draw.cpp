#include "simulate/draw.hpp"

#include "simulate/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace param_sync::simulate {
namespace {

constexpr double kLeft = 70, kTop = 74, kRight = 24, kBottom = 46;
constexpr double kWidthMin = 640, kWidthMax = 2400;
constexpr double kUnitWidth = 48;

struct Canvas {
  double unit;  ///< width of a unit of time
  double row;   ///< height of a rank

  double x(double time) const { return kLeft + time * unit; }
  double y(int rank) const { return kTop + (rank + 0.5) * row; }
};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (static_cast<unsigned char>(c) < ' ')
      result += ' ';
    else
      result += c;
  }
  return result;
}

/// Returns a distance between the axis's labels that leaves room for them: 1, 2 or 5 times a power of ten.
double tick_of(double unit) {
  double tick = 1;
  for (int i = 0; tick * unit < 40; ++i) tick *= i % 3 == 1 ? 2.5 : 2;
  return tick;
}

std::string axis(const Canvas& canvas, const schedule::Schedule& schedule, double end) {
  const double bottom = kTop + canvas.row * schedule.nodes();
  std::string svg;
  const double tick = tick_of(canvas.unit);
  for (double time = 0; time <= end + 1e-9; time += tick) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
        canvas.x(time), kTop, bottom, bottom + 16, time);
  }
  svg += fmt::format(
      "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">time, where a chunk takes 1 and the latency is 1</text>\n",
      canvas.x(end / 2), bottom + 34);
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    svg += fmt::format(
        "<line class=\"rank\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n"
        "<text class=\"name\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5} {6}</text>\n",
        canvas.x(0), canvas.y(rank), canvas.x(end), kLeft - 8, canvas.y(rank) + 4,
        rank < schedule.workers ? "rank" : "sum", rank);
  }
  return svg;
}

std::string arrow(const Canvas& canvas, const Transfer& transfer) {
  const double x1 = canvas.x(transfer.start_s), y1 = canvas.y(transfer.from);
  const double x2 = canvas.x(transfer.end_s), y2 = canvas.y(transfer.to);
  const std::string chunks = transfer.count == 0 ? fmt::format("signal about chunk {}", transfer.chunk)
                             : transfer.count == 1
                                 ? fmt::format("chunk {}", transfer.chunk)
                                 : fmt::format("chunks {}-{}", transfer.chunk, transfer.chunk + transfer.count - 1);
  const char* const kind = transfer.reduces ? "reduce" : "copy";
  return fmt::format(
      "<line class=\"{0}\" x1=\"{1:.1f}\" y1=\"{2:.1f}\" x2=\"{3:.1f}\" y2=\"{4:.1f}\" marker-end=\"url(#{0})\">"
      "<title>{5} from {6} to {7}, {8}, {9:.3g} to {10:.3g}</title></line>\n",
      kind, x1, y1, x2, y2, chunks, transfer.from, transfer.to, kind, transfer.start_s, transfer.end_s);
}

}  // namespace

std::string draw(const schedule::Schedule& schedule, const std::string& title) {
  cost::NetworkModel model;
  model.latency_s = 1;
  model.overhead_s = 0;
  model.bandwidth = 1;
  model.reduce_bandwidth = 1e300;
  const Timeline timeline = simulate(schedule, 1, model);
  const double end = std::max(1.0, timeline.end_s);
  const double plot = std::clamp(end * kUnitWidth, kWidthMin, kWidthMax);
  const Canvas canvas{plot / end, std::clamp(480.0 / schedule.nodes(), 14.0, 60.0)};
  const double width = kLeft + plot + kRight, height = kTop + canvas.row * schedule.nodes() + kBottom;

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>text {{ font-family: sans-serif; font-size: 12px; fill: #222 }} .title {{ font-size: 16px }}\n"
      ".name {{ text-anchor: end }} .tick {{ text-anchor: middle; fill: #666 }} .grid {{ stroke: #e4e4e4 }}\n"
      ".rank {{ stroke: #999 }} .reduce {{ stroke: #c0392b; fill: #c0392b }} .copy {{ stroke: #2471a3; fill: #2471a3 "
      "}}\n"
      ".reduce, .copy {{ stroke-width: 1.2 }}</style>\n<defs>\n",
      width, height);
  for (const char* kind : {"reduce", "copy"}) {
    svg += fmt::format(
        "<marker id=\"{0}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" "
        "orient=\"auto\"><path class=\"{0}\" d=\"M0,1 L7,4 L0,7 z\"/></marker>\n",
        kind);
  }
  svg += fmt::format("</defs>\n<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"white\"/>\n", width, height);
  svg += fmt::format(
      "<text class=\"title\" x=\"{0:.0f}\" y=\"26\">{1}</text>\n"
      "<line class=\"reduce\" x1=\"{0:.0f}\" y1=\"48\" x2=\"{2:.0f}\" y2=\"48\" marker-end=\"url(#reduce)\"/>"
      "<text x=\"{3:.0f}\" y=\"52\">is added</text>\n"
      "<line class=\"copy\" x1=\"{4:.0f}\" y1=\"48\" x2=\"{5:.0f}\" y2=\"48\" marker-end=\"url(#copy)\"/>"
      "<text x=\"{6:.0f}\" y=\"52\">replaces</text>\n",
      kLeft, escaped(title), kLeft + 30, kLeft + 36, kLeft + 120, kLeft + 150, kLeft + 156);
  svg += axis(canvas, schedule, end);
  for (const Transfer& transfer : timeline.transfers) svg += arrow(canvas, transfer);
  return svg + "</svg>\n";
}

}  // namespace param_sync::simulate
