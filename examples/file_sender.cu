// Sends files from a host thread to a kernel, which answers with the CRC-32 of what arrived.
//   file_sender receive 127.0.0.1:7000          and, elsewhere: file_sender send 127.0.0.1:7000 FILE
//   file_sender local FILE                      both in one program
//
// Protocol, all numbers little-endian: the sender sends 8 bytes "gpufile1", the size in 8 bytes, and the file. The
// receiver answers with the number of bytes in 8 bytes, the CRC-32 (that of zlib) in 4, and an errno in 4: 0 if the
// file is whole.
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>
#include <gpusock/owned_socket.cuh>

#include "examples/crc32.cuh"
#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;
using gpusock::program::Attempt;

constexpr int kBacklog = 128;
/// The most threads of a block. receive_each() is compiled for this number: else nvcc may give a thread more registers
/// than a GPU has for so many threads.
constexpr unsigned kThreadsMax = 512;
constexpr std::size_t kBufferBytes = 256 * 1024;
constexpr std::int64_t kDrainBytesMax = 16 << 20;
constexpr std::uint64_t kMagic = 0x31656C6966757067;  // "gpufile1"

struct Header {
  std::uint64_t magic;
  std::uint64_t bytes;
};
struct Answer {
  std::uint64_t bytes;
  std::uint32_t crc;
  std::int32_t error;  ///< errno
};

/// What the kernels tell the host.
struct Report {
  Socket listener;  ///< the listener, or why there is none
  Endpoint local;
  std::int32_t failed;  ///< 0, or why accepting ended
};
struct Totals {
  std::uint64_t files, bytes, lost;
};

__global__ void open_listener(Net net, Endpoint at, Report* report) {
  report->listener = net.listen(gpusock::this_thread(), at, kBacklog);
  if (report->listener >= 0) net.getsockname(report->listener, report->local);
}

/// Receives a file through `buffer` and computes its CRC on the way. Returns the answer to send.
template <class Block>
__device__ Answer receive_file(const Block& block, const Net& net, Socket sender, std::byte* buffer,
                               const block_crc::Tables& tables, std::uint64_t patience_ns) {
  __shared__ Header header;
  const auto got = net.recv(block, sender, &header, sizeof header, gpusock::kWaitAll, Deadline::after_ns(patience_ns));
  if (got != sizeof header || header.magic != kMagic) return {0, 0, got < 0 ? static_cast<std::int32_t>(-got) : EPROTO};
  const std::uint64_t bytes = header.bytes;
  std::uint32_t state = block_crc::kStart;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t most = bytes - done < kBufferBytes ? bytes - done : kBufferBytes;
    const auto piece = net.recv(block, sender, buffer, most, 0, Deadline::after_ns(patience_ns));
    if (piece <= 0) return {done, ~state, piece < 0 ? static_cast<std::int32_t>(-piece) : EPIPE};
    state = block_crc::update(block, tables, state, buffer, static_cast<std::uint64_t>(piece));
    done += static_cast<std::uint64_t>(piece);
  }
  return {bytes, ~state, 0};
}

/// Reads what still arrives until the sender closes, too: a close with unread input would make TCP drop the answer.
template <class Block>
__device__ void drain(const Block& block, const Net& net, Socket sender, std::byte* buffer) {
  net.shutdown(block, sender, gpusock::Shutdown::write);
  const Deadline until = Deadline::after_ms(1000);
  for (std::int64_t left = kDrainBytesMax, got = 1; left > 0 && got > 0; left -= got) {
    got = net.recv(block, sender, buffer, kBufferBytes, 0, until);
  }
}

/// Each block receives one file after the other; all of them accept on the same listener.
__global__ void __launch_bounds__(kThreadsMax, 1)
    receive_each(Net net, Socket listener, std::byte* buffers, Report* report, Totals* totals,
                 std::uint64_t patience_ns) {
  const auto block = gpusock::this_block();
  __shared__ block_crc::Tables tables;
  __shared__ Answer answer;
  block_crc::prepare(block, tables);
  std::byte* buffer = buffers + blockIdx.x * kBufferBytes;
  for (;;) {
    // Only this block uses the socket: its calls are counted once, and the end of the scope closes the socket.
    const gpusock::OwnedSocket sender(block, net, net.accept(block, listener, gpusock::Deadline::never()));
    if (sender.error() != 0) {
      if (sender.error() != -ECANCELED && block.thread_rank() == 0) report->failed = sender.error();
      return;
    }
    const Answer got = receive_file(block, sender.net(), sender.socket(), buffer, tables, patience_ns);
    if (block.thread_rank() == 0) {
      answer = got;
      Totals& mine = totals[blockIdx.x];
      mine.bytes += got.bytes;
      mine.files += got.error == 0;
      mine.lost += got.error != 0;
    }
    block.sync();
    sender.net().send(block, sender.socket(), &answer, sizeof answer, gpusock::kWaitAll,
                      Deadline::after_ns(patience_ns));
    if (got.error == EPROTO) drain(block, sender.net(), sender.socket(), buffer);
  }
}

