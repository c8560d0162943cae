#pragma once
/// @file The kernel: each block has a connection to the server and keys of its own.

#include "examples/redis_client/commands.cuh"
#include "examples/redis_client/resp.cuh"

#include <gpusock/io.cuh>
#include <gpusock/owned_socket.cuh>

namespace redis {

enum class Failure : std::int32_t { none, connecting, sending, receiving, server_error, protocol, wrong_answer };

/// What a block tells the host.
struct Outcome {
  Failure failure;
  std::int32_t error;  ///< of connecting, sending, receiving: the negated errno; 0: the server ended the connection
  Command during;
  char message[256];  ///< of server_error: the server's message
  std::uint64_t commands[kCommands];
  std::uint64_t time_ns[kCommands];
};

/// A block's memory.
struct Buffers {
  char* out;  ///< a pipeline of commands
  std::size_t out_bytes;
  char* values;  ///< the values in the replies to a pipeline, one after the other, in frames
  std::size_t values_bytes;
};

/// True if an element with this head belongs to the command's reply. `in_array`: it is an element of an array.
__device__ inline bool expected(const Head& head, Command command, bool in_array, const Plan& plan) {
  if (command == Command::set) return head.element == Element::simple && same(head.text, "OK");
  if (command == Command::del) return head.element == Element::integer && head.number == 1;
  if (command == Command::mget && !in_array) return head.element == Element::array && head.number == plan.keys_of_mget;
  return head.element == Element::bulk && head.number == static_cast<std::int64_t>(plan.value_bytes);
}

/// Says why nothing was received. A line that is too long does not come from Redis.
__device__ inline Failure no_more(const gpusock::Received& received, Outcome& outcome) {
  if (received.size == -EMSGSIZE) return Failure::protocol;
  const bool ended = received.ended() || received.size == -EPROTO;
  outcome.error = ended ? 0 : received.error();
  return Failure::receiving;
}

/// The frame of a value: the line feed that ends the line before it, and the line end after it.
inline constexpr std::size_t kBeforeValue = 1, kFrameBytes = kBeforeValue + 2;

/// Receives an element of a reply; if it is a value, stores it with its frame at `to`. One thread.
__device__ inline Failure receive_element(gpusock::Reader<gpusock::ThisThread>& reader, Command command, bool in_array,
                                          const Plan& plan, gpusock::Deadline deadline, char* to, Head& head,
                                          Outcome& outcome) {
  const auto line = reader.until('\r', deadline);
  if (!line) return no_more(line, outcome);
  head = parse_head(line.text());
  const bool right = expected(head, command, in_array, plan);
  if (head.element == Element::error) {
    gpusock::TextBuffer message(outcome.message, sizeof outcome.message - 1);
    message << head.text;
    outcome.message[message.bytes()] = '\0';
  }
  const bool value = right && head.element == Element::bulk;
  const auto rest = value ? reader.read(to, plan.value_bytes + kFrameBytes, deadline) : reader.exactly(1, deadline);
  if (!rest) return no_more(rest, outcome);
  if (rest.data[0] != '\n' || head.element == Element::broken) return Failure::protocol;
  if (!right) return head.element == Element::error ? Failure::server_error : Failure::wrong_answer;
  return !value || same(rest.text().from(kBeforeValue + plan.value_bytes), "\r\n") ? Failure::none : Failure::protocol;
}

/// Receives the replies to so many commands. Returns Failure::none if all have come, of the right kind. One thread.
__device__ inline Failure receive_replies(const gpusock::Net& net, gpusock::Socket socket, Command command,
                                          std::uint64_t replies, const Plan& plan, char* to, Outcome& outcome) {
  __shared__ char line[kLineBytesMax];
  const auto me = gpusock::this_thread();
  const auto deadline = gpusock::Deadline::after_ns(plan.timeout_ns);
  gpusock::Reader reader(me, net, socket, line, sizeof line);
  for (std::uint64_t elements = 0; replies + elements != 0;) {  // elements: left of the array that is being read
    Head head{};
    const Failure failure = receive_element(reader, command, elements != 0, plan, deadline, to, head, outcome);
    if (failure != Failure::none) return failure;
    --(elements != 0 ? elements : replies);
    if (head.element == Element::array) elements = static_cast<std::uint64_t>(head.number);
    if (head.element == Element::bulk) to += plan.value_bytes + kFrameBytes;
  }
  const auto surplus = net.peek(me, socket, 1, gpusock::Deadline::now());
  if (surplus.size > 0) net.release(me, socket, 0);
  return surplus.size > 0 ? Failure::protocol : Failure::none;  // more replies than commands
}

/// True if the values are those that were set. All threads call it; each checks its share.
template <class Block>
__device__ bool values_are_right(const Block& block, const Plan& plan, const Buffers& buffers, Command command,
                                 unsigned commands, std::uint64_t first, std::uint64_t begin, std::uint64_t end) {
  __shared__ unsigned wrong;
  if (block.thread_rank() == 0) wrong = 0;
  block.sync();
  const std::uint64_t values = std::uint64_t{commands} * plan.keys_of(command);
  for (std::uint64_t i = block.thread_rank(); i < values; i += block.size()) {
    const std::uint64_t key = begin + (first - begin + i) % (end - begin);
    unsigned differ = 0;
    const char* const value = buffers.values + i * (plan.value_bytes + kFrameBytes) + kBeforeValue;
    for (std::uint64_t k = 0; k < plan.value_bytes; ++k) differ += value[k] != value_byte(key, k);
    if (differ != 0) atomicAdd(&wrong, 1u);
  }
  block.sync();
  return wrong == 0;
}

/// Sends the command for all keys of [begin, end), pipeline after pipeline, and checks the replies.
template <class Block>
__device__ Failure run_command(const Block& block, const gpusock::Net& net, gpusock::Socket socket, Command command,
                               const Plan& plan, const Buffers& buffers, std::uint64_t begin, std::uint64_t end,
                               Outcome& outcome) {
  const std::uint64_t keys = plan.keys_of(command), commands = (end - begin + keys - 1) / keys;
  const std::size_t size = plan.command_bytes[static_cast<int>(command)];
  __shared__ Failure failure;
  const auto start_ns = gpusock::clock_ns();
  for (std::uint64_t done = 0; done < commands;) {
    const auto now = static_cast<unsigned>(commands - done < plan.pipeline ? commands - done : plan.pipeline);
    const std::uint64_t first = begin + done * keys;
    for (unsigned i = block.thread_rank(); i < now; i += block.size()) {
      TextBuffer to(buffers.out + i * size, size);
      write_command(to, command, plan, first + i * keys, begin, end);
    }
    block.sync();
    const auto deadline = gpusock::Deadline::after_ns(plan.timeout_ns);
    const auto sent = net.send(block, socket, buffers.out, now * size, gpusock::kWaitAll, deadline);
    if (sent < 0) {
      if (block.thread_rank() == 0) outcome.error = static_cast<std::int32_t>(sent);
      return Failure::sending;
    }
    if (block.thread_rank() == 0) failure = receive_replies(net, socket, command, now, plan, buffers.values, outcome);
    block.sync();
    if (failure != Failure::none) return failure;
    const bool has_values = command == Command::get || command == Command::mget;
    if (has_values && !values_are_right(block, plan, buffers, command, now, first, begin, end))
      return Failure::wrong_answer;
    done += now;
  }
  if (block.thread_rank() == 0) {
    outcome.commands[static_cast<int>(command)] = commands;
    outcome.time_ns[static_cast<int>(command)] = gpusock::clock_ns() - start_ns;
  }
  return Failure::none;
}

/// The most threads of a block. talk() is compiled for this number: else nvcc may give a thread more registers than a
/// GPU has for so many threads.
inline constexpr unsigned kThreadsMax = 256;

/// Sets, gets and deletes the block's keys.
__global__ void __launch_bounds__(kThreadsMax, 1)
    talk(gpusock::Net net, gpusock::Endpoint to, Plan plan, Buffers of_blocks, Outcome* outcomes) {
  const auto block = gpusock::this_block();
  Outcome& outcome = outcomes[blockIdx.x];
  const std::uint64_t begin = plan.keys * blockIdx.x / gridDim.x, end = plan.keys * (blockIdx.x + 1) / gridDim.x;
  Buffers buffers = of_blocks;
  buffers.out += blockIdx.x * buffers.out_bytes;
  buffers.values += blockIdx.x * buffers.values_bytes;

  // The block is counted into the socket once, not in each of its many calls.
  gpusock::OwnedSocket server(block, net, net.connect(block, to, gpusock::Deadline::after_ns(plan.timeout_ns)));
  if (server.error() != 0) {
    if (block.thread_rank() == 0) {
      outcome.failure = Failure::connecting;
      outcome.error = server.error();
    }
    return;
  }
  Failure failure = Failure::none;
  for (int i = 0; i < kCommands && failure == Failure::none; ++i) {
    failure = run_command(block, server.net(), server.socket(), static_cast<Command>(i), plan, buffers, begin, end,
                          outcome);
    if (failure != Failure::none && block.thread_rank() == 0) {
      outcome.failure = failure;
      outcome.during = static_cast<Command>(i);
    }
  }
}

}  // namespace redis
