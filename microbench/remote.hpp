#pragma once
/// @file The answering half in another process: `gpusock-bench serve`.

#include "contestant.hpp"
#include "control_connection.hpp"

namespace bench {

/// One client's connection to a server, which all contestants of a run share.
class Server {
 public:
  /// Throws Error if no server listens there.
  explicit Server(const BenchOptions& options);

  std::uint64_t limit_ns;  ///< for each answer
  ControlConnection control;
  std::string device;     ///< what it runs on; known once a contestant is open
  bool answered = false;  ///< it has answered something: it is gpusock-bench
  bool waited = false;    ///< its first answer may come after another client's run
};

/// Has the server listen for this contestant. Throws Error.
std::unique_ptr<Answerer> make_remote_answerer(const std::shared_ptr<Server>& server, const BenchOptions& options,
                                               Entrant entrant);

}  // namespace bench
