#include "options.hpp"

#include "commit.hpp"

#include <CLI/CLI.hpp>

#include <bit>
#include <map>

namespace bench {
namespace {

constexpr std::uint64_t kMessageBytesMax = 64 << 20;
constexpr double kDurationDefault_s = 0.05;
constexpr std::uint64_t kIterationsMax = 100'000'000;

constexpr const char* kFooter = R"(
Each round of gpusock is followed by one of its raw rival, --repeat times; the table shows the medians over the rounds, the
JSON all of them. Exit status: 0 measured, 1 failed (wrong bytes, a link that is not to be had, ...), 2 misuse.

  gpusock-bench lat --link tcp --size 64 --between threads
  gpusock-bench bw --link p2p --size 4K,64K,1M --json p2p.json)";

const std::map<std::string, gpusock::LinkKind> kLinks{{"p2p", gpusock::LinkKind::p2p}, {"tcp", gpusock::LinkKind::tcp}};
const std::map<std::string, Between> kBetweens{{"kernels", Between::kernels}, {"threads", Between::threads}};
const std::map<std::string, GroupKind> kGroups{
    {"thread", GroupKind::thread}, {"warp", GroupKind::warp}, {"block", GroupKind::block}};

std::string require_power_of_two(const std::string& text) {
  std::uint64_t bytes = 0;
  if (!CLI::detail::lexical_cast(text, bytes) || !std::has_single_bit(bytes)) return text + " is not a power of two";
  return {};
}

/// An option whose values have names.
template <class Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Value& value, const std::map<std::string, Value>& names,
                        const std::string& description) {
  return app.add_option_function<std::string>(name, [&](const std::string& text) { value = names.at(text); }, description)
      ->check(CLI::IsMember(names));
}

/// The options of both questions.
void add_options(CLI::App& app, BenchOptions& options) {
  add_choice(app, "--link", options.link, kLinks, "what carries the bytes")->required();
  app.add_option("--size", options.sizes, "bytes of a message; several with commas; 64, 4K, 1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, kMessageBytesMax));
  app.add_option("--iterations", options.iterations, "messages a round, instead of --duration; with both, what ends first")
      ->check(CLI::Range(std::uint64_t{1}, kIterationsMax));
  app.add_option("--duration", options.duration_s, "seconds a round takes (default 0.05)")->check(CLI::Range(0.001, 600.0));
  app.add_option("--repeat", options.repeat, "rounds of each contestant")->capture_default_str()->check(CLI::Range(1, 10'000));
  add_choice(app, "--between", options.between, kBetweens, "sockets in kernels, one block each (default), or in host threads");
  add_choice(app, "--group", options.group, kGroups, "who makes a call together (default thread)");
  app.add_option("--block-threads", options.block_threads, "threads in the block of --group block")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1024u));
  app.add_option("--ring-bytes", options.ring_bytes,
                 "capacity of a socket's rings, a power of two (default: the library's for the link)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{4} << 10, std::uint64_t{64} << 20))
      ->check(require_power_of_two);
  app.add_option("--json", options.json_file, "write all figures and the machine's facts to this file");
  app.add_option("--commit", options.commit, "what the JSON names as the commit, instead of the one built from");
}

void complete(BenchOptions& options) {
  if (options.between == Between::threads && options.group != GroupKind::thread) {
    throw CLI::ValidationError("--group", "host threads call alone: --between threads takes --group thread");
  }
  if (options.sizes.empty()) options.sizes = {options.question == Question::latency ? 64u : 65536u};
  if (options.iterations == 0 && options.duration_s == 0) options.duration_s = kDurationDefault_s;
}

}  // namespace

const char* to_string(Question question) { return question == Question::latency ? "lat" : "bw"; }
const char* to_string(Between between) { return between == Between::kernels ? "kernels" : "threads"; }
const char* to_string(GroupKind group) {
  return group == GroupKind::thread ? "thread" : group == GroupKind::warp ? "warp" : "block";
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  line.options.commit = GPUSOCK_BENCH_COMMIT;
  CLI::App app("Latency and bandwidth between two gpusock contexts, each beside its raw rival in the same run.");
  app.footer(kFooter);
  app.require_subcommand(1);
  CLI::App* latency = app.add_subcommand("lat", "round trips: a message there and back");
  CLI::App* bandwidth = app.add_subcommand("bw", "one-way bandwidth: messages one after the other, then an acknowledgement");
  for (CLI::App* question : {latency, bandwidth}) add_options(*question, line.options);
  try {
    app.parse(argc, argv);
    line.options.question = bandwidth->parsed() ? Question::bandwidth : Question::latency;
    complete(line.options);
    line.run = true;
  } catch (const CLI::ParseError& error) {
    line.exit_status = app.exit(error) == 0 ? 0 : 2;
  }
  return line;
}

}  // namespace bench
