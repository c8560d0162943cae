// A Redis client in a kernel: sets, gets and deletes keys of a redis-server, many commands at a time, and checks the answers.
//   redis_client 127.0.0.1:6379
#include "examples/redis_client/client.cuh"

#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "program/arguments.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <system_error>

namespace {

using gpusock::Endpoint;

constexpr const char* kNames[redis::kCommands] = {"SET", "GET", "MGET", "DEL"};
constexpr std::size_t kReplyOverhead = 64;  // of the lines around a value, and room for an error's text beside short values

struct Settings {
  std::string where;
  std::uint64_t keys = 10'000, value_bytes = 64;
  unsigned blocks = 1, threads = 64, pipeline = 64, mget = 16, timeout_ms = 10'000;
};

std::string plain_tcp(const std::string& where) { return where.find(',') == std::string::npos ? where + ",link=tcp" : where; }

std::string reason(const redis::Outcome& outcome) {
  const std::string name = kNames[static_cast<int>(outcome.during)];
  const std::string text =
      outcome.error == 0 ? "the server ended the connection" : std::generic_category().message(-outcome.error);
  switch (outcome.failure) {
    case redis::Failure::connecting: return "connecting: " + text + " (is redis-server running there?)";
    case redis::Failure::sending: return "sending " + name + ": " + text;
    case redis::Failure::receiving: return "receiving the answers to " + name + ": " + text;
    case redis::Failure::server_error: return "the server answered " + name + " with: " + outcome.message;
    case redis::Failure::protocol: return "what came back for " + name + " is not RESP: is this a Redis server?";
    case redis::Failure::wrong_answer: return "a wrong answer to " + name + ": does something else write to the keys gpusock:*?";
    case redis::Failure::none: break;
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
  const redis::Plan plan{settings.keys, settings.value_bytes, settings.pipeline, settings.mget,
                         settings.timeout_ms * std::uint64_t{1'000'000}};
  std::size_t command_bytes = 0;
  for (int i = 0; i < redis::kCommands; ++i) {
    command_bytes = std::max(command_bytes,
                             redis::write_command(nullptr, static_cast<redis::Command>(i), plan, 0, 0, settings.keys));
  }
  const std::size_t values = std::size_t{settings.pipeline} * settings.mget;
  const std::size_t in_bytes = values * (settings.value_bytes + kReplyOverhead) + redis::kLineBytesMax;
  gpusock::DeviceBuffer<char> out(context, command_bytes * settings.pipeline * settings.blocks);
  gpusock::DeviceBuffer<char> in(context, in_bytes * settings.blocks);
  gpusock::DeviceBuffer<redis::Value> places(context, values * settings.blocks);
  gpusock::Mapped<redis::Outcome> outcomes(context, settings.blocks);
  const redis::Buffers buffers{out.data(), command_bytes * settings.pipeline, in.data(), in_bytes, places.data()};
  gpusock::launch(context, {.grid = settings.blocks, .block = settings.threads}, redis::talk, context.net(),
                  Endpoint::parse(plain_tcp(settings.where)), plan, buffers, values, outcomes.data());
  context.synchronize();
  for (const redis::Outcome& outcome : outcomes) {
    if (outcome.failure != redis::Failure::none) throw std::runtime_error(settings.where + ": " + reason(outcome));
  }
  print_rates(outcomes, settings.pipeline);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Sets, gets (one by one, then several at once) and deletes keys of a Redis server from a kernel, checks every answer, and\n"
      "prints commands per second.",
      "The keys are gpusock:00000000 and so on; they are gone at the end, unless something failed.");
  Settings settings;
  arguments.positional("ENDPOINT", settings.where, "host:port of the server");
  arguments.number("--keys", settings.keys, "keys", 1, 100'000'000);
  arguments.bytes("--value-bytes", settings.value_bytes, "size of each value", 1, 64 << 10);
  arguments.number("--pipeline", settings.pipeline, "commands sent before their answers are read", 1, 4096);
  arguments.number("--mget", settings.mget, "keys of an MGET", 1, 64);
  arguments.number("--blocks", settings.blocks, "blocks, each with a connection and keys of its own", 1, 64);
  arguments.number("--threads", settings.threads, "threads in a block", 1, 1024);
  arguments.number("--timeout-ms", settings.timeout_ms, "milliseconds to wait for the server", 1, 3'600'000);
  arguments.check([&] { return std::string(settings.keys < settings.blocks ? "--keys: at least one for each block" : ""); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  try {
    const Endpoint to = Endpoint::parse(plain_tcp(settings.where));
    if (to.link != gpusock::LinkKind::tcp) {
      throw gpusock::Error(EINVAL, settings.where + ": Redis speaks plain TCP: leave out link=");
    }
    if (to.port == 0) throw gpusock::Error(EINVAL, settings.where + ": the server's port, not 0");
  } catch (const gpusock::Error& error) {
    std::cerr << "redis_client: " << error.what() << '\n';
    return error.code().value() == EINVAL ? gpusock::program::kMisuse : gpusock::program::kFailure;
  }
  try {
    return run(settings);
  } catch (const std::exception& error) {
    std::cerr << "redis_client: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
