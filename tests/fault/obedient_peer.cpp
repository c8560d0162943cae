#include "obedient_peer.hpp"

#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace gpusock::fault {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

class Connections {
 public:
  virtual ~Connections() = default;
  virtual bool connect(char name, const Endpoint& to) = 0;
  /// Sends as much as fills a ring of so many bytes, or all that goes.
  virtual void fill(char name, std::uint64_t ring_bytes) = 0;
  virtual void end(char name) = 0;
  virtual void reset_all() = 0;
  virtual void end_all() = 0;
  /// Waits for the next command; sends meanwhile where that was asked for.
  virtual void wait_for_input() {}

 protected:
  std::vector<char> piece_ = std::vector<char>(kPieceBytes, 'x');
};

class PlainConnections final : public Connections {
 public:
  bool connect(char name, const Endpoint& to) override {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    std::memcpy(&address.sin_addr, to.address, sizeof address.sin_addr);
    sockets_[name] = socket;
    const bool connected = ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    return connected && ::send(socket, &name, 1, 0) == 1;
  }
  void fill(char name, std::uint64_t) override { filling_.insert(sockets_[name]); }
  void end(char name) override { ::shutdown(sockets_[name], SHUT_WR); }
  void reset_all() override {
    const linger abort{1, 0};
    for (const auto& [name, socket] : sockets_) {
      setsockopt(socket, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
      ::close(socket);
    }
    sockets_.clear();
    filling_.clear();
  }
  void end_all() override {
    filling_.clear();
    for (const auto& [name, socket] : sockets_) ::shutdown(socket, SHUT_WR);
  }

  void wait_for_input() override {
    for (;;) {
      std::vector<pollfd> entries{{STDIN_FILENO, POLLIN, 0}};
      for (const int socket : filling_) entries.push_back({socket, POLLOUT, 0});
      ::poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) return;
      for (const pollfd& entry : entries) {
        if (entry.fd == STDIN_FILENO || entry.revents == 0) continue;
        const ssize_t sent = ::send(entry.fd, piece_.data(), piece_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) filling_.erase(entry.fd);
      }
    }
  }

 private:
  std::map<char, int> sockets_;
  std::set<int> filling_;
};

class GpusockConnections final : public Connections {
 public:
  bool connect(char name, const Endpoint& to) override {
    const Socket socket = sockets_[name] = net_.connect(this_thread(), to, patience());
    if (socket < 0) std::fprintf(stderr, "the peer could not connect: %s\n", std::strerror(-socket));
    return socket >= 0 && net_.send(this_thread(), socket, &name, 1, kWaitAll, patience()) == 1;
  }
  void fill(char name, std::uint64_t ring_bytes) override {
    net_.send(this_thread(), sockets_[name], piece_.data(), ring_bytes, kWaitAll, patience());
  }
  void end(char name) override { net_.shutdown(this_thread(), sockets_[name], Shutdown::write); }
  void reset_all() override {
    for (const auto& [name, socket] : sockets_) {
      net_.setsockopt(this_thread(), socket, SocketOption::linger, 0);
      net_.close(this_thread(), socket);
    }
  }
  void end_all() override {
    for (const auto& [name, socket] : sockets_) net_.shutdown(this_thread(), socket, Shutdown::write);
  }

 private:
  Context context_{patient_options()};
  Net net_ = context_.net();
  std::map<char, Socket> sockets_;
};

/// The next line of standard input, unbuffered, so that poll() knows what is left; empty at its end.
std::string next_line() {
  std::string line;
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

}  // namespace

Options patient_options() {
  Options options = Options::from_env();
  options.handshake_timeout_ns = kPatienceNs;
  return options;
}

int obey(bool plain) {
  std::unique_ptr<Connections> connections;
  if (plain) {
    connections = std::make_unique<PlainConnections>();
  } else {
    connections = std::make_unique<GpusockConnections>();
  }
  for (;;) {
    connections->wait_for_input();
    std::string command, detail;
    char name = 0;
    if (!(std::istringstream(next_line()) >> command >> name >> detail)) return 0;
    if (command == "connect" && !connections->connect(name, Endpoint::parse(detail))) return 1;
    if (command == "fill") connections->fill(name, std::stoull(detail));
    if (command == "end") connections->end(name);
    if (command == "end_all") connections->end_all();
    if (command == "reset") connections->reset_all();
  }
}

}  // namespace gpusock::fault
