#pragma once
/// @file The command line.

#include "round.hpp"

#include <gpusock/gpusock.hpp>

#include <string>
#include <vector>

namespace bench {

enum class Between : std::uint32_t { kernels, threads };
enum class GroupKind : std::uint32_t { thread, warp, block };

struct BenchOptions {
  Question question = Question::latency;
  gpusock::LinkKind link = gpusock::LinkKind::tcp;
  std::string host = "127.0.0.1";  ///< where the one side listens and the other connects to
  Between between = Between::kernels;
  GroupKind group = GroupKind::thread;
  unsigned block_threads = 128;      ///< of --group block
  std::vector<std::uint64_t> sizes;  ///< bytes of a message
  std::uint64_t iterations = 0;      ///< messages per round; 0: as many as fit in the duration
  double duration_s = 0;             ///< of a round; 0: as long as the iterations take
  int repeat = 15;                   ///< rounds
  std::uint64_t ring_bytes = 0;
  std::string json_file;  ///< empty: none
  std::string commit;

  /// The group's threads.
  unsigned threads() const { return group == GroupKind::thread ? 1 : group == GroupKind::warp ? 32 : block_threads; }
};

const char* to_string(Question question);
const char* to_string(Between between);
const char* to_string(GroupKind group);

/// What the command line came to: options to run with, or (`run` false) the status to exit with at once.
struct CommandLine {
  bool run = false;
  int exit_status = 0;
  BenchOptions options;
};

/// Parses, and prints the help or what is wrong. Exit statuses: 0 help, 2 misuse.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace bench
