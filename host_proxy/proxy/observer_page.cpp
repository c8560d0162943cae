#include "host_proxy/proxy/observer_page.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

namespace gpusock::page {
namespace {

constexpr const char* kPrefix = "gpusock-";

bool is_page(int descriptor) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_nlink != 1) return false;
  if (facts.st_uid != geteuid() && geteuid() != 0) return false;
  std::uint64_t magic = 0;
  return pread(descriptor, &magic, sizeof magic, 0) == sizeof magic && magic == kMagic;
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

bool is_file_name(const std::string& name) {
  const auto digits = [&](std::size_t from, std::size_t to) {
    return from < to && name.find_first_not_of("0123456789", from) >= to;
  };
  const std::size_t start = std::string(kPrefix).size();
  const std::size_t dash = name.find('-', start);
  return name.starts_with(kPrefix) && dash != std::string::npos && digits(start, dash) && digits(dash + 1, name.size());
}

int open_page(const std::string& path) {
  // Without waiting, in case it is a pipe.
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
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
    if (!is_file_name(entry->d_name)) continue;
    const std::string path = folder + "/" + entry->d_name;
    const int descriptor = open_page(path);
    if (descriptor < 0) continue;
    struct stat facts {};
    // One link: no other process has removed it yet.
    const bool remove = is_left_over(descriptor) && fstat(descriptor, &facts) == 0 && facts.st_nlink == 1;
    if (remove && unlink(path.c_str()) == 0) ++removed;
    close(descriptor);
  }
  return removed;
}

}  // namespace gpusock::page
