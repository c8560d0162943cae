#include "figures/figures.hpp"

#include <fmt/format.h>

namespace param_sync::figures {

Figure predicted(const std::vector<tune::PredictedTime>& times, const std::string& about) {
  Figure figure{"predicted", "", "# measured ms, predicted ms, what; schemes that the fit has seen, then others\n"};
  for (const bool fitted : {true, false}) {
    for (const tune::PredictedTime& time : times) {
      if (time.fitted != fitted) continue;
      figure.data += fmt::format("{:.6g} {:.6g} '{}'\n", time.measured_s * 1e3, time.predicted_s * 1e3, time.what);
    }
    figure.data += "\n\n";
  }
  figure.script = fmt::format(
      "set terminal svg size 800,700 dynamic background rgb 'white'\nset output 'predicted.svg'\n"
      "set title 'All-reduces, {}' noenhanced\nset grid\nset logscale xy\n"
      "set xlabel 'measured (ms)'\nset ylabel 'predicted (ms)'\nset key left top\n"
      "plot 'predicted.dat' index 0 using 1:2 with points pointtype 7 linecolor rgb '#4477aa' title 'schemes of the "
      "fit', \\\n"
      "     'predicted.dat' index 1 using 1:2 with points pointtype 6 linecolor rgb '#cc6677' title 'schemes that it "
      "has not seen', \\\n"
      "     x with lines linecolor rgb '#888888' title 'as predicted'\n",
      about);
  return figure;
}

}  // namespace param_sync::figures