struct Settings {
  std::string where = "127.0.0.1:0";
  std::string file;
  unsigned blocks = 8, threads = 64, patience_s = 30;

  std::uint64_t patience_ns() const { return patience_s * 1'000'000'000ull; }
};

/// The receiving kernel, with everything that it needs.
class Receiver {
 public:
  explicit Receiver(const Settings& settings)
      : settings_(settings), buffers_(context_, settings.blocks * kBufferBytes), totals_(context_, settings.blocks) {
    const Endpoint at = examples::stream_endpoint(settings.where);
    gpusock::launch(context_, {.grid = 1, .block = 1}, open_listener, context_.net(), at, report_.data());
    context_.synchronize();
    if (report_[0].listener < 0) {
      throw gpusock::program::SocketFailure("listening on " + settings.where, Attempt::listening, -report_[0].listener,
                                            at);
    }
    gpusock::launch(context_, {.grid = settings.blocks, .block = settings.threads, .stream = &stream_}, receive_each,
                    context_.net(), report_[0].listener, buffers_.data(), report_.data(), totals_.data(),
                    settings.patience_ns());
  }

  ~Receiver() { context_.cancel(); }  // its members' destructors wait for the kernel

  Endpoint local() const { return report_[0].local; }
  bool ended() const { return stream_.idle(); }

  /// Ends the kernel, and returns what it has received.
  Totals stop() {
    context_.cancel();
    context_.synchronize();
    if (report_[0].failed < 0) throw gpusock::Error(-report_[0].failed, "accepting on " + settings_.where);
    Totals sum{};
    for (const Totals& block : totals_) sum = {sum.files + block.files, sum.bytes + block.bytes, sum.lost + block.lost};
    return sum;
  }

 private:
  Settings settings_;
  gpusock::Context context_{gpusock::Options::from_env()};
  gpusock::Mapped<Report> report_{context_, 1};
  gpusock::DeviceBuffer<std::byte> buffers_;
  gpusock::Mapped<Totals> totals_;
  gpusock::Stream stream_{context_};
};

/// Sends a file from a host thread, which makes the same calls as kernels.
class Sender {
 public:
  Sender(const Net& net, const Settings& settings, std::uint64_t bytes)
      : net_(net), settings_(settings), bytes_(bytes) {}

  void connect(const Endpoint& to) {
    socket_ = net_.connect(gpusock::this_thread(), to, Deadline::after_ns(settings_.patience_ns()));
    if (socket_ < 0)
      throw gpusock::program::SocketFailure("connecting to " + to.host_port(), Attempt::connecting, -socket_, to);
  }

  /// Sends the header and the whole file. Returns the file's CRC.
  std::uint32_t send(std::ifstream& file) {
    const Header header{kMagic, bytes_};
    send_all(&header, sizeof header);
    std::vector<char> buffer(kBufferBytes);
    uLong crc = crc32_z(0, nullptr, 0);
    for (done_ = 0; done_ < bytes_;) {
      const auto piece = std::min<std::uint64_t>(bytes_ - done_, kBufferBytes);
      if (!file.read(buffer.data(), static_cast<std::streamsize>(piece)))
        fail(EIO,
             ": the rest cannot be read; did the file shrink? A file in /sys holds less than its size says: send a "
             "copy");
      crc = crc32_z(crc, reinterpret_cast<const Bytef*>(buffer.data()), piece);
      send_all(buffer.data(), piece);
      done_ += piece;
    }
    return static_cast<std::uint32_t>(crc);
  }

  /// Waits for the receiver's answer, and checks it.
  void check_answer(std::uint32_t crc) {
    Answer answer{};
    const auto got = net_.recv(gpusock::this_thread(), socket_, &answer, sizeof answer, gpusock::kWaitAll,
                               Deadline::after_ns(settings_.patience_ns()));
    if (got < 0) fail(static_cast<int>(-got), ", waiting for the answer");
    if (got != sizeof answer) fail(ECONNRESET, ": the receiver ended the connection before it answered");
    constexpr std::int32_t kErrnoMax = 4095;
    if (answer.error < 0 || answer.error > kErrnoMax || answer.bytes > bytes_)
      fail(EPROTO, ": what answered is no file_sender");
    if (answer.error != 0) fail(answer.error, ": the receiver did not get all of it");
    if (answer.bytes != bytes_ || answer.crc != crc) fail(EBADMSG, ": it arrived damaged");
  }

