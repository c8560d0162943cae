#include "options.hpp"

#include "bounds.hpp"
#include "commit.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <map>

namespace bench {
namespace {

using gpusock::program::Arguments;

constexpr double kDurationDefault_s = 0.05;
constexpr int kGpuMax = 255;

constexpr const char* kFooter = R"(
Each round of gpusock is followed by one of its raw rival, --repeat times; the table shows the medians over the rounds, the
JSON all of them. Exit status: 0 measured, 1 failed (wrong bytes, a link that is not available, no server, ...), 2 misuse
(wrong arguments, or a GPUSOCK_... variable).

  gpusock-bench lat --link tcp --size 64 --between threads
  gpusock-bench bw --link p2p --size 4K,64K,1M --json p2p.json
  gpusock-bench serve --at 10.0.0.1:7100                          between two processes or hosts: on one of them
  gpusock-bench bw --link tcp --to 10.0.0.1:7100 --sockets 4      on the other)";

/// The links that gpusock knows, except auto: the measured link must be known.
std::map<std::string, gpusock::LinkKind> known_links() {
  std::map<std::string, gpusock::LinkKind> links;
  for (const std::string& name : gpusock::program::link_names()) {
    if (const auto link = gpusock::parse_link(name); link != gpusock::LinkKind::automatic) links[name] = link;
  }
  return links;
}
const std::map<std::string, gpusock::LinkKind> kLinks = known_links();
const std::map<std::string, Between> kBetweens{{"kernels", Between::kernels}, {"threads", Between::threads}};
const std::map<std::string, Direction> kDirections{
    {"out", Direction::out}, {"in", Direction::in}, {"both", Direction::both}};
const std::vector<GroupKind> kAllGroups{GroupKind::thread, GroupKind::warp, GroupKind::block};
const std::map<std::string, std::vector<GroupKind>> kGroups{
    {"thread", {GroupKind::thread}}, {"warp", {GroupKind::warp}}, {"block", {GroupKind::block}}, {"all", kAllGroups}};

template <class Value>
std::vector<std::string> words_of(const std::map<std::string, Value>& names) {
  std::vector<std::string> words;
  for (const auto& [word, value] : names) words.push_back(word);
  return words;
}

/// The options whose values are words on the command line.
struct Words {
  std::string link, between = "kernels", group, direction = "out";
};

/// The error of a call that parses an address, or an empty text.
template <class Parse>
std::string problem_of(Parse parse) {
  try {
    parse();
    return {};
  } catch (const gpusock::Error& error) {
    return error.what();
  }
}

/// What is wrong with a host to listen at, or an empty text.
std::string host_problem(const std::string& host) {
  return problem_of([&] { gpusock::Endpoint::parse(host + ":0"); });
}

std::string server_problem(const std::string& server) {
  return problem_of([&] {
    if (gpusock::Endpoint::parse(server).port == 0) throw gpusock::Error(EINVAL, server + " names port 0");
  });
}

/// Adds the options of questions that a server can answer.
void add_server(Arguments& arguments, BenchOptions& options) {
  arguments.text("--to", options.to, "HOST:PORT of `gpusock-bench serve`, which answers in another process or host")
      .check(server_problem);
  arguments.number("--sockets", options.sockets, "sockets at a time, of a block (or host thread) each", 1, kSocketsMax);
}

void add_scale(Arguments& arguments, BenchOptions& options) {
  arguments
      .counts("--sockets", options.counts, "sockets that exist, all of a block (or host thread); several with commas",
              1, kCrowdMax)
      .shown_default("1,4,16,64,256,1K,4K");
}

void add_rate(Arguments& arguments, BenchOptions& options) {
  arguments
      .counts("--sockets", options.counts, "sockets at a time, of a block (or host thread) each; several with commas",
              1, kSocketsMax)
      .shown_default("1,4,16,64");
  arguments.number("--window", options.window, "messages of each socket that are on their way at a time", 1,
                   kWindowMax);
}

void add_messages(Arguments& arguments, BenchOptions& options, std::uint64_t bytes_min) {
  arguments.bytes("--size", options.sizes, "bytes of a message; several with commas; 64, 4K, 1M", bytes_min,
                  kMessageBytesMax);
}

/// Adds the options that all questions have.
void add_options(Arguments& arguments, BenchOptions& options, Words& words) {
  arguments.choice("--link", words.link, words_of(kLinks), "what carries the bytes").required();
  arguments.text("--at", options.host, "this machine's address between the two; beyond loopback with GPUSOCK_SECRET")
      .check(host_problem);
  arguments
      .number("--iterations", options.iterations,
              "messages (or connections) of each socket in a round, instead of --duration; with both, what ends first",
              1, kIterationsMax)
      .shown_default("");
  arguments.number("--duration", options.duration_s, "seconds a round takes", 0.001, kDurationMax_s)
      .shown_default("0.05");
  arguments.number("--limit", options.limit_s, "seconds that a round may take longer, and a server to answer", 0.1,
                   kLimitMax_s);
  arguments.number("--repeat", options.repeat, "rounds of each contestant", 1, 10'000);
  arguments.choice("--between", words.between, words_of(kBetweens),
                   "sockets in kernels, one block each, or in host threads");
  arguments.choice("--group", words.group, words_of(kGroups), "who makes a call together; all: each in turn")
      .shown_default("lat: all; others, and with --to: block; of host threads: thread");
  arguments.number("--block-threads", options.block_threads, "threads in the block of --group block", 1,
                   kBlockThreadsMax);
  arguments.bytes("--ring-bytes", options.ring_bytes,
                  "capacity of a socket's rings, a power of two (default: the library's for the link)", kRingBytesMin,
                  kRingBytesMax);
  arguments.number("--answer-gpu", options.answer_gpu, "GPU of the side that answers, in this process", 0, kGpuMax)
      .shown_default("GPUSOCK_GPU, as the other side's");
  arguments.json(options.json_file, "all figures and the machine's facts as JSON");
  arguments.text("--commit", options.commit, "what the JSON names as the commit, instead of the one built from")
      .shown_default("");
}

/// An error text if a side needs too much memory, or an empty text.
std::string memory_problem(const BenchOptions& options) {
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  if (2 * (largest + options.ring_bytes) * options.sockets_in_all() <= kSideBytesMax) return {};
  return "--size, --ring-bytes, --sockets: messages and rings of all sockets take more than " +
         std::to_string(kSideBytesMax >> 20) + " MiB on a side";
}

/// An error text if rings cannot hold the messages that are on their way, or an empty text.
std::string window_problem(const BenchOptions& options) {
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const std::uint64_t room = options.ring_bytes == 0 ? kWindowBytesMax : std::min(kWindowBytesMax, options.ring_bytes);
  if (options.question != Question::rate || largest * options.window <= room) return {};
  return "--window, --size: " + std::to_string(options.window) + " messages of " + std::to_string(largest) +
         " bytes are more than the " + std::to_string(room) + " bytes that may be on their way: take fewer or smaller";
}

/// The groups that are measured if the command line names none.
std::vector<GroupKind> usual_groups(const BenchOptions& options) {
  if (options.between == Between::threads) return {GroupKind::thread};
  if (options.question == Question::latency && options.to.empty()) return kAllGroups;
  return {GroupKind::block};
}

/// Completes the options. Returns what is wrong with them together, or an empty text.
std::string complete(BenchOptions& options, const Words& words) {
  options.link = kLinks.at(words.link);
  options.between = kBetweens.at(words.between);
  const bool threads = options.between == Between::threads;
  options.groups = words.group.empty() ? usual_groups(options) : kGroups.at(words.group);
  options.group = options.groups.front();
  options.direction = kDirections.at(words.direction);
  if (!options.to.empty() && options.groups.size() > 1) {
    return "--group all and --to: a server measures one group at a time: thread, warp or block";
  }
  if (threads && options.groups != std::vector{GroupKind::thread}) {
    return "--group: host threads call alone: --between threads takes --group thread";
  }
  if (!options.to.empty() && options.host != BenchOptions{}.host) {
    return "--at and --to: with a server both sides use the server's address";
  }
  if (!options.to.empty() && options.answer_gpu >= 0) return "--answer-gpu and --to: set GPUSOCK_GPU for the server";
  if (options.ring_bytes != 0 && !std::has_single_bit(options.ring_bytes)) {
    return "--ring-bytes: " + std::to_string(options.ring_bytes) + " is not a power of two";
  }
  if (options.question == Question::connections) options.sizes = {1};
  if (options.sizes.empty()) options.sizes = {options.question == Question::bandwidth ? 65536u : 64u};
  const bool scale = options.question == Question::scale;
  if (options.question != Question::rate && !scale) options.counts = {options.sockets};
  if (options.counts.empty() && scale) options.counts = {1, 4, 16, 64, 256, 1024, 4096};
  if (options.counts.empty()) options.counts = {1, 4, 16, 64};
  if (scale && options.ring_bytes == 0) options.ring_bytes = kRingBytesMin;  // of thousands of sockets
  options.sockets = static_cast<unsigned>(*std::max_element(options.counts.begin(), options.counts.end()));
  if (options.iterations == 0 && options.duration_s == 0) options.duration_s = kDurationDefault_s;
  if (const std::string problem = window_problem(options); !problem.empty()) return problem;
  return memory_problem(options);
}

std::string complete_server(const ServeOptions& server) {
  return problem_of([&] { parse_host_port(server.at); });
}

Question question_of(const Arguments& bandwidth, const Arguments& connections, const Arguments& rate,
                     const Arguments& scale) {
  if (bandwidth.given()) return Question::bandwidth;
  if (rate.given()) return Question::rate;
  if (scale.given()) return Question::scale;
  return connections.given() ? Question::connections : Question::latency;
}

}  // namespace

const char* to_string(Question question) {
  switch (question) {
    case Question::latency:
      return "lat";
    case Question::bandwidth:
      return "bw";
    case Question::connections:
      return "conn";
    case Question::rate:
      return "rate";
    default:
      return "scale";
  }
}
const char* to_string(Between between) { return between == Between::kernels ? "kernels" : "threads"; }
const char* to_string(GroupKind group) {
  return group == GroupKind::thread ? "thread" : group == GroupKind::warp ? "warp" : "block";
}

const char* to_string(Direction direction) {
  return direction == Direction::out ? "out" : direction == Direction::in ? "in" : "both";
}

gpusock::Endpoint parse_host_port(const std::string& text) {
  const bool bare = text.empty() || text.back() == ']' || text.find(':') == std::string::npos;
  return gpusock::Endpoint::parse(text + (bare ? ":0,link=tcp" : ",link=tcp"));
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  Words words;
  line.options.commit = GPUSOCK_BENCH_COMMIT;
  Arguments arguments(
      "Latency, bandwidth, connections and rates of gpusock, each beside its raw rival in the same run.", kFooter);
  Arguments& latency = arguments.command("lat", "round trips: a message there and back");
  Arguments& bandwidth = arguments.command("bw", "bandwidth: messages one after the other, then an acknowledgement");
  Arguments& connections = arguments.command("conn", "connections: connect, a byte there and back, close");
  Arguments& rate = arguments.command("rate", "round trips a second of many sockets at the same time");
  Arguments& scale = arguments.command("scale", "round trips on one of many sockets, and on all of them by turns");
  Arguments& serve = arguments.command("serve", "answers runs with --to in other processes, until SIGINT or SIGTERM");
  for (Arguments* question : {&latency, &bandwidth, &connections, &rate, &scale})
    add_options(*question, line.options, words);
  for (Arguments* question : {&latency, &bandwidth, &connections}) add_server(*question, line.options);
  for (Arguments* question : {&latency, &bandwidth}) add_messages(*question, line.options, 1);
  for (Arguments* question : {&rate, &scale}) add_messages(*question, line.options, kCrowdBytesMin);
  add_rate(rate, line.options);
  add_scale(scale, line.options);
  bandwidth.choice("--direction", words.direction, words_of(kDirections),
                   "who sends: out: this side; in: the other; both: each on --sockets of its own");
  serve.text("--at", line.server.at, "HOST[:PORT] to listen at; without PORT any free one");
  serve.flag("--once", line.server.once, "serve one client, then end");
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] {
    line.serve = serve.given();
    if (line.serve) return complete_server(line.server);
    line.options.question = question_of(bandwidth, connections, rate, scale);
    return complete(line.options, words);
  });
  const auto status = arguments.parse(argc, argv);
  line.run = !status;
  line.exit_status = status.value_or(0);
  return line;
}

}  // namespace bench
