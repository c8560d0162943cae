#pragma once
/// @file The kernel: each block talks to the server on a connection of its own, about keys of its own.

#include "examples/redis_client/commands.cuh"
#include "examples/redis_client/resp.cuh"

#include <gpusock/device.cuh>

namespace redis {

enum class Failure : std::int32_t { none, connecting, sending, receiving, server_error, protocol, wrong_answer };

/// What a block tells the host.
struct Outcome {
  Failure failure;
  std::int32_t error;  ///< connecting, sending, receiving: the negated errno; 0: the server ended the connection
  Command during;
  char message[256];  ///< server_error: its words
  std::uint64_t commands[kCommands];
  std::uint64_t time_ns[kCommands];
};

/// Where in the input a value is.
struct Value {
  const char* data;
  std::size_t bytes;
};

/// The block's memory.
struct Buffers {
  char* out;
  std::size_t out_bytes;
  char* in;
  std::size_t in_bytes;
  Value* values;
  std::size_t values_max;
};

/// How far the replies to one pipeline are read; in the block's shared memory, written by its leader.
struct Progress {
  std::size_t there;            // bytes
  std::size_t parsed;           // of them
  std::uint64_t replies_left;   // of which nothing is read
  std::uint64_t elements_left;  // of the array that is being read
  std::uint64_t values;
  Failure failure;
};

__device__ inline void keep_message(Outcome& outcome, const Parsed& parsed) {
  const std::size_t bytes = parsed.text_bytes < sizeof outcome.message - 1 ? parsed.text_bytes
                                                                           : sizeof outcome.message - 1;
  for (std::size_t i = 0; i < bytes; ++i) outcome.message[i] = parsed.text[i];
  outcome.message[bytes] = '\0';
}

/// True if the command's replies consist of such parts; `in_array`: of an array's elements.
__device__ inline bool expected(const Parsed& parsed, Command command, bool in_array, const Plan& plan) {
  if (command == Command::set) {
    return parsed.element == Element::simple && parsed.text_bytes == 2 && parsed.text[0] == 'O' &&
           parsed.text[1] == 'K';
  }
  if (command == Command::del) return parsed.element == Element::integer && parsed.number == 1;
  if (command == Command::mget && !in_array)
    return parsed.element == Element::array && parsed.number == plan.keys_of_mget;
  return parsed.element == Element::bulk && parsed.text_bytes == plan.value_bytes;
}

/// The leader's part: takes complete elements from what has come. There is room for as many values as the commands ask
/// for: only replies of just that shape are taken.
__device__ inline void parse_more(Progress& progress, const Buffers& buffers, Command command, const Plan& plan,
                                  Outcome& outcome) {
  while (progress.replies_left + progress.elements_left != 0) {
    const bool in_array = progress.elements_left != 0;
    const Parsed parsed = parse_element(buffers.in + progress.parsed, progress.there - progress.parsed);
    const bool too_long = parsed.element == Element::incomplete &&
                          parsed.number > static_cast<std::int64_t>(plan.value_bytes);
    if (parsed.element == Element::incomplete && !too_long) return;
    if (parsed.element == Element::error) keep_message(outcome, parsed);
    if (too_long || !expected(parsed, command, in_array, plan)) {
      progress.failure = parsed.element == Element::error    ? Failure::server_error
                         : parsed.element == Element::broken ? Failure::protocol
                                                             : Failure::wrong_answer;
      return;
    }
    progress.parsed += parsed.bytes;
    --(in_array ? progress.elements_left : progress.replies_left);
    if (parsed.element == Element::array) progress.elements_left = static_cast<std::uint64_t>(parsed.number);
    if (parsed.element == Element::bulk) buffers.values[progress.values++] = {parsed.text, parsed.text_bytes};
  }
  if (progress.parsed != progress.there) progress.failure = Failure::protocol;  // more replies than commands
}

/// Receives the replies to `commands` commands. None: all are there, and of the right kind.
template <class Block>
__device__ Failure receive_replies(const Block& block, const gpusock::Net& net, gpusock::Socket socket, Command command,
                                   unsigned commands, const Plan& plan, const Buffers& buffers, Outcome& outcome) {
  __shared__ Progress progress;
  const auto deadline = gpusock::Deadline::after_ns(plan.timeout_ns);
  block.sync();
  if (block.thread_rank() == 0) progress = {0, 0, commands, 0, 0, Failure::none};
  block.sync();
  for (;;) {
    const std::size_t there = progress.there;
    const std::size_t room = buffers.in_bytes - there;
    const auto got = room == 0 ? -EMSGSIZE : net.recv(block, socket, buffers.in + there, room, 0, deadline);
    if (got <= 0) {
      if (block.thread_rank() == 0) outcome.error = static_cast<std::int32_t>(got);
      return Failure::receiving;
    }
    if (block.thread_rank() == 0) {
      progress.there += static_cast<std::size_t>(got);
      parse_more(progress, buffers, command, plan, outcome);
    }
    block.sync();
    if (progress.failure != Failure::none) return progress.failure;
    if (progress.replies_left + progress.elements_left == 0) return Failure::none;
  }
}

/// Checks that the values are those that were set. Each thread checks its share.
template <class Block>
__device__ Failure check_values(const Block& block, const Plan& plan, const Buffers& buffers, Command command,
                                unsigned commands, std::uint64_t first, std::uint64_t begin, std::uint64_t end) {
  __shared__ unsigned wrong;
  if (block.thread_rank() == 0) wrong = 0;
  block.sync();
  const std::uint64_t values = std::uint64_t{commands} * plan.keys_of(command);
  for (std::uint64_t i = block.thread_rank(); i < values; i += block.size()) {
    const std::uint64_t key = begin + (first - begin + i) % (end - begin);
    unsigned differ = 0;
    for (std::uint64_t k = 0; k < plan.value_bytes; ++k) differ += buffers.values[i].data[k] != value_byte(key, k);
    if (differ != 0) atomicAdd(&wrong, 1u);
  }
  block.sync();
  return wrong == 0 ? Failure::none : Failure::wrong_answer;
}

/// Sends one command after the other about all keys of [begin, end), and checks the replies.
template <class Block>
__device__ Failure run_command(const Block& block, const gpusock::Net& net, gpusock::Socket socket, Command command,
                               const Plan& plan, const Buffers& buffers, std::uint64_t begin, std::uint64_t end,
                               Outcome& outcome) {
  const std::uint64_t keys = plan.keys_of(command), commands = (end - begin + keys - 1) / keys;
  const std::size_t size = write_command(nullptr, command, plan, begin, begin, end);
  const auto start_ns = gpusock::clock_ns();
  for (std::uint64_t done = 0; done < commands;) {
    const auto now = static_cast<unsigned>(commands - done < plan.pipeline ? commands - done : plan.pipeline);
    const std::uint64_t first = begin + done * keys;
    for (unsigned i = block.thread_rank(); i < now; i += block.size()) {
      write_command(buffers.out + i * size, command, plan, first + i * keys, begin, end);
    }
    block.sync();
    const auto deadline = gpusock::Deadline::after_ns(plan.timeout_ns);
    const auto sent = net.send(block, socket, buffers.out, now * size, gpusock::kWaitAll, deadline);
    if (sent < 0) {
      if (block.thread_rank() == 0) outcome.error = static_cast<std::int32_t>(sent);
      return Failure::sending;
    }
    Failure failure = receive_replies(block, net, socket, command, now, plan, buffers, outcome);
    const bool has_values = command == Command::get || command == Command::mget;
    if (failure == Failure::none && has_values)
      failure = check_values(block, plan, buffers, command, now, first, begin, end);
    if (failure != Failure::none) return failure;
    done += now;
  }
  if (block.thread_rank() == 0) {
    outcome.commands[static_cast<int>(command)] = commands;
    outcome.time_ns[static_cast<int>(command)] = gpusock::clock_ns() - start_ns;
  }
  return Failure::none;
}

/// Sets, gets and deletes the block's keys.
__global__ void talk(gpusock::Net net, gpusock::Endpoint to, Plan plan, Buffers of_blocks, Outcome* outcomes) {
  const auto block = gpusock::this_block();
  Outcome& outcome = outcomes[blockIdx.x];
  const std::uint64_t begin = plan.keys * blockIdx.x / gridDim.x, end = plan.keys * (blockIdx.x + 1) / gridDim.x;
  Buffers buffers = of_blocks;
  buffers.out += blockIdx.x * buffers.out_bytes;
  buffers.in += blockIdx.x * buffers.in_bytes;
  buffers.values += blockIdx.x * buffers.values_max;

  const auto socket = net.connect(block, to, gpusock::Deadline::after_ns(plan.timeout_ns));
  if (socket < 0) {
    if (block.thread_rank() == 0) {
      outcome.failure = Failure::connecting;
      outcome.error = socket;
    }
    return;
  }
  Failure failure = Failure::none;
  for (int i = 0; i < kCommands && failure == Failure::none; ++i) {
    failure = run_command(block, net, socket, static_cast<Command>(i), plan, buffers, begin, end, outcome);
    if (failure != Failure::none && block.thread_rank() == 0) {
      outcome.failure = failure;
      outcome.during = static_cast<Command>(i);
    }
  }
  net.close(block, socket);
}

}  // namespace redis
