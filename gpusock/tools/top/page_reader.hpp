#pragma once
/// @file Reads a context's page (host_proxy/proxy/observer_page.hpp), trusting nothing that is in it.

#include "gpusock/socket_info.hpp"
#include "host_proxy/net/posix_network.hpp"
#include "host_proxy/proxy/observer_page.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::top {

struct SocketView {
  SocketInfo info;
  std::uint64_t tx_stalled_ns = 0;  ///< how long bytes have been in the ring without one being taken
  std::uint64_t rx_stalled_ns = 0;
  std::optional<double> tx_bytes_per_s;  ///< known once the context was seen twice
  std::optional<double> rx_bytes_per_s;
  proxy::TcpInfo tcp;  ///< known if the observer asked for it, and the socket is on the tcp link
};

/// One context as its page shows it.
struct ContextView {
  std::uint32_t pid = 0;
  std::uint64_t number = 0;
  std::uint32_t user = 0;  ///< the user that owns the page
  std::string program;     ///< printable characters only
  std::uint64_t started_unix_ns = 0;
  page::Snapshot snapshot;  ///< taken_ns is 0 if it has not answered any observer yet
  std::vector<SocketView> sockets;
  std::optional<double> steps_per_s;
  std::optional<double> wakeups_per_s;
  std::uint64_t silent_ns = 0;  ///< how long it has owed an answer
  bool stalled = false;         ///< true if that is too long: the process is stopped, or its proxy does not run
};

/// An open page.
class PageReader {
 public:
  enum class Kind { page, left_over, of_other_user, rubbish };

  /// Opens the page; `kind` says what it is. Only a `page` may be used.
  explicit PageReader(const std::string& path);

  Kind kind() const { return kind_; }
  /// Asks the context to refresh its page for this long from now on; at most 29 s. With `tcp` also to look at its TCP
  /// connections.
  void ask(std::uint64_t now_ns, std::uint64_t for_ns, bool tcp = false) const;
  /// True if its context has ended meanwhile.
  bool ended() const { return page::is_left_over(file_.get()); }
  /// Returns the last complete snapshot; nothing if the page is invalid, or is written faster than it is read.
  std::optional<ContextView> read(std::uint64_t now_ns) const;

 private:
  void ask_at(std::uint64_t offset, std::uint64_t now_ns, std::uint64_t for_ns) const;
  Kind classify(const std::string& path);
  bool read_snapshot(ContextView& view, std::uint64_t sequence, std::uint64_t now_ns) const;

  proxy::Descriptor file_;
  page::Identity identity_;
  std::uint32_t user_ = 0;
  Kind kind_;
};

/// Converts a record to a socket; returns nothing if the record is invalid.
std::optional<SocketView> to_socket(const page::Record& record);

}  // namespace gpusock::top
