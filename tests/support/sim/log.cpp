// The library's log, in a simulation: what a run's --verbose shows, else nothing.
#include "tests/support/sim/log.hpp"

#include "host_proxy/base/log.hpp"

namespace gpusock::proxy {

void log(LogLevel, const std::string& line, const CodeLine&) {
  if (sim::on_log) sim::on_log(line);
}

}  // namespace gpusock::proxy
