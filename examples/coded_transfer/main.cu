// Sends a buffer over several paths, coded so that slow or lost paths do not hold it up. Here a path is a connection.
//   coded_transfer --code lt --paths 4                                    (both ends in this process)
//   coded_transfer --listen 127.0.0.1:7000                                (the receiver alone)
//   coded_transfer --connect 127.0.0.1:7000 --code rs:1 --paths 4         (the sender alone)
//   plain   chunk i goes over path i modulo the number of paths: the transfer ends with the slowest path
//   rs:K    K of the paths carry coded chunks: whichever chunks of a group come first are enough (Reed-Solomon, ISA-L)
//   lt      each path carries symbols of an LT code, until the receiver says stop
#include "examples/coded_transfer/ends.hpp"
#include "examples/coded_transfer/receiving_end.hpp"
#include "examples/coded_transfer/reed_solomon.hpp"
#include "examples/coded_transfer/sending_end.hpp"
#include "examples/endpoints.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace {

using coded::Options;

/// The result of a transfer, for people and with --json.
void report(const Options& options, const coded::Outcome& found, std::optional<std::uint64_t> sent,
            std::optional<gpusock::program::JsonOutput>& json) {
  const coded::Plan& plan = found.plan;
  char text[320];
  std::snprintf(text, sizeof text,
                "%s: %llu bytes over %u paths in %.3f s, of which decoding took %.1f ms; taken %llu chunks for %u "
                "(%.3f times)\n",
                coded::name_of(plan).c_str(), static_cast<unsigned long long>(plan.bytes), plan.paths,
                found.seconds + found.decode_seconds, 1e3 * found.decode_seconds,
                static_cast<unsigned long long>(found.taken), plan.sources(),
                static_cast<double>(found.taken) / plan.sources());
  gpusock::program::print(text);
  if (const std::string lost = coded::lost_paths(found.paths); !lost.empty()) gpusock::program::print(lost + '\n');
  if (!json) return;
  std::string paths;
  for (const coded::PathReport& path : found.paths) {
    paths += (paths.empty() ? "" : ", ") + std::string("{\"bytes\": ") + std::to_string(path.bytes) +
             ", \"is_lost\": " + (path.error != 0 ? "true}" : "false}");
  }
  std::snprintf(text, sizeof text,
                "{\"code\": \"%s\", \"seconds\": %.6f, \"decode_seconds\": %.6f, \"chunks\": %u, \"taken\": %llu, "
                "\"inactive\": %u, \"rate\": %llu, \"sent_bytes\": %s,\n\"paths\": [",
                coded::name_of(plan).c_str(), found.seconds, found.decode_seconds, plan.sources(),
                static_cast<unsigned long long>(found.taken), found.inactive,
                static_cast<unsigned long long>(options.rate), sent ? std::to_string(*sent).c_str() : "null");
  json->write(text + paths + "]}\n");
  json->close();
}

/// Runs the ends that are here, step by step beside each other. On a GPU, memory is made only while no kernel waits for
/// the other end: both meet before they begin.
int transfer(const Options& options) {
  std::optional<gpusock::program::JsonOutput> json;  // opened first: what cannot be written is told at once
  if (!options.json_file.empty()) json.emplace(options.json_file);
  std::optional<coded::ReceivingEnd> receiver;
  std::optional<coded::SendingEnd> sender;
  if (options.connect.empty()) receiver.emplace(options);
  if (options.listen.empty()) {
    sender.emplace(options, receiver ? receiver->where() : examples::stream_endpoint(options.connect));
  } else {
    gpusock::program::print_now("listening on " + receiver->where().to_string() + '\n');
  }
  if (receiver) receiver->begin_to_meet();
  if (sender) sender->begin_to_meet();
  if (sender) sender->meet();
  if (receiver) receiver->meet();
  if (!sender) gpusock::program::print_now("all paths are open\n");
  if (receiver) receiver->begin();
  if (sender) sender->begin();
  std::optional<coded::Outcome> found;
  if (receiver) found = receiver->end();
  std::optional<std::uint64_t> sent;
  if (sender) sent = sender->end();
  if (found) {
    report(options, *found, sent, json);
  } else {
    gpusock::program::print("sent " + std::to_string(*sent) + " bytes, and the receiver has them\n");
  }
  return gpusock::program::kSuccess;
}

