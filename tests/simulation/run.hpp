#pragma once
/// @file One simulated run of a plan, with all that is checked in it.

#include "tests/simulation/node.hpp"
#include "tests/simulation/plan.hpp"
#include "tests/support/sim/fabric.hpp"
#include "tests/support/sim/verbs.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::sim {

struct Outcome {
  std::string problem;      ///< "": none
  std::uint64_t trace = 0;  ///< equal for equal runs
  std::uint64_t turns = 0;
  std::uint64_t simulated_ns = 0;
  std::uint64_t bytes = 0;  ///< that arrived and were checked
  std::uint64_t connections = 0;
  bool denied = false;  ///< something was (Plan::shortage)
};

/// `verbose`: every call and every fault is told on standard output.
Outcome run(const Plan& plan, bool verbose = false);

inline constexpr int kSendersMax = 3;

/// What one sender of one side of a connection has sent and the other side has received: bytes, or records.
struct Flow {
  std::uint64_t given = 0;  ///< what calls were given
  std::uint64_t sent = 0;   ///< what calls have taken for sure
  std::uint64_t received = 0;
};

/// One direction of a connection. Streams have one flow.
struct Way {
  std::uint64_t salt = 0;
  Flow flows[kSendersMax];
  bool all_sent = false;  ///< and the sender has ended it
  bool end_seen = false;  ///< the receiver has
};

/// One connection that was made, or tried.
struct Attempt {
  std::uint64_t number = 0;
  std::uint32_t planned = 0;
  bool met = false;                         ///< its server has found out which one it is
  bool broken[2] = {};                      ///< this side's process was ended
  std::uint64_t unread_at_close[2] = {};    ///< what had arrived at this side, and was not received, when it closed the
                                            ///< socket
  std::uint64_t received_at_close[2] = {};  ///< what had been received by then
  bool failed = false;                      ///< some call said so
  Way ways[2];
};

class Run {
 public:
  Run(const Plan& plan, bool verbose);
  ~Run();
  Outcome play();

 private:
  struct PlannedProcess {  ///< a process of the plan: the one that runs there now
    Process* process = nullptr;
    std::unique_ptr<Node> node;
    bool listening[3] = {};  ///< by kind of listener: it is open
    int scripts = 0;         ///< that run there
    int lives = 0;
  };

  // The run itself.
  void start(std::uint32_t process_index);
  void end(std::uint32_t process_index, bool by_crash);
  void leave(std::uint32_t process_index);
  void cancel(std::uint32_t process_index);
  void schedule_faults();
  void inflict(const PlannedFault& fault);
  void break_connections_of(std::uint32_t process_index);
  bool go_on();
  void settle();
  void check_attempt(const Attempt& attempt);
  void check_way(const Attempt& attempt, int way);
  void check_nodes();
  void end_all();

  void fail(const std::string& problem);
  void tell(const std::string& line);
  void script(std::string name, std::uint32_t process_index, std::function<void()> body);

  // Callers, each on a fiber of its own (callers.cpp, senders.cpp, receivers.cpp).
  struct End {
    Run& run;
    Node& node;
    Socket socket;
    Attempt& attempt;
    const PlannedConnection& planned;
    int side;  ///< 0: the client's
    std::uint32_t process_index;

    Way& out() const { return attempt.ways[side]; }
    Way& in() const { return attempt.ways[1 - side]; }
    const PlannedWay& planned_out() const { return planned.ways[side]; }
    const PlannedWay& planned_in() const { return planned.ways[1 - side]; }
  };
  struct Patience;
  class OwnSet;

  void listen_and_serve(std::uint32_t process_index, int kind);
  Socket listen(std::uint32_t process_index, int kind);
  bool accept_some(std::uint32_t process_index, int kind, Socket listener, bool hasty);
  /// Does it close its listeners, whether or not all that have come were accepted, and listen again.
  bool is_hasty(std::uint32_t process_index) const { return plan_.processes[process_index].hasty; }
  void visit(std::uint32_t planned);
  void knock(Node& node, const PlannedConnection& connection);
  std::uint64_t connect_ns() const;
  bool try_visit(std::uint32_t planned, std::uint64_t deadline_ns);
  void handle(std::uint32_t process_index, Socket socket, bool records);
  void check_link(const End& end);
  void converse(const End& end);
  void send_stream(const End& end);
  std::int64_t send_piece(const End& end, Manner manner, std::uint64_t offset, std::uint64_t bytes, bool last);
  void send_records(const End& end, int sender);
  std::int64_t send_record(const End& end, int sender, std::uint64_t bytes);
  void receive_all(const End& end, const bool& all_is_sent);
  std::int64_t receive_piece(const End& end, const OwnSet& set, Manner manner, std::byte* buffer, std::uint64_t bytes);
  std::int64_t wait_readable(const End& end, const OwnSet& set);
  bool is_readable(const End& end) const;
  Flow* check(const End& end, const std::byte* data, std::uint64_t bytes);
  void consume(const End& end, Flow& flow, std::uint64_t bytes);
  void check_not_over(const End& end, const char* call);
  std::shared_ptr<TcpSocket> connection_of(const End& end) const;
  void await_unseen_input(const End& end);
  int close(const End& end);
  bool must_be_told_of_loss(const End& end);
  bool may_end(const End& end, const char* call, std::int64_t result);
  /// Is this how a call ends where its proxy was denied something.
  bool is_shortage(std::int64_t result) const;
  template <class Call>
  std::int64_t timed(Node& node, const char* what, std::uint64_t duration_ns, Call call);
  bool needs_listener(std::uint32_t process_index, int kind) const;
  Endpoint endpoint_of(std::uint32_t process_index, int kind, LinkKind link, bool by_loopback) const;
  Endpoint name_of(const PlannedConnection& connection) const;

  const Plan& plan_;
  bool verbose_;
  Schedule schedule_;
  Kernel kernel_;
  Fabric fabric_;
  Nics cards_;
  std::vector<PlannedProcess> processes_;
  std::deque<Attempt> attempts_;
  int scripts_ = 0;
  int visitors_ = 0;
  std::string problem_;
  std::uint64_t last_fault_ns_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpusock::sim
