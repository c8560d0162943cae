#include "messages.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace gpusock_torch {
namespace {

using gpusock::Deadline;
using gpusock::this_thread;

constexpr std::uint32_t kMagic = 0x67737074;                             // "gspt"
constexpr std::uint32_t kHello = 0xffff'fffe, kLastWords = 0xffff'ffff;  // values of Header::operation
constexpr std::uint64_t kListenerTag = ~std::uint64_t{0};
constexpr std::uint64_t kOutgoingTag = std::uint64_t{1} << 32;  // and the rank; the tags of incoming connections are
                                                                // sockets
/// How long a rank that has ended may still have messages on their way.
constexpr std::uint64_t kSuspectNs = 1'000'000'000;
constexpr std::uint64_t kConnectNs = 10'000'000'000;
constexpr int kBacklog = 512;

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

std::string text_of(std::int64_t error) { return std::strerror(static_cast<int>(-error)); }

std::string lost_text(int rank, const std::string& why) { return "lost " + name_of(rank) + ": " + why; }

std::string seconds(std::uint64_t ns) {
  const double s = static_cast<double>(ns) * 1e-9;
  std::string text = std::to_string(s);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

struct Messages::Header {
  std::uint32_t magic = kMagic;
  std::uint32_t operation = 0;
  std::uint64_t number = 0;  // kHello: the sender's rank; kLastWords: the lost rank + 1, or 0
  std::uint64_t bytes = 0;
};

struct Messages::Call {
  Id id = 0;
  bool sends = false;
  int peer = kAnyRank;
  MessageKey key;
  char* data = nullptr;  // a send only reads it
  std::size_t bytes = 0;
  std::uint64_t timeout_ns = 0, until_ns = 0;
  Done done;

  bool takes(int from, const Header& header) const {
    const bool same_kind = (key.operation == 0) == (header.operation == 0);
    return !sends && (peer == kAnyRank || peer == from) && same_kind && key.number == header.number;
  }
  std::string what() const {
    if (key.operation != 0) return "a collective operation";
    return (sends ? "a send with tag " : "a receive with tag ") + std::to_string(key.number);
  }
};

/// A message that no call has asked for yet.
struct Messages::Kept {
  int from;
  Header header;
  std::vector<char> data;
};

struct Messages::Incoming {
  gpusock::Socket socket = -1;
  int peer = -1;  // not known before its hello
  Header header;
  std::size_t header_got = 0;
  bool in_payload = false;
  std::size_t got = 0;
  std::optional<Call> call;  // whose message this is
  std::vector<char> data;    // else here
  std::size_t kept_bytes = 0;
  bool is_watched = true;
  bool has_ended = false;
};

struct Messages::Outgoing {
  gpusock::Socket socket = -1;
  std::deque<std::pair<Header, Call>> queue;  // last words have no call (id 0)
  std::size_t sent = 0;                       // of the first one: header and data
  bool waits_for_room = false;
};

Messages::Messages(gpusock::Context& context, int rank, int ranks, const gpusock::Endpoint& at)
    : context_(context),
      net_(context.net()),
      rank_(rank),
      ranks_(ranks),
      gone_(static_cast<std::size_t>(ranks)),
      suspect_ns_(static_cast<std::size_t>(ranks)) {
  listener_ = net_.listen(this_thread(), at, kBacklog);
  if (listener_ < 0) throw gpusock::Error(-listener_, "listening for messages of other ranks at " + at.to_string());
  net_.getsockname(listener_, address_);
  address_.link = at.link;
  address_.ring_bytes = at.ring_bytes;
}

Messages::~Messages() {
  end("the group was destroyed");
  if (thread_.joinable()) thread_.join();
  for (Incoming& in : incoming_) net_.close(this_thread(), in.socket);
  for (auto& [to, out] : outgoing_) {
    if (out.socket >= 0) net_.close(this_thread(), out.socket);
  }
  net_.close(this_thread(), listener_);
  if (set_ >= 0) net_.close_set(this_thread(), set_);
}

Messages::Id Messages::send(int to, MessageKey key, const void* data, std::size_t bytes, std::uint64_t timeout_ns,
                            Done done) {
  Call call;
  call.sends = true;
  call.peer = to;
  call.key = key;
  call.data = static_cast<char*>(const_cast<void*>(data));
  call.bytes = bytes;
  call.timeout_ns = timeout_ns;
  call.done = std::move(done);
  return post(std::move(call));
}

Messages::Id Messages::receive(int from, MessageKey key, void* data, std::size_t bytes, std::uint64_t timeout_ns,
                               Done done) {
  Call call;
  call.peer = from;
  call.key = key;
  call.data = static_cast<char*>(data);
  call.bytes = bytes;
  call.timeout_ns = timeout_ns;
  call.done = std::move(done);
  return post(std::move(call));
}

Messages::Id Messages::post(Call call) {
  const std::uint64_t now = gpusock::clock_ns();
  call.until_ns = call.timeout_ns > ~now ? ~std::uint64_t{0} : now + call.timeout_ns;
  std::string refused;
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = call.id = ++last_id_;
    refused = ending_;
    if (refused.empty()) {
      if (!thread_.joinable()) {
        set_ = net_.open_set(this_thread());
        if (set_ < 0) throw gpusock::Error(-set_, "opening a poll set for messages between ranks");
        thread_ = std::thread([this] { run(); });
      }
      posted_.push_back(std::move(call));
      net_.wake(this_thread(), set_);
    }
  }
  if (!refused.empty()) finish(call, {refused, -1, -1});
  return id;
}

void Messages::cancel(Id id, const std::string& why) {
  const std::lock_guard lock(mutex_);
  cancelled_.emplace_back(id, why);
  if (set_ >= 0) net_.wake(this_thread(), set_);
}

void Messages::tell(int lost) {
  std::unique_lock lock(mutex_);
  if (set_ < 0 || !ending_.empty()) return;
  telling_.push_back(lost);
  const std::uint64_t number = ++asked_to_tell_;
  net_.wake(this_thread(), set_);
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return told_all_ >= number || !ending_.empty(); });
}

