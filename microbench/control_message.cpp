#include "control_message.hpp"

#include "bounds.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace bench {
namespace {

constexpr std::uint64_t kForever = ~std::uint64_t{0};

std::size_t size_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::open:
      return sizeof(OpenMessage);
    case MessageKind::ready:
      return sizeof(ReadyMessage);
    case MessageKind::round:
      return sizeof(RoundMessage);
    case MessageKind::started:
      return sizeof(StartedMessage);
    case MessageKind::account:
      return sizeof(AccountMessage);
    case MessageKind::refused:
      return sizeof(RefusedMessage);
    case MessageKind::wait:
      return sizeof(WaitMessage);
  }
  return 0;
}

/// Throws if a number of a message is outside its range.
void require_range(const char* what, std::uint64_t value, std::uint64_t min, std::uint64_t max) {
  if (value >= min && value <= max) return;
  throw gpusock::Error(EINVAL, std::string(what) + " is " + std::to_string(value) + ", not " + std::to_string(min) +
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
  const auto bytes = size_of(static_cast<MessageKind>(header.kind));
  if (bytes == 0 || header.body_bytes != bytes || header.reserved != 0)
    return peer + " sent a message that is not valid";
  return {};
}

std::string encode(MessageKind kind, const void* body, std::size_t bytes) {
  Header header;
  header.kind = static_cast<std::uint32_t>(kind);
  header.body_bytes = static_cast<std::uint32_t>(bytes);
  std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  return text.append(static_cast<const char*>(body), bytes);
}

void require_kind(const Frame& frame, MessageKind kind, const std::string& peer, void* body, std::size_t bytes) {
  if (frame.kind == MessageKind::refused && frame.body.size() == sizeof(RefusedMessage)) {
    RefusedMessage refusal;
    std::memcpy(&refusal, frame.body.data(), sizeof refusal);
    const int error = refusal.error > 0 && refusal.error < 4096 ? refusal.error : EPROTO;
    throw gpusock::Error::with_cause(error, peer + " refuses: " + printable(refusal.text, sizeof refusal.text));
  }
  if (frame.kind != kind || frame.body.size() != bytes) {
    throw gpusock::Error(EPROTO, peer + " sent another message than the one that was due");
  }
  std::memcpy(body, frame.body.data(), bytes);
}

OpenMessage to_message(const BenchOptions& options, Entrant entrant) {
  OpenMessage message;
  message.entrant = static_cast<std::uint32_t>(entrant);
  message.question = static_cast<std::uint32_t>(options.question);
  message.link = static_cast<std::uint32_t>(options.link);
  message.between = static_cast<std::uint32_t>(options.between);
  message.group = static_cast<std::uint32_t>(options.group);
  message.block_threads = options.block_threads;
  message.sockets_out = options.sockets_out();
  message.sockets_in = options.sockets_in();
  message.ring_bytes = options.ring_bytes;
  return message;
}

BenchOptions to_options(const OpenMessage& message) {
  require_range("the contestant", message.entrant, 0, kEntrants - 1);
  require_range("the question", message.question, 0, static_cast<std::uint32_t>(Question::connections));
  require_range("the link", message.link, 1, gpusock::kLinkKinds - 1);
  require_range("the kind of callers", message.between, 0, 1);
  require_range("the kind of group", message.group, 0, 2);
  require_range("the number of threads of a block", message.block_threads, 1, kBlockThreadsMax);
  require_range("the number of sockets out", message.sockets_out, 0, kSocketsMax);
  require_range("the number of sockets in", message.sockets_in, 0, kSocketsMax);
  require_range("the number of sockets", message.sockets_out + message.sockets_in, 1, 2 * kSocketsMax);
  BenchOptions options;
  options.question = static_cast<Question>(message.question);
  options.link = static_cast<gpusock::LinkKind>(message.link);
  options.between = static_cast<Between>(message.between);
  options.group = static_cast<GroupKind>(message.group);
  options.block_threads = message.block_threads;
  options.direction = message.sockets_in == 0    ? Direction::out
                      : message.sockets_out == 0 ? Direction::in
                                                 : Direction::both;
  options.sockets = std::max(message.sockets_out, message.sockets_in);
  options.ring_bytes = message.ring_bytes;
  if (options.sockets_out() != message.sockets_out || options.sockets_in() != message.sockets_in) {
    throw gpusock::Error(EINVAL, "the numbers of sockets in and out differ");
  }
  if (options.question != Question::bandwidth) require_range("the number of sockets in", message.sockets_in, 0, 0);
  if (options.between == Between::threads && options.group != GroupKind::thread) {
    throw gpusock::Error(EINVAL, "host threads call alone");
  }
  if (message.ring_bytes != 0) {
    require_range("the ring's capacity", message.ring_bytes, kRingBytesMin, kRingBytesMax);
    if (!std::has_single_bit(message.ring_bytes)) throw gpusock::Error(EINVAL, "the ring is no power of two");
  }
  require_memory(message.ring_bytes, options.sockets_in_all());
  return options;
}

RoundMessage to_message(const Job& job, Entrant entrant) {
  RoundMessage message;
  message.entrant = static_cast<std::uint32_t>(entrant);
  message.bytes = job.bytes;
  message.warmup = job.warmup;
  message.messages_max = job.messages_max;
  message.duration_ns = job.duration_ns;
  message.limit_ns = job.limit_ns;
  message.token = job.token;
  return message;
}

Job to_job(const RoundMessage& message, const BenchOptions& opened) {
  require_range("the size of a message", message.bytes, 1, kMessageBytesMax);
  require_range("the warm-up", message.warmup, 0, kWarmupMax);
  if (message.duration_ns == kForever) {
    require_range("the number of messages", message.messages_max, 1, kIterationsMax);
  } else {
    require_range("the number of messages", message.messages_max, 1, kForever);
    require_range("the duration", message.duration_ns, 1, to_ns(kDurationMax_s));
  }
  require_range("the limit", message.limit_ns, 1, to_ns(kDurationMax_s + kLimitMax_s));
  require_memory(message.bytes + opened.ring_bytes, opened.sockets_in_all());
  Job job;
  job.question = opened.question;
  job.sockets_out = opened.sockets_out();
  job.sockets_in = opened.sockets_in();
  job.bytes = message.bytes;
  job.warmup = message.warmup;
  job.messages_max = message.messages_max;
  job.duration_ns = message.duration_ns;
  job.limit_ns = message.limit_ns;
  job.token = message.token;
  return job;
}

AccountMessage to_message(const Answer& answer) {
  AccountMessage message;
  message.failed_step = static_cast<std::uint32_t>(answer.account.failed_step);
  message.result = answer.account.result;
  message.messages = answer.account.messages;
  message.wrong_words = answer.account.wrong_words;
  message.proxy_steps = answer.proxy_steps;
  message.proxy_wakeups = answer.proxy_wakeups;
  return message;
}

Answer to_answer(const AccountMessage& message, const std::string& peer) {
  const bool known = message.failed_step < kSteps && message.result > -4096;
  if (!known) throw gpusock::Error(EPROTO, peer + " sent an account that is not valid");
  Answer answer;
  answer.account.failed_step = static_cast<Step>(message.failed_step);
  answer.account.result = message.result;
  answer.account.messages = message.messages;
  answer.account.wrong_words = message.wrong_words;
  answer.proxy_steps = message.proxy_steps;
  answer.proxy_wakeups = message.proxy_wakeups;
  return answer;
}

RefusedMessage to_refusal(int error, const std::string& text) {
  RefusedMessage message;
  message.error = error;
  put_text(text, message.text, sizeof message.text);
  return message;
}

void put_text(const std::string& text, char* field, std::size_t bytes) { text.copy(field, bytes - 1); }

std::string printable(const char* field, std::size_t bytes) {
  std::string text(field, strnlen(field, bytes));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

}  // namespace bench
