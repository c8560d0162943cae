#pragma once
/// @file The command line.

#include "round.hpp"

#include <gpusock/gpusock.hpp>

#include <string>
#include <vector>

namespace bench {

enum class Between : std::uint32_t { kernels, threads };
enum class GroupKind : std::uint32_t { thread, warp, block };
/// The direction of bandwidth's messages, as the asking side sees it.
enum class Direction : std::uint32_t { out, in, both };

struct BenchOptions {
  Question question = Question::latency;
  gpusock::LinkKind link = gpusock::LinkKind::tcp;
  std::string host = "127.0.0.1";  ///< where one side listens, and to which the other one connects
  std::string to;                  ///< the server that answers, HOST:PORT; empty: this process answers
  Between between = Between::kernels;
  GroupKind group = GroupKind::block;
  std::vector<GroupKind> groups{GroupKind::block};  ///< those that are measured, one after the other, as `group`
  unsigned block_threads = 64;                      ///< for --group block
  unsigned sockets = 1;                             ///< in each direction
  std::vector<std::uint64_t> counts;                ///< numbers of sockets that are measured one by one, as `sockets`
  std::uint64_t window = 1;                         ///< rate: messages of a socket that are on their way at a time
  Direction direction = Direction::out;
  std::vector<std::uint64_t> sizes;  ///< bytes of a message
  std::uint64_t iterations = 0;      ///< messages of each socket per round; 0: as many as fit in the duration
  double duration_s = 0;             ///< of a round; 0: as long as the iterations take
  double limit_s = 120;              ///< extra time that a round may take, and time that a server may take to answer
  int repeat = 15;                   ///< number of rounds
  std::uint64_t ring_bytes = 0;
  int answer_gpu = -1;    ///< the answering half's GPU; -1: GPUSOCK_GPU, as for the asking half
  std::string json_file;  ///< empty: none
  std::string commit;

  /// Number of threads in a group.
  unsigned threads() const { return group == GroupKind::thread ? 1 : group == GroupKind::warp ? 32 : block_threads; }
  unsigned sockets_out() const { return direction == Direction::in ? 0 : sockets; }
  unsigned sockets_in() const { return direction == Direction::out ? 0 : sockets; }
  unsigned sockets_in_all() const { return sockets_out() + sockets_in(); }
  /// Number of groups, or host threads, of a side.
  unsigned callers() const { return question == Question::scale ? 1 : sockets_in_all(); }
};

struct ServeOptions {
  std::string at = "127.0.0.1:0";
  bool once = false;  ///< end after one client
};

const char* to_string(Question question);
const char* to_string(Between between);
const char* to_string(GroupKind group);
const char* to_string(Direction direction);

/// Parses HOST or HOST:PORT. The port is 0 if the text names none. Throws gpusock::Error.
gpusock::Endpoint parse_host_port(const std::string& text);

/// The result of parsing the command line: options to run with, or, if `run` is false, the status to exit with at once.
struct CommandLine {
  bool run = false;
  int exit_status = 0;
  bool serve = false;  ///< true: serve with `server`; false: measure with `options`
  ServeOptions server;
  BenchOptions options;
};

/// Parses the command line, and prints the help or what is wrong. Exit statuses: 0 help, 2 misuse.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace bench
