// A Redis client in a kernel: sets, gets and deletes keys of a redis-server, many commands at a time, and checks the
// answers.
//   redis_client 127.0.0.1:6379
#include "examples/redis_client/client.cuh"

#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using gpusock::Endpoint;

constexpr const char* kNames[redis::kCommands] = {"SET", "GET", "MGET", "DEL"};

struct Settings {
  std::string where;
  std::uint64_t keys = 10'000, value_bytes = 64;
  unsigned blocks = 1, threads = 64, pipeline = 64, mget = 16, timeout_ms = 10'000;
};

Endpoint endpoint_of(const Settings& settings) {
  const Endpoint to = examples::plain_tcp_endpoint(settings.where, "Redis speaks");
  if (to.port == 0) throw gpusock::Error(EINVAL, "endpoint '" + settings.where + "': the server's port, not 0");
  return to;
}

redis::Plan plan_of(const Settings& settings) {
  redis::Plan plan{settings.keys,
                   settings.value_bytes,
                   settings.pipeline,
                   settings.mget,
                   settings.timeout_ms * std::uint64_t{1'000'000},
                   {}};
  std::vector<char> command(settings.value_bytes + 64 * (settings.mget + std::size_t{1}));
  for (int i = 0; i < redis::kCommands; ++i) {
    redis::TextBuffer to(command.data(), command.size());
    write_command(to, static_cast<redis::Command>(i), plan, 0, 0, settings.keys);
    plan.command_bytes[i] = to.bytes();
  }
  return plan;
}

/// Bytes of a block's buffers.
struct BlockBytes {
  std::size_t out, values;
};

BlockBytes bytes_of_block(const Settings& settings) {
  const redis::Plan plan = plan_of(settings);
  return {std::size_t{settings.pipeline} * *std::max_element(plan.command_bytes, plan.command_bytes + redis::kCommands),
          std::size_t{settings.pipeline} * settings.mget * (settings.value_bytes + redis::kFrameBytes)};
}

/// Says what is wrong with the settings together; empty if nothing is.
std::string problem_of(const Settings& settings) {
  if (settings.keys < settings.blocks) return "--keys: at least one for each block";
  const BlockBytes block = bytes_of_block(settings);
  return gpusock::program::problem_of_memory(settings.blocks * (block.out + block.values),
                                             "--value-bytes x --pipeline x --mget x --blocks");
}

/// Returns the server's message without control characters, which a terminal would obey.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

std::string reason(const redis::Outcome& outcome, const Endpoint& to) {
  const std::string name = kNames[static_cast<int>(outcome.during)];
  const std::string text = outcome.error == 0 ? "the server ended the connection"
                                              : gpusock::describe_errno(-outcome.error);
  switch (outcome.failure) {
    case redis::Failure::connecting: {
      const std::string to_do = gpusock::program::remedy(gpusock::program::Attempt::connecting, -outcome.error, to);
      return "connecting: " + text + (to_do.empty() ? "" : ": " + to_do);
    }
    case redis::Failure::sending:
      return "sending " + name + ": " + text;
    case redis::Failure::receiving:
      return "receiving the answers to " + name + ": " + text;
    case redis::Failure::server_error:
      return "the server answered " + name + " with: " + printable(outcome.message);
    case redis::Failure::protocol:
      return "what came back for " + name + " is not RESP: is this a Redis server?";
    case redis::Failure::wrong_answer:
      return "a wrong answer to " + name + ": does something else write to the keys gpusock:*?";
    case redis::Failure::none:
      break;
  }
  return "";
}

void print_rates(const gpusock::Mapped<redis::Outcome>& outcomes, unsigned pipeline) {
  std::printf("%u commands at a time on each of %zu connections\n", pipeline, outcomes.size());
  for (int i = 0; i < redis::kCommands; ++i) {
    std::uint64_t commands = 0, time_ns = 0;
    for (const redis::Outcome& outcome : outcomes) {
      commands += outcome.commands[i];
      time_ns = std::max(time_ns, outcome.time_ns[i]);
    }
    std::printf("%-5s %10llu commands %12.0f /s\n", kNames[i], static_cast<unsigned long long>(commands),
                static_cast<double>(commands) * 1e9 / static_cast<double>(std::max<std::uint64_t>(time_ns, 1)));
  }
}

int run(const Settings& settings) {
  gpusock::Context context(gpusock::Options::from_env());
  const Endpoint to = endpoint_of(settings);
  const BlockBytes block = bytes_of_block(settings);
  gpusock::DeviceBuffer<char> out(context, block.out * settings.blocks);
  gpusock::DeviceBuffer<char> values(context, block.values * settings.blocks);
  gpusock::Mapped<redis::Outcome> outcomes(context, settings.blocks);
  const redis::Buffers buffers{out.data(), block.out, values.data(), block.values};
  gpusock::launch(context, {.grid = settings.blocks, .block = settings.threads}, redis::talk, context.net(), to,
                  plan_of(settings), buffers, outcomes.data());
  context.synchronize();
  for (const redis::Outcome& outcome : outcomes) {
    if (outcome.failure != redis::Failure::none) throw std::runtime_error(settings.where + ": " + reason(outcome, to));
  }
  print_rates(outcomes, settings.pipeline);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Sets, gets (one by one, then several at once) and deletes keys of a Redis server from a kernel, checks every "
      "answer, and\n"
      "prints commands per second.",
      "The keys are gpusock:0000000000 and so on; they are gone at the end, unless something failed.");
  Settings settings;
  arguments.positional("ENDPOINT", settings.where, "host:port of the server");
  arguments.number("--keys", settings.keys, "keys", 1, redis::kKeysMax);
  arguments.bytes("--value-bytes", settings.value_bytes, "size of each value", 1, 64 << 10);
  arguments.number("--pipeline", settings.pipeline, "commands sent before their answers are read", 1, 4096);
  arguments.number("--mget", settings.mget, "keys of an MGET", 1, 64);
  arguments.number("--blocks", settings.blocks, "blocks, each with a connection and keys of its own", 1, 64);
  arguments.number("--threads", settings.threads, "threads in a block", 1, redis::kThreadsMax);
  arguments.number("--timeout-ms", settings.timeout_ms, "milliseconds to wait for the server", 1, 3'600'000);
  arguments.check([&] { return problem_of(settings); });
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return endpoint_of(settings); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("redis_client", [&] { return run(settings); });
}
