#pragma once
/// @file The messages about the rounds between a client and a server of gpusock-bench. They have a TCP connection of
/// their own, beside the measured connections.
///
/// The client opens each contestant (OpenMessage, ReadyMessage), then runs rounds: RoundMessage, StartedMessage, the
/// measured connections, AccountMessage. The server may answer each message with a RefusedMessage, and end the
/// connection. While it serves another client, it first sends a WaitMessage.
///
/// A message is a Header and a body, whose size depends on the kind. All numbers are little-endian, as both sides are
/// x86-64. The header's layout is the same in all versions. Neither side trusts the other: this code checks each
/// message that arrives before it is used.

#include "contestant.hpp"
#include "options.hpp"

#include <cstdint>
#include <string>
#include <type_traits>

namespace bench {

inline constexpr std::uint64_t kControlMagic = 0x68636e6562737067;  // "gpsbench"
inline constexpr std::uint32_t kControlVersion = 2;                 // increases with each change of the messages below
inline constexpr std::uint32_t kBodyBytesMax = 512;

enum class MessageKind : std::uint32_t { open = 1, ready, round, started, account, refused, wait };

struct Header {
  std::uint64_t magic = kControlMagic;
  std::uint32_t version = kControlVersion;
  std::uint32_t kind = 0;
  std::uint32_t body_bytes = 0;
  std::uint32_t reserved = 0;  ///< zero
};

/// The contestants that a server can answer.
enum class Entrant : std::uint32_t { gpusock, raw_tcp };
inline constexpr std::uint32_t kEntrants = 2;

/// Client: listen for this contestant.
struct OpenMessage {
  static constexpr MessageKind kKind = MessageKind::open;
  std::uint32_t entrant = 0;
  std::uint32_t question = 0;
  std::uint32_t link = 0;
  std::uint32_t between = 0;
  std::uint32_t group = 0;
  std::uint32_t block_threads = 0;
  std::uint32_t sockets_out = 0;
  std::uint32_t sockets_in = 0;
  std::uint64_t ring_bytes = 0;
};

/// Server: it listens at this port of the address that the client reached.
struct ReadyMessage {
  static constexpr MessageKind kKind = MessageKind::ready;
  std::uint32_t port = 0;
  std::uint32_t reserved = 0;
  char device[120] = {};  ///< the server's device; truncated, zero-padded
};

/// Client: answer this round of a contestant that is open.
struct RoundMessage {
  static constexpr MessageKind kKind = MessageKind::round;
  std::uint32_t entrant = 0;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
  std::uint64_t warmup = 0;
  std::uint64_t messages_max = 0;
  std::uint64_t duration_ns = 0;
  std::uint64_t limit_ns = 0;
  std::uint64_t token = 0;
};

/// Server: it has started to answer the round.
struct StartedMessage {
  static constexpr MessageKind kKind = MessageKind::started;
  std::uint64_t reserved = 0;
};

/// Server: how the round went on its side.
struct AccountMessage {
  static constexpr MessageKind kKind = MessageKind::account;
  std::uint32_t failed_step = 0;
  std::uint32_t reserved = 0;
  std::int64_t result = 0;
  std::uint64_t messages = 0;
  std::uint64_t wrong_words = 0;
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
};

/// Server: it refuses the request, and why. It is the server's last message.
struct RefusedMessage {
  static constexpr MessageKind kKind = MessageKind::refused;
  std::int32_t error = 0;  ///< errno
  std::uint32_t reserved = 0;
  char text[400] = {};  ///< truncated, zero-padded
};

/// Server: it serves another client; an answer comes later.
struct WaitMessage {
  static constexpr MessageKind kKind = MessageKind::wait;
  std::uint64_t reserved = 0;
};

template <class Message>
inline constexpr bool kIsMessage = std::is_trivially_copyable_v<Message> && sizeof(Message) % 8 == 0 &&
                                   sizeof(Message) <= kBodyBytesMax;
static_assert(kIsMessage<Header> && kIsMessage<OpenMessage> && kIsMessage<ReadyMessage> && kIsMessage<RoundMessage> &&
              kIsMessage<StartedMessage> && kIsMessage<AccountMessage> && kIsMessage<RefusedMessage> &&
              kIsMessage<WaitMessage>);

/// A message that arrived: its kind is one of MessageKind, and its size is that kind's.
struct Frame {
  MessageKind kind = MessageKind::wait;
  std::string body;
};

/// What is wrong with a header that came from `peer`, or nothing.
std::string problem_of(const Header& header, const std::string& peer);

/// The message as bytes.
std::string encode(MessageKind kind, const void* body, std::size_t bytes);
template <class Message>
std::string encode(const Message& message) {
  static_assert(kIsMessage<Message>);
  return encode(Message::kKind, &message, sizeof message);
}

/// Copies the frame's body to `body`. Throws Error: EPROTO if it is of another kind, the server's error if it refused.
void require_kind(const Frame& frame, MessageKind kind, const std::string& peer, void* body, std::size_t bytes);
template <class Message>
Message decode(const Frame& frame, const std::string& peer) {
  Message message;
  require_kind(frame, Message::kKind, peer, &message, sizeof message);
  return message;
}

/// Converts the contestant to open to a message, and a message to options. Throws Error (EINVAL) on an invalid message.
OpenMessage to_message(const BenchOptions& options, Entrant entrant);
BenchOptions to_options(const OpenMessage& message);

/// Likewise for a round of a contestant that was opened with these options.
RoundMessage to_message(const Job& job, Entrant entrant);
Job to_job(const RoundMessage& message, const BenchOptions& opened);

/// Likewise for the server's account. Throws Error (EPROTO).
AccountMessage to_message(const Answer& answer);
Answer to_answer(const AccountMessage& message, const std::string& peer);

/// Makes a refusal. require_kind() makes its text printable.
RefusedMessage to_refusal(int error, const std::string& text);

/// Copy text into a field of a message, truncated, and out of it, printable: bytes that could control a terminal become
/// '?'.
void put_text(const std::string& text, char* field, std::size_t bytes);
std::string printable(const char* field, std::size_t bytes);

}  // namespace bench
