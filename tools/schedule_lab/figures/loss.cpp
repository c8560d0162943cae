#include "figures/figures.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace param_sync::figures {
namespace {

struct Series {
  std::string title;
  bool has_times = false;
  int slowest_max = -1;  ///< the greatest number of a node that has held others up; -1: unknown
};

Series read_series(const std::string& text) {
  // step, loss, accuracy, bytes, waiting, seconds, the slowest node, how long it has held the others up
  constexpr std::size_t kFields = 8, kSeconds = 5, kSlowest = 6;
  Series series;
  std::istringstream lines(text);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) {
      series.title = line.substr(std::min<std::size_t>(line.size(), 2));  // the last such line is the title
      continue;
    }
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, '\t');) fields.push_back(field);
    if (fields.size() != kFields) {
      throw schedule::Error(fmt::format("{}: not a file of --series (of this version): row {} has not {} columns",
                                        kSeriesFile, rows + 1, kFields));
    }
    if (fields[kSeconds] != "nan") series.has_times = true;
    if (fields[kSlowest] != "nan")
      series.slowest_max = std::max(series.slowest_max, std::atoi(fields[kSlowest].c_str()));
    ++rows;
  }
  if (rows == 0) throw schedule::Error(fmt::format("{} has no steps", kSeriesFile));
  std::replace(series.title.begin(), series.title.end(), '\'', ' ');  // the script puts the title between these
  return series;
}

}  // namespace

Figure loss(const std::string& text) {
  const Series series = read_series(text);
  const int panels = 1 + (series.has_times ? 1 : 0) + (series.slowest_max >= 0 ? 1 : 0);
  std::string script = fmt::format(
      "set terminal svg size 900,{} dynamic background rgb 'white'\nset output 'loss.svg'\n"
      "set multiplot layout {},1 title 'param_sync: {}' noenhanced\n"
      "set grid\nset ytics nomirror\nset y2tics\nset yrange [0:*]\nset y2range [0:1]\nset key center right\n"
      "set ylabel 'training loss (nats)'\nset y2label 'test accuracy'\n",
      100 + 350 * panels, panels, series.title);
  const auto panel = [&](const char* label, int column) {
    script += fmt::format(
        "set xlabel '{1}'\n"
        "plot '{0}' using {2}:2 with lines linecolor rgb '#4477aa' title 'loss of a step, mean over the nodes', \\\n"
        "     '{0}' using {2}:3 axes x1y2 with points pointtype 7 linecolor rgb '#cc6677' title 'test accuracy'\n",
        kSeriesFile, label, column);
  };
  if (series.has_times) panel("seconds since the first step", 6);
  panel("gradients pushed until then, all nodes (MB)", 4);
  if (series.slowest_max >= 0) {
    script += fmt::format(
        "unset y2tics\nunset y2label\nset key top left\nset xlabel 'step'\nset ylabel 'others held up (ms of a step)'\n"
        "plot for [rank = 0 : {}] '{}' using 1:($7 == rank ? $8 : NaN) with impulses title sprintf('by rank %d', "
        "rank)\n",
        series.slowest_max, kSeriesFile);
  }
  return {"loss", script + "unset multiplot\n", ""};
}

}  // namespace param_sync::figures
