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

/// A message with room for one descriptor beside it.
struct DescriptorMessage {
  explicit DescriptorMessage(std::span<std::byte> bytes) : vector{bytes.data(), bytes.size()} {
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  iovec vector;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool send_with_descriptor(int connection, std::span<const std::byte> says, int descriptor) {
  DescriptorMessage out({const_cast<std::byte*>(says.data()), says.size()});  // sendmsg() only reads
  cmsghdr* header = CMSG_FIRSTHDR(&out.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  const auto send = [&] { return sendmsg(connection, &out.message, MSG_DONTWAIT | MSG_NOSIGNAL); };
  return uninterrupted(send) == static_cast<ssize_t>(says.size());
}

bool send_bytes(int connection, std::span<const std::byte> says) {
  const auto send = [&] { return ::send(connection, says.data(), says.size(), MSG_DONTWAIT | MSG_NOSIGNAL); };
  return uninterrupted(send) == static_cast<ssize_t>(says.size());
}

}  // namespace

bool send_descriptor(int connection, int descriptor) {
  const std::byte byte{1};
  return send_with_descriptor(connection, {&byte, 1}, descriptor);
}

bool send_byte(int connection, std::byte byte) { return send_bytes(connection, {&byte, 1}); }

ReceivedMessage receive_message(int connection, std::span<std::byte> room) {
  std::optional<DescriptorMessage> message;
  const ssize_t bytes = receive_or_end(
      [&] { return recvmsg(connection, &message.emplace(room).message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (bytes < 0) return {-1, errno, {}};
  DescriptorMessage& in = *message;
  const cmsghdr* header = CMSG_FIRSTHDR(&in.message);
  int descriptors[2] = {-1, -1};  // one is expected; the padding has room for a malicious peer's second one
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptors, CMSG_DATA(header),
                std::min<std::size_t>(header->cmsg_len - CMSG_LEN(0), sizeof descriptors));
  }
  Descriptor first(descriptors[0]);
  const Descriptor second(descriptors[1]);
  // There was room for one, so this process has no descriptor left.
  const bool has_none_left = (in.message.msg_flags & MSG_CTRUNC) != 0 && !first;
  if (has_none_left) return {-1, EMFILE, {}};
  if (second || (in.message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return {-1, EPROTO, {}};
  return {bytes, 0, std::move(first)};
}

int receive_descriptor(int connection) {
  std::byte byte{};
  ReceivedMessage message = receive_message(connection, {&byte, 1});
  errno = message.bytes < 0 ? message.error : EPROTO;
  return message.bytes == 1 && message.descriptor ? message.descriptor.release() : -1;
}

Descriptor ask_at(const std::string& name, std::span<const std::byte> says, int descriptor) {
  Descriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t bytes = abstract_address(name, address);
  const auto connect = [&] { return ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), bytes); };
  if (!connection || uninterrupted(connect) != 0) return {};
  if (!same_user(connection.get())) {
    errno = EPERM;
    return {};
  }
  const bool said = descriptor < 0 ? send_bytes(connection.get(), says)
                                   : send_with_descriptor(connection.get(), says, descriptor);
  return said ? std::move(connection) : Descriptor();
}

}  // namespace gpusock::proxy
