#include "control_message.hpp"

#include "bounds.hpp"

#include <algorithm>
#include <bit>

namespace bench {
namespace {

constexpr std::uint64_t kForever = ~std::uint64_t{0};

/// Throws if a number or an enumerator of a message is outside its range.
template <class Value>
void require_range(const char* what, Value value, std::uint64_t min, std::uint64_t max) {
  const auto number = static_cast<std::uint64_t>(value);
  if (number >= min && number <= max) return;
  throw gpusock::Error(EINVAL, std::string(what) + " is " + std::to_string(number) + ", not " + std::to_string(min) +
                                   " to " + std::to_string(max));
}

std::uint64_t to_ns(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

void require_memory(std::uint64_t bytes_each, std::uint32_t sockets) {
  require_range("a side's messages and rings in bytes", 2 * bytes_each * sockets, 0, kSideBytesMax);
}

}  // namespace

std::string problem_of(const Header& header, const std::string& peer) {
  if (header.magic != kControlMagic) return peer + " is not gpusock-bench";
  if (header.version != kControlVersion) {
    return peer + " speaks version " + std::to_string(header.version) + " of this protocol, this program version " +
           std::to_string(kControlVersion) + ": run the same gpusock-bench on both sides";
  }
  const bool known = header.kind > 0 && header.kind <= static_cast<std::uint32_t>(MessageKind::wait);
  if (!known || header.body_bytes > kBodyBytesMax || header.reserved != 0)
    return peer + " sent a message that is not valid";
  return {};
}

std::string encode(MessageKind kind, const nlohmann::json& body) {
  const std::string text = body.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  Header header;
  header.kind = static_cast<std::uint32_t>(kind);
  header.body_bytes = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + text;
}

nlohmann::json parse_body(const std::string& body) {
  return nlohmann::json::parse(
      body, [](int, nlohmann::json::parse_event_t, const nlohmann::json& value) { return !value.is_number_float(); });
}

void require_kind(const Frame& frame, MessageKind kind, const std::string& peer) {
  if (frame.kind == kind) return;
  if (frame.kind != MessageKind::refused) {
    throw gpusock::Error(EPROTO, peer + " sent another message than the one that was due");
  }
  const auto refusal = decode<Refusal>(frame, MessageKind::refused, peer);
  const int error = refusal.error > 0 && refusal.error < 4096 ? refusal.error : EPROTO;
  throw gpusock::Error::with_cause(error, peer + " refuses: " + printable(refusal.text));
}

void require_valid(const OpenRequest& request) {
  const BenchOptions& options = request.options;
  require_range("the contestant", request.entrant, 0, kEntrants - 1);
  require_range("the question", options.question, 0, 2);
  require_range("the link", options.link, 1, gpusock::kLinkKinds - 1);
  require_range("the kind of callers", options.between, 0, 1);
  require_range("the kind of group", options.group, 0, 2);
  require_range("the number of threads of a block", options.block_threads, 1, kBlockThreadsMax);
  require_range("the number of sockets", options.sockets, 1, kSocketsMax);
  require_range("the direction", options.direction, 0, options.question == Question::bandwidth ? 2 : 0);
  if (options.between == Between::threads && options.group != GroupKind::thread) {
    throw gpusock::Error(EINVAL, "host threads call alone");
  }
  if (options.ring_bytes != 0) {
    require_range("the ring's capacity", options.ring_bytes, kRingBytesMin, kRingBytesMax);
    if (!std::has_single_bit(options.ring_bytes)) throw gpusock::Error(EINVAL, "the ring is no power of two");
  }
  require_memory(options.ring_bytes, options.sockets_in_all());
}

Job to_job(const RoundRequest& request, const BenchOptions& opened) {
  Job job = request.job;
  const bool endless = job.duration_ns == kForever;  // the round ends by the number of messages
  require_range("the size of a message", job.bytes, 1, kMessageBytesMax);
  require_range("the warm-up", job.warmup, 0, kWarmupMax);
  require_range("the number of messages", job.messages_max, 1, endless ? kIterationsMax : kForever);
  if (!endless) require_range("the duration", job.duration_ns, 1, to_ns(kDurationMax_s));
  require_range("the limit", job.limit_ns, 1, to_ns(kDurationMax_s + kLimitMax_s));
  require_memory(job.bytes + opened.ring_bytes, opened.sockets_in_all());
  job.question = opened.question;
  job.sockets_out = opened.sockets_out();
  job.sockets_in = opened.sockets_in();
  return job;
}

Answer to_answer(const Frame& frame, const std::string& peer) {
  const auto answer = decode<Answer>(frame, MessageKind::account, peer);
  const bool known = static_cast<std::uint32_t>(answer.account.failed_step) < kSteps && answer.account.result > -4096;
  if (!known) throw gpusock::Error(EPROTO, peer + " sent an account that is not valid");
  return answer;
}

std::string printable(std::string text) {
  if (text.size() > kTextBytesMax) text.resize(kTextBytesMax);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

}  // namespace bench
