#include "host_proxy/proxy/observer.hpp"

#include "plain_types/error.hpp"
#include "plain_types/clock.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/signals.hpp"
#include "host_proxy/proxy/proxy.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

namespace gpusock::proxy {
namespace {

/// Numbers the contexts of this process.
std::atomic<std::uint64_t> next_number{0};

page::Identity make_identity(std::uint64_t number, std::uint32_t records_max) {
  page::Identity identity;
  identity.record_bytes = sizeof(page::Record);
  identity.records_max = records_max;
  identity.pid = static_cast<std::uint32_t>(getpid());
  identity.number = number;
  identity.started_unix_ns = detail::unix_ns();
  std::strncpy(identity.program, program_invocation_short_name, sizeof identity.program - 1);
  return identity;
}

page::Record to_record(const SocketInfo& info) {
  page::Record record;
  record.handle = info.handle;
  record.error = info.error;
  record.state = static_cast<std::uint8_t>(info.state);
  record.link = static_cast<std::uint8_t>(info.link);
  record.flags = static_cast<std::uint8_t>((info.peer_ended ? page::kPeerEnded : 0) |
                                           (info.peer_read_shut_down ? page::kPeerReadShutDown : 0));
  record.places = page::to_bits(info.places);
  record.pending = info.pending;
  record.backlog = info.backlog;
  record.block = info.block;
  record.tx_bytes = info.tx_bytes;
  record.rx_bytes = info.rx_bytes;
  record.tx_ring_fill = info.tx_ring_fill;
  record.rx_ring_fill = info.rx_ring_fill;
  record.ring_bytes = info.ring_bytes;
  record.age_ns = info.age_ns;
  record.local = info.local;
  record.peer = info.peer;
  info.link_reason.copy(record.link_reason, sizeof record.link_reason);
  return record;
}

bool write_all(int file, const void* data, std::size_t bytes, std::uint64_t offset) {
  return pwrite(file, data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

}  // namespace

Observer::Observer(const std::string& folder, std::uint32_t slots)
    // Sockets, and connections that are not accepted yet.
    : records_max_(std::min(slots + slots / 2, page::kRecordsMax)) {
  if (!folder.empty()) create(folder);
}

Observer::~Observer() {
  if (file_) unlink(path_.c_str());
}

/// The page appears under its name whole and locked, so that no process takes it for a leftover.
void Observer::create(const std::string& folder) {
  const FileSizeSignalBlocked blocked;
  const std::uint64_t number = next_number.fetch_add(1, std::memory_order_relaxed);
  if (number == 0) page::remove_left_over(folder);
  const page::Identity identity = make_identity(number, records_max_);
  const std::string path = folder + "/" + page::file_name(identity.pid, number);
  const std::string draft = folder + "/" + page::draft_name(identity.pid, number);
  unlink(draft.c_str());  // left by a process with the same pid that died here
  Descriptor file(open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::uint64_t nothing = 0;
  const bool made = file && flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                    write_all(file.get(), &identity, sizeof identity, 0) &&
                    write_all(file.get(), &nothing, sizeof nothing, page::kObservedUntilOffset) &&
                    write_all(file.get(), &nothing, sizeof nothing, page::kTcpUntilOffset) &&
                    write_all(file.get(), &nothing, sizeof nothing, page::kSequenceOffset) &&
                    renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0;
  if (!made) {
    const int error = errno;
    unlink(draft.c_str());
    const char* const advice = error == EEXIST ? "; another pid namespace has a process of this number: --pid=host, or"
                                               : ";";
    log_info("gpusock-top will not see this context: making " + path + ": " + describe_errno(error) + advice +
             " GPUSOCK_OBSERVE names another folder, or off");
    return;
  }
  path_ = path;
  file_ = std::move(file);
}

bool Observer::wanted(std::uint64_t offset, std::uint64_t now_ns) const {
  std::uint64_t until_ns = 0;
  const bool read = pread(file_.get(), &until_ns, sizeof until_ns, static_cast<off_t>(offset)) == sizeof until_ns;
  return read && until_ns > now_ns && until_ns - now_ns <= page::kObservedNsMax;
}

bool Observer::due(std::uint64_t now_ns) {
  if (now_ns < look_at_ns_ || !file_) return false;
  look_at_ns_ = now_ns + page::kRefreshNs;
  observed_ = wanted(page::kObservedUntilOffset, now_ns);
  tcp_wanted_ = observed_ && wanted(page::kTcpUntilOffset, now_ns);
  if (!observed_) progress_.clear();
  return observed_;
}

void Observer::collect(const Proxy& proxy, std::uint64_t now_ns, std::uint64_t wakeups) {
  const ProxyStats stats = proxy.stats();
  const std::vector<SocketInfo> sockets = proxy.sockets(now_ns);
  records_.clear();
  for (const SocketInfo& info : sockets) {
    if (records_.size() == records_max_) break;
    records_.push_back(to_record(info));
    note_progress(records_.back(), now_ns);
  }
  forget_closed(now_ns);
  if (tcp_wanted_) look_at_tcp(proxy);
  snapshot_ = {now_ns,
               stats.steps,
               wakeups,
               stats.connections,
               {},
               {},
               static_cast<std::uint32_t>(sockets.size()),
               static_cast<std::uint32_t>(records_.size())};
  for (int kind = 0; kind < kLinkKinds; ++kind) {
    snapshot_.tx_bytes[kind] = stats.traffic[static_cast<std::size_t>(kind)].tx_bytes;
    snapshot_.rx_bytes[kind] = stats.traffic[static_cast<std::size_t>(kind)].rx_bytes;
  }
}

std::uint64_t Observer::Progress::stalled_ns(std::uint64_t taken_now, std::uint64_t fill, std::uint64_t now_ns) {
  if (fill == 0 || taken_now != taken || since_ns == 0) {
    taken = taken_now;
    since_ns = now_ns;
  }
  return now_ns - since_ns;
}

void Observer::note_progress(page::Record& record, std::uint64_t now_ns) {
  if (record.ring_bytes == 0 || record.handle < 0) return;
  SocketProgress& progress = progress_[record.handle];
  progress.seen_ns = now_ns;
  // On tcp, tx_bytes counts what was taken from the ring. On p2p it also counts what the peer has not read.
  const bool p2p = record.link == static_cast<std::uint8_t>(LinkKind::p2p);
  const std::uint64_t tx_taken = record.tx_bytes - (p2p ? record.tx_ring_fill : 0);
  record.tx_stalled_ns = progress.tx.stalled_ns(tx_taken, record.tx_ring_fill, now_ns);
  record.rx_stalled_ns = progress.rx.stalled_ns(record.rx_bytes - record.rx_ring_fill, record.rx_ring_fill, now_ns);
}

/// Looks at some TCP connections, and at others for the next snapshot. Shows what it saw last of each.
void Observer::look_at_tcp(const Proxy& proxy) {
  std::uint32_t looks = 0;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    page::Record& record = records_[(next_tcp_ + i) % records_.size()];
    const auto progress = progress_.find(record.handle);
    if (record.link != static_cast<std::uint8_t>(LinkKind::tcp) || progress == progress_.end()) continue;
    if (looks == page::kTcpLooksMax) {
      next_tcp_ = (next_tcp_ + i) % records_.size();
      break;
    }
    progress->second.tcp = proxy.tcp_info(record.handle);
    ++looks;
  }
  for (page::Record& record : records_) {
    const auto progress = progress_.find(record.handle);
    if (progress != progress_.end()) record.tcp = progress->second.tcp;
  }
}

void Observer::forget_closed(std::uint64_t now_ns) {
  std::erase_if(progress_, [&](const auto& entry) { return entry.second.seen_ns != now_ns; });
}

void Observer::publish() {
  const std::uint64_t next = sequence_ + 1;
  const std::uint64_t bytes = records_.size() * sizeof(page::Record);
  const auto written = pwrite(file_.get(), records_.data(), bytes,
                              static_cast<off_t>(page::records_offset(next, records_max_)));
  // If the folder is full, this counts the records for which there was room.
  snapshot_.records = static_cast<std::uint32_t>(
      written < 0 ? 0 : static_cast<std::uint64_t>(written) / sizeof(page::Record));
  if (write_all(file_.get(), &snapshot_, sizeof snapshot_, page::snapshot_offset(next)) &&
      write_all(file_.get(), &next, sizeof next, page::kSequenceOffset)) {
    sequence_ = next;
  }
}

}  // namespace gpusock::proxy