std::optional<MessageResult> Messages::heard_from(int rank, std::uint64_t wait_ns) {
  std::unique_lock lock(mutex_);
  if (set_ < 0) return std::nullopt;
  changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), [&] { return heard_.count(rank) != 0; });
  const auto heard = heard_.find(rank);
  return heard == heard_.end() ? std::nullopt : std::optional(heard->second);
}

void Messages::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (ending_.empty()) ending_ = why;
  if (set_ >= 0) net_.wake(this_thread(), set_);
  changed_.notify_all();
}

void Messages::run() {
  net_.watch(this_thread(), set_, listener_, gpusock::kPollIn, kListenerTag);
  constexpr int kEvents = 64;
  gpusock::PollEvent events[kEvents];
  while (true) {
    std::string why;
    {
      const std::lock_guard lock(mutex_);
      why = ending_;
    }
    if (!why.empty()) return end_all(why);
    take_posts();
    const std::uint64_t now = gpusock::clock_ns(), next = next_event_ns();
    const Deadline deadline = next == ~std::uint64_t{0} ? Deadline::never()
                              : next <= now             ? Deadline::now()
                                                        : Deadline::after_ns(next - now);
    const int count = net_.wait(this_thread(), set_, events, kEvents, deadline);
    if (count < 0) {
      end(count == -ECANCELED ? "the group was aborted" : "waiting for messages: " + text_of(count));
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const gpusock::PollEvent& event = events[i];
      if ((event.events & gpusock::kPollWake) != 0) continue;
      if (event.tag == kListenerTag) {
        accept();
      } else if (event.tag >= kOutgoingTag) {
        const int to = static_cast<int>(event.tag - kOutgoingTag);
        const auto out = outgoing_.find(to);
        if (out == outgoing_.end() || out->second.socket != event.socket) continue;
        if ((event.events & (gpusock::kPollErr | gpusock::kPollHup)) != 0) {
          end_outgoing(to, "it ended its connection", true);
        } else {
          progress(out->second, to);
        }
      } else {
        for (Incoming& in : incoming_) {
          if (in.socket == event.socket && !in.has_ended) progress(in);
        }
      }
    }
    std::erase_if(incoming_, [](const Incoming& in) { return in.has_ended; });
    check_suspects();
    check_deadlines();
  }
}

void Messages::take_posts() {
  std::vector<Call> calls;
  std::vector<std::pair<Id, std::string>> cancelled;
  std::vector<int> telling;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
    cancelled.swap(cancelled_);
    telling.swap(telling_);
  }
  for (Call& call : calls) begin(std::move(call));
  for (const auto& [id, why] : cancelled) apply_cancel(id, why);
  for (const int lost : telling) say_last_words(lost);
  if (!telling.empty()) {
    const std::lock_guard lock(mutex_);
    told_all_ += telling.size();
    changed_.notify_all();
  }
  std::erase_if(incoming_, [](const Incoming& in) { return in.has_ended; });
}

