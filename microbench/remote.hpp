#pragma once
/// @file The answering half in another process: `gpusock-bench serve`.

#include "contestant.hpp"
#include "control_connection.hpp"

namespace bench {

/// One client's connection to a server, which all contestants of a run share.
class Server {
 public:
  /// Connects to the server. Throws program::SocketFailure if no server listens there.
  explicit Server(const BenchOptions& options);

  std::uint64_t limit_ns;  ///< how long each answer may take
  ControlConnection control;
  std::string device;     ///< the server's device; known once a contestant is open
  bool answered = false;  ///< true if it has answered once, so that it is gpusock-bench
  bool waited = false;    ///< true if it has said that it serves another client first
};

/// Makes the server listen for this contestant. Throws Error.
std::unique_ptr<Answerer> make_remote_answerer(const std::shared_ptr<Server>& server, const BenchOptions& options,
                                               Entrant entrant);

}  // namespace bench
