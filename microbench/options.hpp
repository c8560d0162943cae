#pragma once
/// @file The command line.

#include "round.hpp"

#include <gpusock/gpusock.hpp>

#include <string>
#include <vector>

namespace bench {

enum class Between : std::uint32_t { kernels, threads };
enum class GroupKind : std::uint32_t { thread, warp, block };
/// Seen from the side that asks: which side sends the messages of bandwidth.
enum class Direction : std::uint32_t { out, in, both };

struct BenchOptions {
  Question question = Question::latency;
  gpusock::LinkKind link = gpusock::LinkKind::tcp;
  std::string host = "127.0.0.1";  ///< where the one side listens and the other connects to
  std::string to;                  ///< the server that answers, HOST:PORT; empty: this process does
  Between between = Between::kernels;
  GroupKind group = GroupKind::block;
  unsigned block_threads = 64;  ///< of --group block
  unsigned sockets = 1;         ///< in each direction
  Direction direction = Direction::out;
  std::vector<std::uint64_t> sizes;  ///< bytes of a message
  std::uint64_t iterations = 0;      ///< messages of each socket per round; 0: as many as fit in the duration
  double duration_s = 0;             ///< of a round; 0: as long as the iterations take
  double limit_s = 120;              ///< that a round may take longer, and the server to answer
  int repeat = 15;                   ///< rounds
  std::uint64_t ring_bytes = 0;
  int answer_gpu = -1;    ///< the answering half's GPU; -1: GPUSOCK_GPU, as the asking half's
  std::string json_file;  ///< empty: none
  std::string commit;

  /// The group's threads.
  unsigned threads() const { return group == GroupKind::thread ? 1 : group == GroupKind::warp ? 32 : block_threads; }
  unsigned sockets_out() const { return direction == Direction::in ? 0 : sockets; }
  unsigned sockets_in() const { return direction == Direction::out ? 0 : sockets; }
  unsigned sockets_in_all() const { return sockets_out() + sockets_in(); }
};

struct ServeOptions {
  std::string at = "127.0.0.1:0";
  bool once = false;  ///< ends after one client
};

const char* to_string(Question question);
const char* to_string(Between between);
const char* to_string(GroupKind group);
const char* to_string(Direction direction);

/// HOST or HOST:PORT as an endpoint; port 0 if it names none. Throws gpusock::Error.
gpusock::Endpoint parse_host_port(const std::string& text);

/// What the command line came to: options to run with, or (`run` false) the status to exit with at once.
struct CommandLine {
  bool run = false;
  int exit_status = 0;
  bool serve = false;  ///< with `server`, else measure with `options`
  ServeOptions server;
  BenchOptions options;
};

/// Parses, and prints the help or what is wrong. Exit statuses: 0 help, 2 misuse.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace bench