void Messages::begin(Call call) {
  if (call.sends) {
    begin_send(std::move(call));
  } else {
    begin_receive(std::move(call));
  }
}

std::optional<MessageResult> Messages::refusal(const Call& call) const {
  if (call.key.operation != 0 && told_) return told_;
  if (call.peer == kAnyRank) return std::nullopt;
  const std::string& why = gone_[static_cast<std::size_t>(call.peer)];
  if (why.empty()) return std::nullopt;
  return MessageResult{lost_text(call.peer, why), -1, call.peer};
}

void Messages::begin_send(Call call) {
  if (auto refused = refusal(call)) return finish(call, *refused);
  const int to = call.peer;
  Header header;
  header.operation = call.key.operation;
  header.number = call.key.number;
  header.bytes = call.bytes;
  outgoing_[to].queue.emplace_back(header, std::move(call));
  connect(to);
  const auto out = outgoing_.find(to);
  if (out != outgoing_.end() && out->second.socket >= 0 && !out->second.waits_for_room) progress(out->second, to);
}

void Messages::begin_receive(Call call) {
  if (take_kept(call)) return;
  if (auto refused = refusal(call)) return finish(call, *refused);
  const int from = call.peer;
  receives_.push_back(std::move(call));
  // The connection to the sender shows its end, also if it has sent nothing yet.
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_ && (from == kAnyRank || from == peer)) connect(peer);
  }
  for (Incoming& in : incoming_) {
    if (!in.has_ended && !in.is_watched && may_read(in)) {
      net_.watch(this_thread(), set_, in.socket, gpusock::kPollIn, static_cast<std::uint64_t>(in.socket));
      in.is_watched = true;
    }
  }
}

/// True if the message was there already; then the call has ended.
bool Messages::take_kept(Call& call) {
  const auto kept = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const Kept& message) { return call.takes(message.from, message.header); });
  if (kept == kept_.end()) return false;
  for (Incoming& in : incoming_) {
    if (in.peer == kept->from) in.kept_bytes -= kept->data.size();
  }
  MessageResult result;
  result.peer = kept->from;
  if (kept->header.operation != call.key.operation) {
    result.error = name_of(kept->from) +
                   " has started another collective operation: all ranks start the same ones in the same order";
  } else if (kept->data.size() != call.bytes) {
    result.error = name_of(kept->from) + " has sent " + std::to_string(kept->data.size()) + " bytes, " +
                   std::to_string(call.bytes) + " are expected: give tensors of the same size on both ranks";
  } else if (call.bytes != 0) {
    std::memcpy(call.data, kept->data.data(), call.bytes);
  }
  kept_.erase(kept);
  finish(call, result);
  return true;
}

void Messages::apply_cancel(Id id, const std::string& why) {
  const auto receive = std::find_if(receives_.begin(), receives_.end(),
                                    [&](const Call& call) { return call.id == id; });
  if (receive != receives_.end()) {
    Call call = std::move(*receive);
    receives_.erase(receive);
    return finish(call, {why, -1, -1});
  }
  for (Incoming& in : incoming_) {
    if (in.call && in.call->id == id) {
      Call call = std::move(*in.call);
      in.call.reset();
      finish(call, {why, -1, -1});
      return end_incoming(in, "a message from it was cut off here");
    }
  }
  const auto orphan = std::find_if(orphans_.begin(), orphans_.end(), [&](const Call& call) { return call.id == id; });
  if (orphan != orphans_.end()) {
    Call call = std::move(*orphan);
    orphans_.erase(orphan);
    return finish(call, {why, -1, -1});
  }
  for (auto& [to, out] : outgoing_) {
    for (auto entry = out.queue.begin(); entry != out.queue.end(); ++entry) {
      if (entry->second.id != id) continue;
      Call call = std::move(entry->second);
      const bool half_sent = entry == out.queue.begin() && out.sent != 0;
      out.queue.erase(entry);
      finish(call, {why, -1, -1});
      if (half_sent) end_outgoing(to, "a message to it was cut off here", false);
      return;
    }
  }
}

void Messages::say_last_words(int lost) {
  Header header;
  header.operation = kLastWords;
  header.number = static_cast<std::uint64_t>(lost + 1);
  std::vector<int> ranks;
  for (const auto& [to, out] : outgoing_) ranks.push_back(to);
  for (const int to : ranks) {
    Outgoing& out = outgoing_[to];
    if (out.socket < 0) continue;
    out.queue.emplace_back(header, Call());
    progress(out, to);
  }
}

