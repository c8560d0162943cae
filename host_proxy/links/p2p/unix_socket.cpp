#include "host_proxy/links/p2p/unix_socket.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace gpusock::proxy {

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

bool same_user(int connection) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 && credentials.uid == geteuid();
}

namespace {

/// A message of one byte with room for one descriptor beside it.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 1;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

}  // namespace

bool send_descriptor(int connection, int descriptor) {
  DescriptorMessage out;
  cmsghdr* header = CMSG_FIRSTHDR(&out.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return uninterrupted([&] { return sendmsg(connection, &out.message, MSG_DONTWAIT | MSG_NOSIGNAL); }) == 1;
}

int receive_descriptor(int connection) {
  std::optional<DescriptorMessage> message;
  const ssize_t bytes = receive_or_end(
      [&] { return recvmsg(connection, &message.emplace().message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (bytes < 0) return -1;
  DescriptorMessage& in = *message;
  const cmsghdr* header = CMSG_FIRSTHDR(&in.message);
  int descriptors[2] = {-1, -1};  // one is expected; padding leaves room for a second, of a malicious peer
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptors, CMSG_DATA(header),
                std::min<std::size_t>(header->cmsg_len - CMSG_LEN(0), sizeof descriptors));
  }
  if (descriptors[1] >= 0) ::close(descriptors[1]);
  if (bytes == 1 && descriptors[0] >= 0 && descriptors[1] < 0) return descriptors[0];
  if (descriptors[0] >= 0) ::close(descriptors[0]);
  errno = EPROTO;
  return -1;
}

Descriptor ask_at(const std::string& name, const std::array<std::uint8_t, 16>& says) {
  Descriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name, address);
  const auto connect = [&] { return ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), bytes); };
  const auto say = [&] { return ::send(connection.get(), says.data(), says.size(), MSG_DONTWAIT | MSG_NOSIGNAL); };
  const bool said = connection && uninterrupted(connect) == 0 && same_user(connection.get()) &&
                    uninterrupted(say) == static_cast<ssize_t>(says.size());
  return said ? std::move(connection) : Descriptor();
}

}  // namespace gpusock::proxy