/// What is wrong with the code and with the paths that the options name.
std::string problem_of_code(const Options& options) {
  const auto spare = coded::spare_of(options.code);
  if (!spare) return "--code " + options.code + ": take plain, lt, or rs:K for K coded chunks in a group, as rs:1";
  if (*spare != 0 && !coded::kHasReedSolomon) {
    return "--code rs:K needs ISA-L, which this build does not have: install libisal-dev and build again, or take lt";
  }
  if (*spare >= options.paths) return "--code rs:K: K paths carry coded chunks; take more --paths than K";
  if (options.chunk_bytes % 16 != 0) return "--chunk must be a multiple of 16 bytes";
  if (!coded::plan_of(options).is_valid()) {
    return "--bytes has more chunks than " +
           std::string(options.code == "lt" ? "131072, the most of lt" : "a million") +
           ": take a larger --chunk, at most 1M";
  }
  if (!options.kill.empty()) {
    const auto killed = coded::pair_of(options.kill, '@');
    if (!killed || killed->first >= options.paths)
      return "--kill PATH@BYTES: as 1@64000, bytes without K or M, and a path from 0 to --paths - 1";
  }
  return {};
}

std::string problem_of(const Options& options) {
  Options of_receiver, of_sender = options;
  of_receiver.listen = options.listen, of_receiver.rate = options.rate, of_receiver.slow = options.slow;
  of_receiver.timeout_s = options.timeout_s, of_receiver.json_file = options.json_file;
  of_sender.rate = 0, of_sender.slow = of_sender.json_file = "";
  if (!options.listen.empty() && !(options == of_receiver)) {
    return "--listen goes with --rate, --slow, --timeout-s and --json alone: the sender tells the rest";
  }
  if (!options.connect.empty() && !(options == of_sender)) {
    return "--connect: --rate, --slow and --json are for the receiver";
  }
  if (!options.slow.empty()) {
    const auto slow = coded::pair_of(options.slow, ':');
    const unsigned paths = options.listen.empty() ? options.paths : coded::kPathsMax;
    if (!slow || slow->first >= paths || slow->second == 0) return "--slow PATH:FACTOR: as 1:8; paths begin with 0";
    if (options.rate == 0) return "--slow goes with --rate: say how many bytes a second the other paths carry";
  }
  if (const std::string problem = problem_of_code(options); !problem.empty()) return problem;
  constexpr std::uint64_t kCopies = 5;  // of the buffer, at both ends together
  if (const std::string problem = gpusock::program::problem_of_memory(kCopies * options.bytes, "--bytes");
      !problem.empty()) {
    return problem;
  }
  const std::string& where = options.connect.empty() ? options.listen : options.connect;
  if (where.empty()) return {};
  return examples::problem_of_endpoint([&] { return examples::stream_endpoint(where); });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Sends a buffer over several paths, coded so that slow or lost paths do not hold it up.");
  arguments.text(
      "--code", options.code,
      "plain: all chunks of all paths are needed; rs:K: K chunks in a group, one of each path, are spare; lt: "
      "any symbols, a few more than chunks");
  arguments.number("--paths", options.paths, "Connections", 1u, coded::kPathsMax);
  arguments.bytes("--bytes", options.bytes, "Of the buffer, which is random", 1, coded::kBytesMax);
  arguments.bytes("--chunk", options.chunk_bytes, "Bytes of a chunk, which is also a symbol", coded::kChunkBytesMin,
                  coded::kChunkBytesMax);
  arguments.bytes("--rate", options.rate, "The receiver takes so many bytes a second of each path; 0: any", 0,
                  std::uint64_t{1} << 40);
  arguments.text("--slow", options.slow, "PATH:FACTOR: of this path so many times fewer");
  arguments.text("--kill", options.kill, "PATH@BYTES: the sender ends this path after so many bytes");
  arguments.text("--listen", options.listen, "HOST:PORT: this is the receiver alone");
  arguments.text("--connect", options.connect, "HOST:PORT of a receiver: this is the sender alone");
  arguments.number("--seed", options.seed, "Of the buffer and of symbols", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.number("--timeout-s", options.timeout_s, "Seconds without any progress after which a path is lost", 1u,
                   3600u);
  arguments.json(options.json_file, "Times, and the bytes of each path");
  arguments.check([&] { return problem_of(options); });
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("coded_transfer", [&] { return transfer(options); });
}
