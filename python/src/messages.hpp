#pragma once
/// @file Messages between pairs of ranks, over gpusock's sockets: send, receive, and what collectives are made of that
/// no schedule of a group does.

#include "gpusock/gpusock.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpusock_torch {

/// What a message is for. A message goes to the receive call that gives the same kind of number and the same number.
struct MessageKey {
  std::uint32_t operation = 0;  ///< 0: `number` is the tag of a send. Else the number of a collective (c10d::OpType +
                                ///< 1)
  std::uint64_t number = 0;     ///< the tag, or which round of messages of the group this is
};

/// The most bytes of messages that one rank keeps because no receive call has asked for them yet. Beyond that it reads
/// no more from the sender until one does.
inline constexpr std::size_t kUnaskedBytesMax = 64 << 20;

/// How the sending or the receiving of a message has ended.
struct MessageResult {
  std::string error;  ///< empty: it is done
  int peer = -1;      ///< the rank that has sent the message
  int lost = -1;      ///< the rank that was lost, if the error is that
};

/// Sends and receives messages between this rank and all others. A thread of its own moves them. It starts with the
/// first message, and so do connections: one for each direction between two ranks that exchange messages.
///
/// Sends to a rank arrive in their order. A message that no call has asked for yet is kept. Any thread may call.
class Messages {
 public:
  /// Is called once, on the thread that moves messages (or the thread that ends this object).
  using Done = std::function<void(const MessageResult&)>;
  using Id = std::uint64_t;
  static constexpr int kAnyRank = -1;

  /// Listens at `at`, for `ranks` ranks. The context outlives this object. Throws gpusock::Error.
  Messages(gpusock::Context& context, int rank, int ranks, const gpusock::Endpoint& at);
  /// Ends all messages that are under way: their calls fail.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Where this rank listens.
  const gpusock::Endpoint& address() const { return address_; }
  /// Where all ranks listen, by rank. Call it before the first message.
  void set_addresses(std::vector<gpusock::Endpoint> addresses) { addresses_ = std::move(addresses); }

  /// Sends `bytes` bytes, which stay as they are until `done` is called: when all of them are in the connection's ring.
  Id send(int to, MessageKey key, const void* data, std::size_t bytes, std::uint64_t timeout_ns, Done done);
  /// Receives a message of exactly `bytes` bytes. `from`: a rank, or kAnyRank.
  Id receive(int from, MessageKey key, void* data, std::size_t bytes, std::uint64_t timeout_ns, Done done);
  /// Ends a message's call with this error, unless it has ended. A message that is half moved ends its connection, too.
  void cancel(Id id, const std::string& why);

  /// Tells all ranks to which there are connections that collectives cannot go on. `lost`: the rank that was lost, or
  /// -1. Returns when that is sent, or after a second.
  void tell(int lost);
  /// Returns what this rank has told, if it has told that collectives cannot go on. Waits for that up to `wait_ns`.
  std::optional<MessageResult> heard_from(int rank, std::uint64_t wait_ns);
  /// Ends all calls with this error, now and later.
  void end(const std::string& why);

 private:
  struct Header;
  struct Call;
  struct Kept;
  struct Incoming;
  struct Outgoing;
  using Calls = std::list<Call>;

  Id post(Call call);
  void run();
  void take_posts();
  void begin(Call call);
  void begin_send(Call call);
  void begin_receive(Call call);
  bool take_kept(Call& call);
  void apply_cancel(Id id, const std::string& why);
  void say_last_words(int lost);
  std::optional<MessageResult> refusal(const Call& call) const;
  void connect(int to);
  void progress(Outgoing& out, int to);
  void end_outgoing(int to, const std::string& why, bool gone);
  void accept();
  void progress(Incoming& in);
  bool read_header(Incoming& in);
  void begin_payload(Incoming& in);
  void end_payload(Incoming& in);
  bool may_read(const Incoming& in) const;
  void end_incoming(Incoming& in, const std::string& why);
  void hear_last_words(int from, int lost);
  void fail_receives(int from, const MessageResult& why, bool collectives_only);
  void fail_orphans(int to, const MessageResult& why, bool collectives_only);
  void check_suspects();
  void check_deadlines();
  std::uint64_t next_event_ns() const;
  void finish(Call& call, MessageResult result);
  void end_all(const std::string& why);
  bool has_incoming(int from) const;
  bool wants_from(int from) const;

  gpusock::Context& context_;
  gpusock::Net net_;
  int rank_, ranks_;
  gpusock::Socket listener_ = -1;
  gpusock::Endpoint address_;
  std::vector<gpusock::Endpoint> addresses_;

  std::mutex mutex_;  // of the next ones
  std::vector<Call> posted_;
  std::vector<std::pair<Id, std::string>> cancelled_;
  std::vector<int> telling_;
  std::uint64_t asked_to_tell_ = 0, told_all_ = 0;
  std::map<int, MessageResult> heard_;  // by rank
  std::condition_variable changed_;     // the two lines above
  std::string ending_;                  // why, once it ends
  Id last_id_ = 0;
  gpusock::PollSet set_ = -1;
  std::thread thread_;

  // Of the thread.
  Calls receives_;        // in the order of their calls
  std::list<Kept> kept_;  // messages that no call has asked for
  std::list<Incoming> incoming_;
  Calls orphans_;                          // sends to ranks that have ended, until it is known why
  std::map<int, Outgoing> outgoing_;       // by rank
  std::vector<std::string> gone_;          // by rank: why nothing more comes from it; empty: it may
  std::vector<std::uint64_t> suspect_ns_;  // by rank: since when its end is known, but maybe not its last messages; 0:
                                           // never
  std::optional<MessageResult> told_;      // collectives cannot go on: a rank has said so
};

}  // namespace gpusock_torch
