#include "gpusock/tools/top/page_reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gpusock::top {
namespace {

/// If the writer overtakes so many reads, the page is left for the next look.
constexpr int kReadsMax = 8;
/// Less than the context grants, because it may have read its clock a little earlier.
constexpr std::uint64_t kAskedNsMax = page::kObservedNsMax - 1'000'000'000;

bool read_all(int file, void* into, std::size_t bytes, std::uint64_t offset) {
  return pread(file, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

/// Returns the text up to the first zero byte. Characters that could control a terminal become '?'.
std::string printable(const char* text, std::size_t bytes_max) {
  std::string result(text, strnlen(text, bytes_max));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

/// Takes only the fields that make an address.
Endpoint to_endpoint(const ResolvedEndpoint& raw) {
  Endpoint endpoint;
  if (raw.family != 4 && raw.family != 6) return endpoint;
  std::memcpy(endpoint.address, raw.address, sizeof endpoint.address);
  endpoint.scope_id = raw.scope_id;
  endpoint.port = raw.port;
  endpoint.family = raw.family;
  return endpoint;
}

std::string name_in(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

PageReader::PageReader(const std::string& path) : file_(page::open_page(path)), kind_(classify(path)) {}

PageReader::Kind PageReader::classify(const std::string& path) {
  struct stat facts {};
  if (!file_) {
    const bool is_file = lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
    return is_file && facts.st_uid != geteuid() && geteuid() != 0 ? Kind::of_other_user : Kind::rubbish;
  }
  if (fstat(file_.get(), &facts) != 0) return Kind::rubbish;
  if (ended()) return Kind::left_over;
  user_ = facts.st_uid;
  const bool sane = read_all(file_.get(), &identity_, sizeof identity_, 0) && identity_.magic == page::kMagic &&
                    identity_.layout == page::kLayout && identity_.record_bytes == sizeof(page::Record) &&
                    identity_.records_max <= page::kRecordsMax &&
                    name_in(path) == page::file_name(identity_.pid, identity_.number);
  return sane ? Kind::page : Kind::rubbish;
}

void PageReader::ask(std::uint64_t now_ns, std::uint64_t for_ns, bool tcp) const {
  if (tcp)
    ask_at(page::kTcpUntilOffset, now_ns, for_ns);  // asked first: the answer to the next request then includes it
  ask_at(page::kObservedUntilOffset, now_ns, for_ns);
}

void PageReader::ask_at(std::uint64_t offset, std::uint64_t now_ns, std::uint64_t for_ns) const {
  const std::uint64_t until_ns = now_ns + std::min(for_ns, kAskedNsMax);
  std::uint64_t asked_ns = 0;
  const bool read = read_all(file_.get(), &asked_ns, sizeof asked_ns, offset);
  if (read && asked_ns >= until_ns && asked_ns - now_ns <= kAskedNsMax) return;  // another observer asked for longer
  // If this cannot be written, the context does not answer, and shows as stalled.
  [[maybe_unused]] const auto written = pwrite(file_.get(), &until_ns, sizeof until_ns, static_cast<off_t>(offset));
}

std::optional<ContextView> PageReader::read(std::uint64_t now_ns) const {
  ContextView view;
  view.pid = identity_.pid;
  view.number = identity_.number;
  view.user = user_;
  view.program = printable(identity_.program, sizeof identity_.program);
  view.started_unix_ns = identity_.started_unix_ns;
  for (int i = 0; i < kReadsMax; ++i) {
    std::uint64_t before = 0, after = 0;
    if (!read_all(file_.get(), &before, sizeof before, page::kSequenceOffset)) return std::nullopt;
    if (before == 0) return view;  // the context has had no observer before
    const bool read = read_snapshot(view, before, now_ns);
    if (!read_all(file_.get(), &after, sizeof after, page::kSequenceOffset)) return std::nullopt;
    if (before == after) return read ? std::optional(view) : std::nullopt;
  }
  return std::nullopt;
}

bool PageReader::read_snapshot(ContextView& view, std::uint64_t sequence, std::uint64_t now_ns) const {
  if (!read_all(file_.get(), &view.snapshot, sizeof view.snapshot, page::snapshot_offset(sequence))) return false;
  const page::Snapshot& snapshot = view.snapshot;
  if (snapshot.records > identity_.records_max || snapshot.records > snapshot.sockets) return false;
  if (snapshot.taken_ns > now_ns + page::kObservedNsMax)
    return false;  // too far after `now`: this is another clock's time
  std::vector<page::Record> records(snapshot.records);
  const std::uint64_t offset = page::records_offset(sequence, identity_.records_max);
  if (!read_all(file_.get(), records.data(), records.size() * sizeof(page::Record), offset)) return false;
  view.sockets.clear();
  for (const page::Record& record : records) {
    if (auto socket = to_socket(record)) view.sockets.push_back(std::move(*socket));
  }
  return true;
}

std::optional<SocketView> to_socket(const page::Record& record) {
  if (record.state > static_cast<std::uint8_t>(SocketState::failed)) return std::nullopt;
  if (record.link >= kLinkKinds) return std::nullopt;
  SocketView view;
  SocketInfo& info = view.info;
  info.handle = std::max(record.handle, -1);
  info.state = static_cast<SocketState>(record.state);
  info.error = std::clamp(record.error, 0, 4095);  // the range of the operating system's errors
  info.peer_ended = (record.flags & page::kPeerEnded) != 0;
  info.peer_read_shut_down = (record.flags & page::kPeerReadShutDown) != 0;
  info.link = static_cast<LinkKind>(record.link);
  info.link_reason = printable(record.link_reason, sizeof record.link_reason);
  info.local = to_endpoint(record.local);
  info.peer = to_endpoint(record.peer);
  info.tx_bytes = record.tx_bytes;
  info.rx_bytes = record.rx_bytes;
  info.ring_bytes = record.ring_bytes;
  info.tx_ring_fill = std::min(record.tx_ring_fill, record.ring_bytes);
  info.rx_ring_fill = std::min(record.rx_ring_fill, record.ring_bytes);
  info.places = page::to_places(record.places);
  info.age_ns = record.age_ns;
  info.pending = record.pending;
  info.backlog = record.backlog;
  info.block = std::max<std::int64_t>(record.block, -1);
  view.tx_stalled_ns = record.tx_stalled_ns;
  view.rx_stalled_ns = record.rx_stalled_ns;
  if (record.tcp.known != 0) view.tcp = record.tcp;
  return view;
}

}  // namespace gpusock::top
