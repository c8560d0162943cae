#pragma once
/// @file The messages about the rounds between a client and a server of gpusock-bench. They have a TCP connection of
/// their own, beside the measured connections.
///
/// The client opens each contestant, then runs rounds: round, started, the measured connections, account. The server
/// may answer each message with a refusal, and end the connection. While it serves another client, it first sends wait.
///
/// A message is a Header and a JSON object. Neither side trusts the other: this code checks each message that arrives
/// before it is used.

#include "contestant.hpp"
#include "options.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdint>
#include <string>

namespace bench {

inline constexpr std::uint64_t kControlMagic = 0x68636e6562737067;  // "gpsbench"
inline constexpr std::uint32_t kControlVersion = 4;                 // increases with each change of the messages below
inline constexpr std::uint32_t kBodyBytesMax = 1024;
inline constexpr std::size_t kTextBytesMax = 400;  // of a text in a message, which takes up to twice as many

/// What a message says, and which struct its body is. Without a struct the body is ignored.
enum class MessageKind : std::uint32_t {
  open = 1,  ///< client: listen for this contestant (OpenRequest)
  ready,     ///< server: where it listens (Ready)
  round,     ///< client: answer this round of a contestant that is open (RoundRequest)
  started,   ///< server: it has started to answer the round
  account,   ///< server: how the round went on its side (Answer)
  refused,   ///< server: it refuses the request, and why; it is the server's last message (Refusal)
  wait,      ///< server: it serves another client; an answer comes later
};

/// Its layout is the same in all versions. Its numbers are little-endian, as both sides are x86-64.
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

struct OpenRequest {
  Entrant entrant{};
  BenchOptions options;
};
struct Ready {
  std::uint16_t port = 0;  ///< of the address that the client reached
  std::string device;      ///< the server's
};
struct RoundRequest {
  Entrant entrant{};
  Job job;
};
struct Refusal {
  int error = 0;  ///< errno
  std::string text;
};

// The members that are sent: of a message, and of the bench's own types in it.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchOptions, question, link, between, group, block_threads, sockets, direction,
                                   ring_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, bytes, warmup, messages_max, duration_ns, limit_ns, token)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Account, failed_step, result, messages, wrong_words)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OpenRequest, entrant, options)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ready, port, device)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RoundRequest, entrant, job)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, account, proxy_steps, proxy_wakeups)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Refusal, error, text)

/// A message that arrived: its kind is one of MessageKind.
struct Frame {
  MessageKind kind = MessageKind::wait;
  std::string body;
};

/// What is wrong with a header that came from `peer`, or nothing.
std::string problem_of(const Header& header, const std::string& peer);

/// A message as bytes, header included.
std::string encode(MessageKind kind, const nlohmann::json& body);

/// Throws Error: EPROTO if the frame is of another kind, the server's error if it refused.
void require_kind(const Frame& frame, MessageKind kind, const std::string& peer);

/// Parses a body. The result has no fractions: converting one to an integer could overflow.
nlohmann::json parse_body(const std::string& body);

/// Converts a frame's body. Throws Error: as require_kind(); EPROTO if a member is missing, unknown, of another type or
/// too large for its type.
template <class Body>
Body decode(const Frame& frame, MessageKind kind, const std::string& peer) {
  require_kind(frame, kind, peer);
  try {
    const nlohmann::json json = parse_body(frame.body);
    auto body = json.get<Body>();
    // get() accepts true for 1, wraps numbers and skips unknown members. Such a body differs when it is written again.
    if (nlohmann::json(body).dump() == json.dump()) return body;
  } catch (const nlohmann::json::exception&) {  // reported below
  }
  throw gpusock::Error(EPROTO, peer + " sent a message that is not valid");
}

/// Throws Error (EINVAL) if what a client asks for is out of bounds.
void require_valid(const OpenRequest& request);

/// The round's job for a contestant that was opened with these options. Throws as require_valid().
Job to_job(const RoundRequest& request, const BenchOptions& opened);

/// The server's account. Throws as decode(), and Error (EPROTO) if it is out of bounds.
Answer to_answer(const Frame& frame, const std::string& peer);

/// Makes a text of a message printable: it is truncated, and bytes that could control a terminal become '?'. The sender
/// calls it so that the text fits, the receiver because it does not trust the sender.
std::string printable(std::string text);

}  // namespace bench
