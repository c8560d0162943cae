#pragma once
/// @file One client of a server: opens what it asks for, and answers its rounds.

#include "contestant.hpp"
#include "control_connection.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <thread>

namespace bench {

class Session {
 public:
  /// Serves the client on a thread of its own, which calls `on_end` last.
  Session(ControlConnection control, std::string device, std::function<void()> on_end);
  ~Session();

  bool ended() const { return ended_; }
  /// After ended(): true if the client opened a contestant.
  bool opened() const { return opened_; }
  /// After ended(): true if the client ended the session after its last round, and nothing failed.
  bool succeeded() const { return succeeded_; }
  /// Makes the session end soon. Only the thread that made the session may call it.
  void stop() noexcept;

 private:
  void run();
  void serve();
  void open(const OpenRequest& request);
  void run_round(const RoundRequest& request);
  Answer await(Answerer& answerer);
  void tell_failure(int error, const std::string& text);

  ControlConnection control_;
  std::string device_;
  std::function<void()> on_end_;
  struct Opened {
    BenchOptions options;
    std::unique_ptr<Answerer> answerer;
  };
  std::array<Opened, kEntrants> opened_entrants_;
  bool opened_ = false;
  bool succeeded_ = false;
  std::atomic<bool> ended_{false};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace bench
