#pragma once
/// @file Shows a context to observers in other processes, by a page (observer_page.hpp). A context without observers
/// looks at one word when its proxy's thread is awake, at most every 200 ms, and does nothing else.

#include "host_proxy/net/posix_network.hpp"
#include "host_proxy/proxy/observer_page.hpp"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpusock::proxy {

class Proxy;

/// Used by one thread, the engine's.
class Observer {
 public:
  /// Makes the page in this folder; "" makes none. Never throws: a context that cannot be observed works all the same,
  /// and the log says why.
  Observer(const std::string& folder, std::uint32_t slots);
  ~Observer();  ///< removes the page
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  /// True if it is time for a snapshot. Looks from time to time whether an observer wants one.
  bool due(std::uint64_t now_ns);
  /// When due() must be called even if nothing happens; ~0 while there is no observer.
  std::uint64_t next_due_ns() const { return observed_ ? look_at_ns_ : ~std::uint64_t{0}; }

  /// Takes a snapshot. The caller holds the engine's step lock.
  void collect(const Proxy& proxy, std::uint64_t now_ns, std::uint64_t wakeups);
  /// Writes the snapshot that was taken.
  void publish();

 private:
  /// Since when no byte has been taken from a ring that holds bytes.
  struct Progress {
    std::uint64_t taken = 0;
    std::uint64_t since_ns = 0;
    std::uint64_t stalled_ns(std::uint64_t taken_now, std::uint64_t fill, std::uint64_t now_ns);
  };
  struct SocketProgress {
    Progress tx, rx;
    TcpInfo tcp;
    std::uint64_t seen_ns = 0;
  };

  void create(const std::string& folder);
  /// True if the word at this offset of the page says that an observer wants news.
  bool wanted(std::uint64_t offset, std::uint64_t now_ns) const;
  void note_progress(page::Record& record, std::uint64_t now_ns);
  void look_at_tcp(const Proxy& proxy);
  void forget_closed(std::uint64_t now_ns);

  std::string path_;
  Descriptor file_;
  std::uint32_t records_max_;
  std::uint64_t sequence_ = 0;
  std::uint64_t look_at_ns_ = 0;
  bool observed_ = false;
  bool tcp_wanted_ = false;
  std::size_t next_tcp_ = 0;  ///< record from which the next look at TCP connections goes on
  page::Snapshot snapshot_;
  std::vector<page::Record> records_;
  std::unordered_map<std::int32_t, SocketProgress> progress_;
};

}  // namespace gpusock::proxy
