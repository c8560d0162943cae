#include "gpusock/tools/top/observation.hpp"

#include "plain_types/clock.hpp"
#include "gpusock/error.hpp"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>

namespace gpusock::top {
namespace {

std::optional<double> rate(std::uint64_t now, std::uint64_t before, double seconds) {
  if (now < before) return std::nullopt;
  return static_cast<double>(now - before) / seconds;
}

void forget_rates(ContextView& view) {
  view.steps_per_s = view.wakeups_per_s = std::nullopt;
  for (SocketView& socket : view.sockets) socket.tx_bytes_per_s = socket.rx_bytes_per_s = std::nullopt;
}

std::vector<std::string> list_pages(const std::string& folder, std::optional<std::uint32_t> pid) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr)
    throw Error(errno, "reading " + folder + ", the folder of contexts' pages (GPUSOCK_OBSERVE, --folder)");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (page::is_file_name(name) && (!pid || name.starts_with("gpusock-" + std::to_string(*pid) + "-")))
      names.push_back(name);
  }
  return names;
}

}  // namespace

void Observation::find_pages(Look& look) {
  look.removed = page::remove_left_over(folder_);
  const std::vector<std::string> names = list_pages(folder_, pid_);
  std::erase_if(pages_, [&](const auto& entry) {
    return std::find(names.begin(), names.end(), entry.first) == names.end() || entry.second.page.ended();
  });
  for (const std::string& name : names) {
    if (pages_.contains(name)) continue;
    PageReader page(folder_ + "/" + name);
    if (page.kind() == PageReader::Kind::rubbish) ++look.rubbish;
    if (page.kind() == PageReader::Kind::of_other_user) ++look.others;
    if (page.kind() == PageReader::Kind::page)
      pages_.emplace(name, Observed{std::move(page), detail::monotonic_ns(), std::nullopt});
  }
}

/// Reads the page. Returns false if it is invalid, and no valid view of it is known.
bool Observation::update(Observed& observed, std::uint64_t now_ns, std::uint64_t patience_ns) const {
  auto view = observed.page.read(now_ns);
  if (!view) return observed.newest.has_value();  // invalid, or written faster than read: keeps the last view
  const bool fresh = !observed.newest || view->snapshot.taken_ns != observed.newest->snapshot.taken_ns;
  if (fresh) {
    if (observed.newest) add_rates(*view, *observed.newest);
    observed.newest = std::move(view);
  }
  const std::uint64_t answered_ns = std::max(observed.newest->snapshot.taken_ns, observed.asked_ns);
  observed.newest->silent_ns = now_ns - std::min(now_ns, answered_ns);
  observed.newest->stalled = observed.newest->silent_ns >= patience_ns;
  if (observed.newest->stalled) forget_rates(*observed.newest);
  return true;
}

Look Observation::look(std::uint64_t for_ns, std::uint64_t patience_ns) {
  Look look;
  find_pages(look);
  const std::uint64_t now = detail::monotonic_ns();
  for (auto& [name, observed] : pages_) {
    observed.page.ask(now, for_ns, tcp_);
    if (update(observed, now, patience_ns)) {
      look.contexts.push_back(*observed.newest);
    } else {
      ++look.rubbish;
    }
  }
  std::sort(look.contexts.begin(), look.contexts.end(), [](const ContextView& a, const ContextView& b) {
    return std::tie(a.pid, a.number) < std::tie(b.pid, b.number);
  });
  return look;
}

Look Observation::look_for_answers(std::uint64_t since_ns, std::uint64_t patience_ns,
                                   const std::function<bool()>& nap) {
  for (;;) {
    Look result = look(2 * patience_ns, patience_ns);
    const bool complete = std::all_of(result.contexts.begin(), result.contexts.end(), [&](const ContextView& context) {
      return context.stalled || context.snapshot.taken_ns > since_ns;
    });
    if (complete || !nap()) return result;
  }
}

void add_rates(ContextView& now, const ContextView& before) {
  if (before.snapshot.taken_ns == 0 || now.snapshot.taken_ns <= before.snapshot.taken_ns) return;
  const double seconds = static_cast<double>(now.snapshot.taken_ns - before.snapshot.taken_ns) * 1e-9;
  now.steps_per_s = rate(now.snapshot.proxy_steps, before.snapshot.proxy_steps, seconds);
  now.wakeups_per_s = rate(now.snapshot.proxy_wakeups, before.snapshot.proxy_wakeups, seconds);
  std::unordered_map<std::int32_t, const SocketView*> earlier;
  for (const SocketView& socket : before.sockets) earlier.emplace(socket.info.handle, &socket);
  for (SocketView& socket : now.sockets) {
    const auto found = earlier.find(socket.info.handle);
    if (found == earlier.end() || socket.info.handle < 0 || socket.info.ring_bytes == 0) continue;
    socket.tx_bytes_per_s = rate(socket.info.tx_bytes, found->second->info.tx_bytes, seconds);
    socket.rx_bytes_per_s = rate(socket.info.rx_bytes, found->second->info.rx_bytes, seconds);
  }
}

}  // namespace gpusock::top
