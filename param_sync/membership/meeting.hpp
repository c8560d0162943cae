#pragma once
/// @file Lets ranks agree over sockets of host threads: does what an Agreement asks for.

#include "param_sync/membership/agreement.hpp"

#include "gpusock/gpusock.hpp"
#include "gpusock/greetings.cuh"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace param_sync::membership {

using Settings = std::array<std::uint64_t, kWordsMax>;

/// Where this rank meets the others. It lives longer than one agreement: a rank that calls between two of them waits in
/// the listener's backlog, or here after look() has found it. Calls throw gpusock::Error. One thread at a time calls
/// it, but for interrupt().
class Meeting {
 public:
  Meeting();
  ~Meeting();

  gpusock::Endpoint listen(const gpusock::Endpoint& at);
  /// `standing`: that of the agreement. `run`: the hash of the first view.
  Result agree(Agreement& agreement, const Standing& standing, std::uint64_t run, std::uint64_t patience_ns);
  void interrupt() noexcept;

  /// From here on nodes with these settings may join.
  void open_to(const Settings& settings) { settings_ = settings; }
  /// Between agreements: takes callers, without waiting. Notes nodes that ask to join, refuses those that may not, and
  /// tells ranks that the others have gone on without them.
  void look(int self, const Standing& standing, std::uint64_t run);
  /// The nodes that have asked this rank, and still wait.
  std::vector<Addresses> applicants() const;
  /// Tells those that are members now.
  void admit(const Message& admission);

  /// Connects to a member, and returns this host's address on the way to it, without a port.
  gpusock::Endpoint reach(const gpusock::Endpoint& member, std::uint64_t patience_ns);
  bool has_reached() const { return member_ >= 0; }
  /// Asks the member that was reached to let this node in. Returns the admission, or a refusal.
  Message ask(const Addresses& own, const Settings& settings, std::uint64_t patience_ns);

 private:
  using Opening = std::uint64_t;  ///< the number of an attempt to connect

  struct Applicant {
    gpusock::Socket socket;
    Addresses at;
  };

  struct Caller {
    gpusock::Socket socket;
    Message hello;
  };

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
    const Standing* standing = nullptr;
    std::uint64_t run = 0;
    std::uint64_t patience_ns = 0;
  };

  void act(Agreement& agreement);
  void open(const Agreement::Action& action);
  bool take_opened(Agreement& agreement);
  void take_callers(std::uint64_t run, int ids);
  void take_applicant(gpusock::Socket socket, const Message& request, int ids);
  void take_caller(Agreement& agreement, const Caller& caller);
  bool waits(gpusock::Socket socket) const;
  Message receive_answer(std::uint64_t patience_ns, const std::string& late) const;
  bool receive(Agreement& agreement);
  void end(Agreement& agreement, Agreement::Talk talk);
  bool send(gpusock::Socket socket, const Message& message, std::uint64_t run) const;
  void close_all();
  void wait(std::uint64_t news_ns, std::uint64_t until_ns) const;

  gpusock::Context context_;
  gpusock::Net net_;
  gpusock::Socket listener_ = -1;
  std::optional<gpusock::Greetings<Packet>> greetings_;
  std::optional<Settings> settings_;  ///< of nodes that may join
  std::vector<Caller> callers_;       ///< members that have called, and were not heard yet
  std::vector<Applicant> applicants_;
  gpusock::Socket member_ = -1;  ///< that reach() has reached
  std::atomic<bool> interrupted_{false};
  Peers peers_;
  std::map<Agreement::Talk, Line> lines_;
  Opening openings_ = 0;

  std::mutex mutex_;
  std::vector<Opened> opened_;                ///< under the mutex
  std::map<Opening, std::jthread> connects_;  ///< each makes one call of connect, which waits
};

}  // namespace param_sync::membership
