#include "host_proxy/proxy/observer_page.hpp"

#include "host_proxy/base/descriptor.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace gpusock::page {
namespace {

constexpr const char* kPrefix = "gpusock-";
constexpr const char* kDraftPrefix = ".";
constexpr const char* kDraftSuffix = ".new";

bool is_own_file(int descriptor) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_nlink != 1) return false;
  return facts.st_uid == geteuid() || geteuid() == 0;
}

bool is_page(int descriptor) {
  if (!is_own_file(descriptor)) return false;
  std::uint64_t magic = 0;
  return pread(descriptor, &magic, sizeof magic, 0) == sizeof magic && magic == kMagic;
}

/// The name of the page that this is a draft of; empty if it is not a draft's name.
std::string page_of_draft(const std::string& name) {
  const std::size_t before = std::strlen(kDraftPrefix), after = std::strlen(kDraftSuffix);
  if (!name.starts_with(kDraftPrefix) || !name.ends_with(kDraftSuffix) || name.size() < before + after) return {};
  const std::string page = name.substr(before, name.size() - before - after);
  return is_file_name(page) ? page : std::string();
}

/// True if no process has the pid in this page's name. A process in another namespace is not seen, but has the page's
/// lock.
bool maker_is_gone(const std::string& page) {
  const long pid = std::strtol(page.c_str() + std::strlen(kPrefix), nullptr, 10);
  const bool can_be_one = pid > 0 && pid <= std::numeric_limits<pid_t>::max();
  return can_be_one && kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

/// Opens a file without waiting, in case it is a pipe.
int open_file(const std::string& path) { return open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }

/// Opens a page, or a draft, which may still be empty. None if the file is to be left alone.
proxy::Descriptor open_what_may_be_left(const std::string& folder, const std::string& name) {
  if (is_file_name(name)) return proxy::Descriptor(open_page(folder + "/" + name));
  const std::string page = page_of_draft(name);
  if (page.empty() || !maker_is_gone(page)) return {};
  proxy::Descriptor draft(open_file(folder + "/" + name));
  return draft && is_own_file(draft.get()) ? std::move(draft) : proxy::Descriptor();
}

}  // namespace

std::uint8_t to_bits(const RingPlaces& places) {
  if (places.bytes == RingPlacement::automatic) return 0;
  const auto bit = [](RingPlacement place, int on_device) { return place == RingPlacement::device ? on_device : 0; };
  return static_cast<std::uint8_t>(
      kHasRings | bit(places.bytes, kBytesOnDevice) | bit(places.tx_committed, kTxCommittedOnDevice) |
      bit(places.tx_consumed, kTxConsumedOnDevice) | bit(places.rx_committed, kRxCommittedOnDevice) |
      bit(places.rx_consumed, kRxConsumedOnDevice) | bit(places.status, kStatusOnDevice));
}

RingPlaces to_places(std::uint8_t bits) {
  if ((bits & kHasRings) == 0) return {};
  const auto place = [&](int on_device) {
    return (bits & on_device) != 0 ? RingPlacement::device : RingPlacement::host;
  };
  return {place(kBytesOnDevice),       place(kTxCommittedOnDevice), place(kTxConsumedOnDevice),
          place(kRxCommittedOnDevice), place(kRxConsumedOnDevice),  place(kStatusOnDevice)};
}

std::string file_name(std::uint32_t pid, std::uint64_t number) {
  return kPrefix + std::to_string(pid) + "-" + std::to_string(number);
}

std::string draft_name(std::uint32_t pid, std::uint64_t number) {
  return kDraftPrefix + file_name(pid, number) + kDraftSuffix;
}

bool is_file_name(const std::string& name) {
  const auto digits = [&](std::size_t from, std::size_t to) {
    return from < to && name.find_first_not_of("0123456789", from) >= to;
  };
  const std::size_t start = std::string(kPrefix).size();
  const std::size_t dash = name.find('-', start);
  return name.starts_with(kPrefix) && dash != std::string::npos && digits(start, dash) && digits(dash + 1, name.size());
}

int open_page(const std::string& path) {
  const int descriptor = open_file(path);
  if (descriptor < 0 || is_page(descriptor)) return descriptor;
  close(descriptor);
  return -1;
}

bool is_left_over(int descriptor) {
  if (flock(descriptor, LOCK_SH | LOCK_NB) != 0) return false;
  flock(descriptor, LOCK_UN);
  return true;
}

int remove_left_over(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  int removed = 0;
  while (const dirent* entry = listing == nullptr ? nullptr : readdir(listing.get())) {
    const proxy::Descriptor file = open_what_may_be_left(folder, entry->d_name);
    if (!file) continue;
    struct stat facts {};
    // One link: no other process has removed it yet.
    const bool remove = is_left_over(file.get()) && fstat(file.get(), &facts) == 0 && facts.st_nlink == 1;
    if (remove && unlink((folder + "/" + entry->d_name).c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace gpusock::page
