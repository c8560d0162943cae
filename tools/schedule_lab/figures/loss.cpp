#include "figures/figures.hpp"

#include "param_sync/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace param_sync::figures {
namespace {

struct Series {
  std::string title;
  bool has_times = false;
};

Series read_series(const std::string& text) {
  constexpr std::ptrdiff_t kTabs = 5;  // a line has six fields: step, loss, accuracy, bytes, waiting, seconds
  Series series;
  std::istringstream lines(text);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) {
      series.title = line.substr(std::min<std::size_t>(line.size(), 2));  // the last such line is the title
      continue;
    }
    if (std::count(line.begin(), line.end(), '\t') != kTabs) {
      throw schedule::Error(fmt::format("{}: not a file of --series (of this version): row {} has not {} columns",
                                        kSeriesFile, rows + 1, kTabs + 1));
    }
    if (!line.ends_with("\tnan")) series.has_times = true;
    ++rows;
  }
  if (rows == 0) throw schedule::Error(fmt::format("{} has no steps", kSeriesFile));
  std::replace(series.title.begin(), series.title.end(), '\'', ' ');  // the script puts the title between these
  return series;
}

}  // namespace

Figure loss(const std::string& text) {
  const Series series = read_series(text);
  std::string script = fmt::format(
      "set terminal svg size 900,{} dynamic background rgb 'white'\nset output 'loss.svg'\n"
      "set multiplot layout {},1 title 'param_sync: {}' noenhanced\n"
      "set grid\nset ytics nomirror\nset y2tics\nset yrange [0:*]\nset y2range [0:1]\nset key center right\n"
      "set ylabel 'training loss (nats)'\nset y2label 'test accuracy'\n",
      series.has_times ? 800 : 450, series.has_times ? 2 : 1, series.title);
  const auto panel = [&](const char* label, int column) {
    script += fmt::format(
        "set xlabel '{1}'\n"
        "plot '{0}' using {2}:2 with lines linecolor rgb '#4477aa' title 'loss of a step, mean over the nodes', \\\n"
        "     '{0}' using {2}:3 axes x1y2 with points pointtype 7 linecolor rgb '#cc6677' title 'test accuracy'\n",
        kSeriesFile, label, column);
  };
  if (series.has_times) panel("seconds since the first step", 6);
  panel("gradients pushed until then, all nodes (MB)", 4);
  return {"loss", script + "unset multiplot\n", ""};
}

}  // namespace param_sync::figures
