#pragma once
/// @file Lets ranks agree over sockets of host threads: does what an Agreement asks for.

#include "param_sync/membership/agreement.hpp"

#include "gpusock/gpusock.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace param_sync::membership {

/// Where this rank meets the others. It lives longer than one agreement: a rank that calls between two of them waits in
/// the listener's backlog. Calls throw gpusock::Error. One thread at a time calls it, but for interrupt().
class Meeting {
 public:
  Meeting();
  ~Meeting();

  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  /// `meets`: where the members of the first view meet, by id. `run`: the hash of the first view.
  Result agree(Agreement& agreement, const std::map<int, gpusock::Endpoint>& meets, std::uint64_t run,
               std::uint64_t patience_ns);
  void interrupt() noexcept;

 private:
  using Opening = std::uint64_t;  ///< the number of an attempt to connect

  struct Opened {
    Opening opening;
    gpusock::Socket socket;  ///< or a negated errno
  };

  /// A connection of the current agreement, or an attempt to make it.
  struct Line {
    gpusock::Socket socket = -1;
    Opening opening = 0;  ///< 0: a caller has opened it
    int to = -1;
    Message hello{};
  };

  /// What the current agreement is with.
  struct Peers {
    std::map<int, gpusock::Endpoint> meets;
    std::uint64_t run = 0;
    Ids everyone = 0;
    std::uint64_t patience_ns = 0;
  };

  void act(Agreement& agreement);
  void open(const Agreement::Action& action);
  void take_opened(Agreement& agreement);
  void take_caller(Agreement& agreement, gpusock::Socket socket, const Packet& packet);
  void receive(Agreement& agreement);
  void end(Agreement& agreement, Agreement::Talk talk);
  bool send(gpusock::Socket socket, const Message& message) const;
  void close_all();
  void wait(std::uint64_t until_ns) const;

  gpusock::Context context_;
  gpusock::Net net_;
  gpusock::Socket listener_ = -1;
  std::atomic<bool> interrupted_{false};
  Peers peers_;
  std::map<Agreement::Talk, Line> lines_;
  Opening openings_ = 0;

  std::mutex mutex_;
  std::vector<Opened> opened_;                ///< under the mutex
  std::map<Opening, std::jthread> connects_;  ///< each makes one call of connect, which waits
};

}  // namespace param_sync::membership