void Messages::connect(int to) {
  if (!gone_[static_cast<std::size_t>(to)].empty()) return;
  Outgoing& out = outgoing_[to];
  if (out.socket >= 0) return;
  const gpusock::Socket socket = net_.connect(this_thread(), addresses_[static_cast<std::size_t>(to)],
                                              Deadline::after_ns(kConnectNs));
  if (socket < 0) return end_outgoing(to, "connecting to it: " + text_of(socket), true);
  out.socket = socket;
  Header hello;
  hello.operation = kHello;
  hello.number = static_cast<std::uint64_t>(rank_);
  out.queue.emplace_front(hello, Call());
  net_.watch(this_thread(), set_, socket, 0, kOutgoingTag + static_cast<std::uint64_t>(to));
  progress(out, to);
}

void Messages::progress(Outgoing& out, int to) {
  while (!out.queue.empty()) {
    auto& [header, call] = out.queue.front();
    while (out.sent < sizeof header + call.bytes) {
      const bool in_header = out.sent < sizeof header;
      const char* const from = in_header ? reinterpret_cast<const char*>(&header) + out.sent
                                         : call.data + (out.sent - sizeof header);
      const std::size_t left = in_header ? sizeof header - out.sent : sizeof header + call.bytes - out.sent;
      const int flags = gpusock::kDontWait | (in_header && call.bytes != 0 ? gpusock::kMore : 0);
      const std::int64_t sent = net_.send(this_thread(), out.socket, from, left, flags);
      if (sent == -EAGAIN) {
        if (!out.waits_for_room) {
          net_.watch(this_thread(), set_, out.socket, gpusock::kPollOut, kOutgoingTag + static_cast<std::uint64_t>(to));
        }
        out.waits_for_room = true;
        return;
      }
      if (sent < 0) return end_outgoing(to, "it ended its connection (" + text_of(sent) + ")", true);
      out.sent += static_cast<std::size_t>(sent);
    }
    Call ended = std::move(call);
    out.queue.pop_front();
    out.sent = 0;
    if (ended.done) finish(ended, {"", -1, -1});
  }
  if (out.waits_for_room) {
    net_.watch(this_thread(), set_, out.socket, 0, kOutgoingTag + static_cast<std::uint64_t>(to));
    out.waits_for_room = false;
  }
}

/// `gone`: the other rank has ended, as far as this connection shows.
void Messages::end_outgoing(int to, const std::string& why, bool gone) {
  Outgoing& out = outgoing_[to];
  if (out.socket >= 0) net_.close(this_thread(), out.socket);
  auto queue = std::move(out.queue);
  outgoing_.erase(to);
  // Messages that this rank has sent before it ended may still be on their way. They have their own connection.
  std::uint64_t& suspect = suspect_ns_[static_cast<std::size_t>(to)];
  if (gone && suspect == 0) suspect = gpusock::clock_ns();
  if (!gone) gone_[static_cast<std::size_t>(to)] = why;
  for (auto& [header, call] : queue) {
    if (!call.done) continue;
    if (gone) {
      orphans_.push_back(std::move(call));  // its last words may be on their way, too
    } else {
      finish(call, {lost_text(to, why), -1, to});
    }
  }
}

void Messages::fail_orphans(int to, const MessageResult& why, bool collectives_only) {
  std::vector<Call> failed;
  for (auto call = orphans_.begin(); call != orphans_.end();) {
    if (call->peer == to && (!collectives_only || call->key.operation != 0)) {
      failed.push_back(std::move(*call));
      call = orphans_.erase(call);
    } else {
      ++call;
    }
  }
  for (Call& call : failed) finish(call, why);
}

void Messages::accept() {
  while (true) {
    const gpusock::Socket socket = net_.accept(this_thread(), listener_, Deadline::now());
    if (socket < 0) return;
    incoming_.emplace_back().socket = socket;
    net_.watch(this_thread(), set_, socket, gpusock::kPollIn, static_cast<std::uint64_t>(socket));
  }
}

bool Messages::may_read(const Incoming& in) const {
  return in.in_payload || in.peer < 0 || in.kept_bytes < kUnaskedBytesMax || wants_from(in.peer);
}

