#pragma once
// The other process of a fault test.
#include <gpusock/gpusock.hpp>

#include <sys/types.h>

#include <string>

namespace gpusock::fault {

/// What a process started with `--peer ROLE ENDPOINT` does. It ends when its standard input does, unless it is killed
/// before.
///   listen   listens at ENDPOINT, says where on standard output, and takes what comes
///   plain    does what say() tells it, on plain TCP connections
///   gpusock  the same, on gpusock's
///   kernel   as echo_in_kernel()
int be_peer(const std::string& role, const std::string& endpoint);

/// A peer process.
class Peer {
 public:
  Peer(const std::string& role, const std::string& endpoint);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Tells a peer of the last two kinds, whose connections have names of one letter, one of:
  ///   "connect NAME ENDPOINT"  connects, and sends the name
  ///   "fill NAME BYTES"        fills a ring of so many bytes; plain: sends until nothing more goes
  ///   "end NAME -"             ends its direction
  ///   "end_all - -"            ends it on all connections
  ///   "reset - -"              resets all connections
  void say(const std::string& command) const;

  void stop() const;  ///< returns when no thread of it runs any more
  void go_on() const;
  /// The same of a peer whose kernel answers, as a GPU sees it: the kernel runs on (kernel_peer.hpp).
  void stop_host() const;
  void let_host_go_on() const;
  void kill_and_wait();
  /// A line that it printed.
  std::string read_line() const;

 private:
  pid_t process_ = -1;
  int to_peer_ = -1;
  int from_peer_ = -1;
};

}  // namespace gpusock::fault
