#include "options.hpp"

#include "commit.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"

#include <bit>
#include <map>

namespace bench {
namespace {

using gpusock::program::Arguments;

constexpr std::uint64_t kMessageBytesMax = 64 << 20;
constexpr double kDurationDefault_s = 0.05;
constexpr std::uint64_t kIterationsMax = 100'000'000;

constexpr const char* kFooter = R"(
Each round of gpusock is followed by one of its raw rival, --repeat times; the table shows the medians over the rounds, the
JSON all of them. Exit status: 0 measured, 1 failed (wrong bytes, a link that is not to be had, ...), 2 misuse (wrong
arguments, or a GPUSOCK_... variable).

  gpusock-bench lat --link tcp --size 64 --between threads
  gpusock-bench bw --link p2p --size 4K,64K,1M --json p2p.json)";

/// The links that gpusock knows. Not auto: what is measured is to be known.
std::map<std::string, gpusock::LinkKind> known_links() {
  std::map<std::string, gpusock::LinkKind> links;
  for (const char* name : {"p2p", "verbs", "fabric", "tcp"}) {
    try {
      links[name] = gpusock::parse_link(name);
    } catch (const gpusock::Error&) {  // not in this version
    }
  }
  return links;
}
const std::map<std::string, gpusock::LinkKind> kLinks = known_links();
const std::map<std::string, Between> kBetweens{{"kernels", Between::kernels}, {"threads", Between::threads}};
const std::map<std::string, GroupKind> kGroups{
    {"thread", GroupKind::thread}, {"warp", GroupKind::warp}, {"block", GroupKind::block}};

template <class Value>
std::vector<std::string> words_of(const std::map<std::string, Value>& names) {
  std::vector<std::string> words;
  for (const auto& [word, value] : names) words.push_back(word);
  return words;
}

/// What has a name on the command line.
struct Words {
  std::string link, between = "kernels", group = "thread";
};

/// What is wrong with a host to listen at, or nothing.
std::string host_problem(const std::string& host) {
  try {
    gpusock::Endpoint::parse(host + ":0");
    return {};
  } catch (const gpusock::Error& error) {
    return error.what();
  }
}

/// The options of both questions.
void add_options(Arguments& arguments, BenchOptions& options, Words& words) {
  arguments.choice("--link", words.link, words_of(kLinks), "what carries the bytes").required();
  arguments.text("--at", options.host, "this machine's address between the two; beyond loopback with GPUSOCK_SECRET")
      .check(host_problem);
  arguments.bytes("--size", options.sizes, "bytes of a message; several with commas; 64, 4K, 1M", 1, kMessageBytesMax);
  arguments
      .number("--iterations", options.iterations, "messages a round, instead of --duration; with both, what ends first",
              1, kIterationsMax)
      .shown_default("");
  arguments.number("--duration", options.duration_s, "seconds a round takes", 0.001, 600.0).shown_default("0.05");
  arguments.number("--repeat", options.repeat, "rounds of each contestant", 1, 10'000);
  arguments.choice("--between", words.between, words_of(kBetweens),
                   "sockets in kernels, one block each, or in host threads");
  arguments.choice("--group", words.group, words_of(kGroups), "who makes a call together");
  arguments.number("--block-threads", options.block_threads, "threads in the block of --group block", 1, 1024);
  arguments.bytes("--ring-bytes", options.ring_bytes,
                  "capacity of a socket's rings, a power of two (default: the library's for the link)", 4 << 10,
                  64 << 20);
  arguments.text("--json", options.json_file, "write all figures and the machine's facts to this file");
  arguments.text("--commit", options.commit, "what the JSON names as the commit, instead of the one built from")
      .shown_default("");
}

/// What is wrong with the options together, or nothing.
std::string complete(BenchOptions& options, const Words& words) {
  options.link = kLinks.at(words.link);
  options.between = kBetweens.at(words.between);
  options.group = kGroups.at(words.group);
  if (options.between == Between::threads && options.group != GroupKind::thread) {
    return "--group: host threads call alone: --between threads takes --group thread";
  }
  if (options.ring_bytes != 0 && !std::has_single_bit(options.ring_bytes)) {
    return "--ring-bytes: " + std::to_string(options.ring_bytes) + " is not a power of two";
  }
  if (options.sizes.empty()) options.sizes = {options.question == Question::latency ? 64u : 65536u};
  if (options.iterations == 0 && options.duration_s == 0) options.duration_s = kDurationDefault_s;
  return {};
}

}  // namespace

const char* to_string(Question question) { return question == Question::latency ? "lat" : "bw"; }
const char* to_string(Between between) { return between == Between::kernels ? "kernels" : "threads"; }
const char* to_string(GroupKind group) {
  return group == GroupKind::thread ? "thread" : group == GroupKind::warp ? "warp" : "block";
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  Words words;
  line.options.commit = GPUSOCK_BENCH_COMMIT;
  Arguments arguments("Latency and bandwidth between two gpusock contexts, each beside its raw rival in the same run.",
                      kFooter);
  Arguments& latency = arguments.command("lat", "round trips: a message there and back");
  Arguments& bandwidth = arguments.command("bw",
                                           "one-way bandwidth: messages one after the other, then an acknowledgement");
  for (Arguments* question : {&latency, &bandwidth}) add_options(*question, line.options, words);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] {
    line.options.question = bandwidth.given() ? Question::bandwidth : Question::latency;
    return complete(line.options, words);
  });
  const auto status = arguments.parse(argc, argv);
  line.run = !status;
  line.exit_status = status.value_or(0);
  return line;
}

}  // namespace bench
