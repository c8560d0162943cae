#include "figures/figures.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace param_sync::figures {

Figure efficiency(const models::Model& model, simulate::TrainingSettings settings, const std::vector<int>& nodes,
                  const std::vector<double>& gigabits) {
  std::map<std::pair<int, double>, double> percent;
  for (const int count : nodes) {
    for (const double rate : gigabits) {
      settings.nodes = count;
      settings.network.bandwidth = rate * 1e9 / 8;
      percent[{count, rate}] = 100 * simulate::train(model, settings).efficiency();
    }
  }
  Figure figure{"efficiency", "",
                "# nodes, Gb/s, percent; a block for each bandwidth, then one for each number of nodes\n"};
  const auto row = [&](int count, double rate) {
    figure.data += fmt::format("{} {} {:.4f}\n", count, rate, percent.at({count, rate}));
  };
  for (const double rate : gigabits) {
    for (const int count : nodes) row(count, rate);
    figure.data += "\n\n";
  }
  for (const int count : nodes) {
    for (const double rate : gigabits) row(count, rate);
    figure.data += "\n\n";
  }
  figure.script = fmt::format(
      "set terminal svg size 900,800 dynamic background rgb 'white'\nset output 'efficiency.svg'\n"
      "set multiplot layout 2,1 title '{}, scheme {}, {} samples a node, {:.4g} TFLOP/s: training in virtual time' "
      "noenhanced\n"
      "set grid\nset yrange [0:105]\nset ylabel 'efficiency (percent)'\nset key outside right\nset logscale x\n",
      model.name, settings.scheme, settings.batch, settings.flops_per_s * 1e-12);
  std::string ticks;
  for (const int count : nodes) ticks += fmt::format("{}{}", ticks.empty() ? "" : ", ", count);
  const auto axis = [](const char* label, double least, double most) {  // there may be only one value
    return fmt::format("set xlabel '{}'\nset xrange [{:.4g}:{:.4g}]\n", label, least / 1.1, most * 1.1);
  };
  figure.script += axis("nodes", nodes.front(), nodes.back()) + fmt::format("set xtics ({})\n", ticks);
  int block = 0;
  for (const double rate : gigabits) {
    figure.script += fmt::format("{}'efficiency.dat' index {} using 1:3 with linespoints title '{} Gb/s'",
                                 rate == gigabits.front() ? "plot " : ", \\\n     ", block++, rate);
  }
  figure.script += "\n" + axis("Gb/s", gigabits.front(), gigabits.back()) + "set xtics auto\n";
  for (const int count : nodes) {
    figure.script += fmt::format("{}'efficiency.dat' index {} using 2:3 with linespoints title '{} nodes'",
                                 count == nodes.front() ? "plot " : ", \\\n     ", block++, count);
  }
  figure.script += "\nunset multiplot\n";
  return figure;
}

}  // namespace param_sync::figures