bool Messages::wants_from(int from) const {
  return std::any_of(receives_.begin(), receives_.end(),
                     [&](const Call& call) { return call.peer == kAnyRank || call.peer == from; });
}

bool Messages::has_incoming(int from) const {
  // One whose hello has not come yet may be of this rank.
  return std::any_of(incoming_.begin(), incoming_.end(),
                     [&](const Incoming& in) { return !in.has_ended && (in.peer == from || in.peer < 0); });
}

void Messages::progress(Incoming& in) {
  while (!in.has_ended) {
    if (!may_read(in)) {
      if (in.is_watched) net_.unwatch(this_thread(), set_, in.socket);
      in.is_watched = false;
      return;
    }
    if (!in.in_payload) {
      if (!read_header(in)) return;
      continue;
    }
    if (in.got < in.header.bytes) {
      char* const to = (in.call ? in.call->data : in.data.data()) + in.got;
      const std::int64_t got = net_.recv(this_thread(), in.socket, to, in.header.bytes - in.got, gpusock::kDontWait);
      if (got == -EAGAIN) return;
      if (got <= 0) return end_incoming(in, "it ended its connection within a message");
      in.got += static_cast<std::size_t>(got);
    }
    if (in.got == in.header.bytes) end_payload(in);
  }
}

/// True if a whole header has come; then its payload has begun, if it has one.
bool Messages::read_header(Incoming& in) {
  const std::int64_t got = net_.recv(this_thread(), in.socket, reinterpret_cast<char*>(&in.header) + in.header_got,
                                     sizeof in.header - in.header_got, gpusock::kDontWait);
  if (got == -EAGAIN) return false;
  if (got <= 0) {
    end_incoming(in, "it ended its connection");
    return false;
  }
  in.header_got += static_cast<std::size_t>(got);
  if (in.header_got < sizeof in.header) return true;
  in.header_got = 0;
  const bool is_hello = in.header.operation == kHello;
  if (in.header.magic != kMagic || is_hello != (in.peer < 0) ||
      (is_hello && in.header.number >= static_cast<std::uint64_t>(ranks_))) {
    end_incoming(in, "it does not speak as a rank of this group");
    return false;
  }
  if (is_hello) {
    in.peer = static_cast<int>(in.header.number);
  } else if (in.header.operation == kLastWords) {
    hear_last_words(in.peer, static_cast<int>(in.header.number) - 1);
  } else {
    begin_payload(in);
  }
  return true;
}

void Messages::begin_payload(Incoming& in) {
  in.in_payload = true;
  in.got = 0;
  const auto call = std::find_if(receives_.begin(), receives_.end(),
                                 [&](const Call& one) { return one.takes(in.peer, in.header); });
  const bool fits = call != receives_.end() && call->bytes == in.header.bytes &&
                    call->key.operation == in.header.operation;
  if (fits) {
    in.call = std::move(*call);
    receives_.erase(call);
    return;
  }
  try {
    in.data.resize(in.header.bytes);
  } catch (const std::exception&) {  // bad_alloc, length_error
    end_incoming(in, "it has sent " + std::to_string(in.header.bytes) +
                         " bytes that no call asks for, more than there is memory");
  }
}

void Messages::end_payload(Incoming& in) {
  in.in_payload = false;
  if (in.call) {
    Call call = std::move(*in.call);
    in.call.reset();
    return finish(call, {"", in.peer, -1});
  }
  in.kept_bytes += in.data.size();
  kept_.push_back({in.peer, in.header, std::move(in.data)});
  in.data = {};
  // A call may have come for it meanwhile, or one whose size or operation is another.
  const auto call = std::find_if(receives_.begin(), receives_.end(),
                                 [&](const Call& one) { return one.takes(in.peer, kept_.back().header); });
  if (call == receives_.end()) return;
  Call taken = std::move(*call);
  receives_.erase(call);
  take_kept(taken);
}

void Messages::end_incoming(Incoming& in, const std::string& why) {
  net_.close(this_thread(), in.socket);
  in.has_ended = true;
  if (in.call) {
    Call call = std::move(*in.call);
    in.call.reset();
    finish(call, {lost_text(in.peer, why), -1, in.peer});
  }
  if (in.peer < 0) return;
  gone_[static_cast<std::size_t>(in.peer)] = why;
  fail_receives(in.peer, {lost_text(in.peer, why), -1, in.peer}, false);
  fail_orphans(in.peer, {lost_text(in.peer, why), -1, in.peer}, false);
}