 private:
  void send_all(const void* data, std::uint64_t bytes) {
    for (std::uint64_t sent = 0; sent < bytes;) {
      const auto more = net_.send(gpusock::this_thread(), socket_, static_cast<const char*>(data) + sent, bytes - sent,
                                  0, Deadline::after_ns(settings_.patience_ns()));
      if (more < 0) fail(static_cast<int>(-more), "");
      sent += static_cast<std::uint64_t>(more);
    }
  }
  [[noreturn]] void fail(int error, const std::string& why) const {
    throw gpusock::Error(error, "sending " + settings_.file + ", after " + std::to_string(done_) + " of " +
                                    std::to_string(bytes_) + " bytes" + why);
  }

  Net net_;
  const Settings& settings_;
  std::uint64_t bytes_;
  std::uint64_t done_ = 0;
  Socket socket_ = -1;
};

/// Sends the file to a receiver, from this thread and with a context of its own, and prints the result.
void send_file(const Endpoint& to, const Settings& settings) {
  std::error_code error;
  const auto status = std::filesystem::status(settings.file, error);
  if (!std::filesystem::exists(status)) throw gpusock::Error(error ? error.value() : ENOENT, settings.file);
  if (!std::filesystem::is_regular_file(status)) throw gpusock::Error(EINVAL, settings.file + " is not a regular file");
  errno = 0;
  std::ifstream file(settings.file, std::ios::binary);
  if (!file) throw gpusock::Error(errno != 0 ? errno : EIO, "opening " + settings.file);
  const std::uint64_t bytes = std::filesystem::file_size(settings.file);
  if (bytes == 0 && file.peek() != std::ifstream::traits_type::eof()) {
    throw gpusock::Error(EINVAL, settings.file + " does not say its size, as files in /proc do not: send a copy of it");
  }

  gpusock::Context context(gpusock::Options::from_env());
  Sender sender(context.net(), settings, bytes);
  const auto start = std::chrono::steady_clock::now();
  sender.connect(to);
  const std::uint32_t crc = sender.send(file);
  sender.check_answer(crc);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  char line[128];
  std::snprintf(line, sizeof line, ": %llu bytes, crc32 %08x, %.3f s, %.1f MB/s\n",
                static_cast<unsigned long long>(bytes), crc, took.count(),
                static_cast<double>(bytes) / 1e6 / took.count());
  gpusock::program::print(settings.file + line);
  if (gpusock::program::flush_output()) return;
  std::cerr << "file_sender: " << settings.file << " was sent, but that cannot be printed\n";
}

int receive_files(const Settings& settings) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  Receiver receiver(settings);
  gpusock::program::print_now("listening on " + receiver.local().to_string() + "\n");
  gpusock::program::wait_for_stop([&] { return receiver.ended(); });
  const Totals totals = receiver.stop();
  std::cout << "received " << totals.files << " files, " << totals.bytes << " bytes; " << totals.lost << " not whole"
            << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments("Sends files from a host thread to a kernel, which answers with their CRC-32.");
  Settings settings;
  std::string link = "auto";
  auto& receive = arguments.command("receive", "Receives files in kernels, several at once, until SIGINT or SIGTERM.");
  auto& send = arguments.command("send", "Sends one file to a receiver.");
  auto& local = arguments.command("local", "Sends one file to a kernel of the same program.");
  const char* endpoint_help = "host:port[,link=auto|p2p|verbs|fabric|tcp]";
  receive.positional("ENDPOINT", settings.where, std::string(endpoint_help) + "; port 0 picks one");
  send.positional("ENDPOINT", settings.where, endpoint_help);
  send.positional("FILE", settings.file, "what to send");
  local.positional("FILE", settings.file, "what to send");
  local.choice("--link", link, gpusock::program::link_names(), "what carries it");
  for (auto* command : {&receive, &local}) {
    command->number("--blocks", settings.blocks,
                    "blocks, each receiving one file at a time; more senders wait their turn", 1, 256);
    command->number("--threads", settings.threads, "threads in a block", 1, kThreadsMax);
  }
  for (auto* command : {&receive, &send, &local}) {
    command->number("--patience", settings.patience_s, "seconds without any progress after which a peer is given up", 1,
                    3600);
  }
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check(
      [&] { return examples::problem_of_endpoint([&] { return examples::stream_endpoint(settings.where); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("file_sender", [&] {
    if (receive.given()) return receive_files(settings);
    if (send.given()) {
      send_file(examples::stream_endpoint(settings.where), settings);
    } else {
      settings.where = "127.0.0.1:0,link=" + link;
      Receiver receiver(settings);
      send_file(receiver.local(), settings);
      receiver.stop();
    }
    return EXIT_SUCCESS;
  });
}
