#include "host_proxy/base/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>

namespace gpusock::proxy {
namespace {

constexpr int kProcessorsMax = 65536;

}  // namespace

std::vector<int> parse_processors(std::string_view list) {
  std::vector<int> processors;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    int first = 0, last = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{}) return {};
    last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc{}) return {};
    }
    if (first < 0 || last < first || last >= kProcessorsMax) return {};
    for (int processor = first; processor <= last; ++processor) processors.push_back(processor);
    if (parsed.ptr != end && (*parsed.ptr != ',' || parsed.ptr + 1 == end)) return {};
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  return processors;
}

std::vector<int> processors_near(std::string_view address, const std::filesystem::path& root) {
  std::string device(address);
  std::transform(device.begin(), device.end(), device.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file(root / "sys/bus/pci/devices" / device / "local_cpulist");
  std::string line;
  std::getline(file, line);
  return parse_processors(line);
}

std::vector<int> usable(const std::vector<int>& processors) {
  cpu_set_t allowed;
  if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return {};
  std::vector<int> usable;
  std::copy_if(processors.begin(), processors.end(), std::back_inserter(usable),
               [&](int processor) { return processor < CPU_SETSIZE && CPU_ISSET(processor, &allowed); });
  return usable;
}

void keep_on(pthread_t thread, const std::vector<int>& usable) noexcept {
  if (usable.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : usable) CPU_SET(processor, &set);
  pthread_setaffinity_np(thread, sizeof set, &set);
}

}  // namespace gpusock::proxy
