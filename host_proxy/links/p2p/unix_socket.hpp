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

/// False where it cannot be sent now.
bool send_descriptor(int connection, int descriptor);

/// Receives without waiting, and receives again after a 0, which need not mean the end. Linux looks for a message and
/// then, apart from that, whether the peer has closed (__unix_dgram_recvmsg in net/unix/af_unix.c). Where the peer
/// sends and closes between the two looks, the call gives 0 although a message is there. Nothing is sent after the
/// close, so the second 0 is the end.
template <class Receive>
ssize_t receive_or_end(Receive receive) {
  const ssize_t bytes = uninterrupted(receive);
  return bytes == 0 ? uninterrupted(receive) : bytes;
}

/// The same, of a byte.
bool send_byte(int connection, std::byte byte);

/// A message, and the descriptor that came beside it, if one did.
struct ReceivedMessage {
  ssize_t bytes = -1;  ///< 0: the connection has ended; -1: see `error`
  int error = 0;       ///< EAGAIN: none has come; EPROTO: it was longer than the room, or had several descriptors;
                       ///< EMFILE: this process has none left for the descriptor that came
  Descriptor descriptor;
};
/// Does not wait.
ReceivedMessage receive_message(int connection, std::span<std::byte> room);

/// A descriptor that was sent, -1 with errno EAGAIN while there is none, or -1.
int receive_descriptor(int connection);

/// A connection to the socket of this name, to which these bytes were sent, with a descriptor unless that is -1;
/// nothing, with errno, where that cannot be done at once.
Descriptor ask_at(const std::string& name, std::span<const std::byte> says, int descriptor = -1);

}  // namespace gpusock::proxy
