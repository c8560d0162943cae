#pragma once
/// @file Unix sockets with abstract names, over which processes of one user give each other descriptors.

#include "host_proxy/base/descriptor.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

namespace gpusock::proxy {

socklen_t abstract_address(const std::string& name, sockaddr_un& address);

/// True if the other side runs as this process's user.
bool same_user(int connection);

/// Sends a descriptor. False if it cannot be sent now.
bool send_descriptor(int connection, int descriptor);

/// Receives without waiting, and receives again after a 0, which need not mean the end. Linux first looks for a message
/// and then checks separately whether the peer has closed (__unix_dgram_recvmsg in net/unix/af_unix.c). If the peer
/// sends and closes between the two, the call returns 0 although a message is there. Nothing is sent after the close,
/// so a second 0 is the end.
template <class Receive>
ssize_t receive_or_end(Receive receive) {
  const ssize_t bytes = uninterrupted(receive);
  return bytes == 0 ? uninterrupted(receive) : bytes;
}

/// Sends a byte. False if it cannot be sent now.
bool send_byte(int connection, std::byte byte);

/// A message, with the descriptor that came with it, if any.
struct ReceivedMessage {
  ssize_t bytes = -1;  ///< 0: the connection has ended; -1: see `error`
  int error = 0;       ///< EAGAIN: no message has come; EPROTO: it was longer than the room, or had several
                       ///< descriptors; EMFILE: this process has no descriptor left for the one that came
  Descriptor descriptor;
};
/// Receives a message. Does not wait.
ReceivedMessage receive_message(int connection, std::span<std::byte> room);

/// Receives a descriptor. Returns -1 with errno EAGAIN if none has come yet; -1 with another errno if that failed.
int receive_descriptor(int connection);

/// Connects to the socket of this name, and sends these bytes, with the descriptor unless it is -1. Returns the
/// connection; an empty Descriptor, with errno set, if that cannot be done at once.
Descriptor ask_at(const std::string& name, std::span<const std::byte> says, int descriptor = -1);

}  // namespace gpusock::proxy