void Messages::hear_last_words(int from, int lost) {
  if (lost == rank_) lost = -1;
  MessageResult result;
  result.lost = lost;
  result.error = lost < 0 ? name_of(from) + " cannot go on, and told so"
                          : lost_text(lost, name_of(from) + " has lost it, and told so");
  if (!told_) told_ = result;
  if (lost >= 0) {
    const std::lock_guard lock(mutex_);
    heard_.emplace(from, result);
    changed_.notify_all();
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    fail_receives(peer, *told_, true);
    fail_orphans(peer, *told_, true);
  }
}

void Messages::fail_receives(int from, const MessageResult& why, bool collectives_only) {
  std::vector<Call> failed;
  const bool all_gone = [&] {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank_ && gone_[static_cast<std::size_t>(peer)].empty()) return false;
    }
    return true;
  }();
  for (auto call = receives_.begin(); call != receives_.end();) {
    const bool is_of = call->peer == from || (call->peer == kAnyRank && all_gone);
    if (is_of && (!collectives_only || call->key.operation != 0)) {
      failed.push_back(std::move(*call));
      call = receives_.erase(call);
    } else {
      ++call;
    }
  }
  for (Call& call : failed) finish(call, why);
}

void Messages::check_suspects() {
  const std::uint64_t now = gpusock::clock_ns();
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (suspect_ns_[index] == 0 || now < suspect_ns_[index] + kSuspectNs) continue;
    fail_orphans(peer, {lost_text(peer, "it ended its connection"), -1, peer}, false);
    if (!gone_[index].empty() || has_incoming(peer)) continue;
    gone_[index] = "it ended its connection";
    fail_receives(peer, {lost_text(peer, gone_[index]), -1, peer}, false);
  }
}

void Messages::check_deadlines() {
  const std::uint64_t now = gpusock::clock_ns();
  std::vector<std::pair<Id, std::string>> late;
  const auto check = [&](const Call& call) {
    if (call.id == 0 || call.until_ns > now) return;
    const std::string who = call.peer == kAnyRank ? "no rank" : name_of(call.peer);
    const std::string said = call.sends ? who + " has not taken " : who + " has not sent ";
    late.emplace_back(
        call.id, "Timed out after " + seconds(call.timeout_ns) + ": " + said + "what " + call.what() + " waits for");
  };
  for (const Call& call : receives_) check(call);
  for (const Incoming& in : incoming_) {
    if (in.call) check(*in.call);
  }
  for (const auto& [to, out] : outgoing_) {
    for (const auto& [header, call] : out.queue) check(call);
  }
  for (const auto& [id, why] : late) apply_cancel(id, why);
  std::erase_if(incoming_, [](const Incoming& in) { return in.has_ended; });
}

std::uint64_t Messages::next_event_ns() const {
  std::uint64_t next = ~std::uint64_t{0};
  const auto take = [&](const Call& call) {
    if (call.id != 0) next = std::min(next, call.until_ns);
  };
  for (const Call& call : receives_) take(call);
  for (const Incoming& in : incoming_) {
    if (in.call) take(*in.call);
  }
  for (const auto& [to, out] : outgoing_) {
    for (const auto& [header, call] : out.queue) take(call);
  }
  for (const Call& call : orphans_) {
    next = std::min(next, suspect_ns_[static_cast<std::size_t>(call.peer)] + kSuspectNs);
  }
  for (std::size_t peer = 0; peer < suspect_ns_.size(); ++peer) {
    if (suspect_ns_[peer] == 0 || !gone_[peer].empty()) continue;
    // If a connection is open, its own end comes as an event.
    if (!has_incoming(static_cast<int>(peer))) next = std::min(next, suspect_ns_[peer] + kSuspectNs);
  }
  return next;
}

void Messages::finish(Call& call, MessageResult result) {
  const Done done = std::move(call.done);
  call.done = nullptr;
  if (done) done(result);
}

void Messages::end_all(const std::string& why) {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
  }
  for (Call& call : receives_) calls.push_back(std::move(call));
  receives_.clear();
  for (Incoming& in : incoming_) {
    if (in.call) calls.push_back(std::move(*in.call));
    in.call.reset();
  }
  for (auto& [to, out] : outgoing_) {
    for (auto& [header, call] : out.queue) calls.push_back(std::move(call));
    out.queue.clear();
  }
  for (Call& call : orphans_) calls.push_back(std::move(call));
  orphans_.clear();
  for (Call& call : calls) finish(call, {why, -1, -1});
}

}  // namespace gpusock_torch
