#pragma once
// The other process of a fault test.
#include <gpusock/gpusock.hpp>

#include <sys/types.h>

#include <string>

namespace gpusock::fault {

/// What a process started with `--peer ROLE ENDPOINT` does. It ends when its standard input does, unless it is killed before.
///   connect  connects to ENDPOINT, sends one byte, and then neither sends nor receives
///   listen   listens at ENDPOINT, says where on standard output, and takes what comes
int be_peer(const std::string& role, const std::string& endpoint);

/// A peer process.
class Peer {
 public:
  Peer(const std::string& role, const std::string& endpoint);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void stop() const;  ///< returns when no thread of it runs any more
  void kill_and_wait();
  /// A line that it printed.
  std::string read_line() const;

 private:
  pid_t process_ = -1;
  int to_peer_ = -1;
  int from_peer_ = -1;
};

}  // namespace gpusock::fault
