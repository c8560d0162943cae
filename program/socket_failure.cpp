#include "program/socket_failure.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <cstdlib>

namespace gpusock::program {
namespace {

constexpr int kRootsPorts = 1024;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string host_of(const Endpoint& at) {
  const std::string text = at.host_port();
  const std::string host = text.substr(0, text.rfind(':'));
  return at.family == 6 ? host.substr(1, host.size() - 2) : host;
}

/// True if the library's log has just said why it refuses to listen, and what to do. Then no remedy repeats it.
bool library_has_said_why() { return variable("GPUSOCK_LOG") != "off"; }

std::string link_of(const Endpoint& at) { return "link=" + std::string(to_string(at.link)); }

/// Another possible cause, if the peer has to speak gpusock's handshake.
std::string or_plain_tcp(const Endpoint& at) {
  return at.is_plain_tcp() ? "" : "; if the peer does not speak gpusock, add link=tcp";
}

/// The remedy if there is no device or provider for the link.
std::string without_device(const Endpoint& at) {
  const std::string provider = variable("GPUSOCK_FABRIC_PROVIDER");
  if (at.link != LinkKind::fabric) {
    return "there is no device for " + link_of(at) +
           ", here or there; run gpusock-doctor on both hosts: it says what is missing. Or leave out " + link_of(at) +
           ": then the peers take the best link that both have";
  }
  if (provider.empty()) {
    return "libfabric has no provider for that network, here or there (where GPUSOCK_FABRIC_PROVIDER may name a wrong "
           "one); "
           "gpusock-doctor says which there are";
  }
  return "GPUSOCK_FABRIC_PROVIDER=" + provider +
         " names no provider that libfabric has for that network; unset it, or name one "
         "that gpusock-doctor lists";
}

std::string without_route(const Endpoint& at) {
  return "no way leads there; `ip route get " + host_of(at) + "` shows which this machine would take";
}

std::string without_room(const Endpoint& at) {
  const std::string limits =
      "there is no memory or descriptor for another connection, here or there; raise the limits "
      "(ulimit -n, -f, -v), or use fewer connections or smaller rings";
  if (at.link != LinkKind::p2p) return limits;
  return limits + "; between processes on a GPU, start all of them with GPUSOCK_HOST_RINGS=NAME,connections=N for more";
}

std::string remedy_of_both(int error, const Endpoint& at) {
  switch (error) {
    case EAFNOSUPPORT:
      if (at.family == 6) return "there is no IPv6 here; use an IPv4 address";
      return "there is no IPv4 here; use an IPv6 address";
    case EMFILE:
      return "too many files or sockets are open; raise the limit (ulimit -n)";
    case ENOBUFS:
      return without_room(at);
    case EPROTONOSUPPORT:
      return "there is no " + link_of(at) + ", here or there; gpusock-doctor says why";
    case ENODEV:
      return without_device(at);
    default:
      return {};
  }
}

std::string remedy_of_listening(int error, const Endpoint& at) {
  switch (error) {
    case EADDRINUSE:
      return "another process listens there; choose another port, or 0 for any free one (`ss -ltnp` shows who has it)";
    case EADDRNOTAVAIL:
      return "no interface of this machine has that address; `ip addr` shows which there are; 0.0.0.0 and [::] mean "
             "all";
    case EACCES:
      if (!at.is_plain_tcp() && !at.is_loopback() && variable("GPUSOCK_SECRET").empty()) {
        if (library_has_said_why()) return {};
        return "beyond loopback peers must share a secret; set GPUSOCK_SECRET to the same text for all of them, or "
               "name link=tcp "
               "to serve anyone";
      }
      if (at.port != 0 && at.port < kRootsPorts)
        return "ports below 1024 are root's; choose a higher one, or 0 for any free one";
      return {};
    case EPROTONOSUPPORT:
      return library_has_said_why() ? "" : remedy_of_both(error, at);
    default:
      return remedy_of_both(error, at);
  }
}

std::string remedy_of_connecting(int error, const Endpoint& at) {
  switch (error) {
    case ECONNREFUSED:
      return "no program listens there; start the server first, or correct the address";
    case ETIMEDOUT:
      return "there is no answer; is that machine up, and does a firewall let this through" + or_plain_tcp(at);
    case ECONNRESET:
      return "the peer hung up" + or_plain_tcp(at);
    case EPROTO:
      return "the peer does not speak gpusock: add link=tcp, or build both ends of the same version";
    case EHOSTUNREACH:
      if (at.link == LinkKind::p2p) {
        return "link=p2p reaches only this user's processes on this host, and between processes on a GPU both need the "
               "same GPUSOCK_HOST_RINGS=NAME; set that, or leave link=p2p out";
      }
      return without_route(at);
    case ENETUNREACH:
      if (at.is_loopback()) return "the loopback interface is down; `ip link set lo up` starts it";
      return without_route(at);
    case EADDRNOTAVAIL:
      return "no address or port of this machine is left to connect from; see `ip addr` and `ss -s`";
    case EACCES:
      return at.is_plain_tcp() ? "" : "the secrets differ; set GPUSOCK_SECRET to the same text on both sides";
    case EPROTOTYPE:
      return "the peer's socket is of the other type; both name type=seqpacket, or neither";
    case EINVAL:
      return at.port == 0 ? "a server's port is not 0; it prints the one that it has picked" : "";
    default:
      return remedy_of_both(error, at);
  }
}

std::string describe(const std::string& what, Attempt attempt, int error, const Endpoint& at) {
  const std::string to_do = remedy(attempt, error, at);
  return what + ": " + describe_errno(error) + (to_do.empty() ? "" : ": " + to_do);
}

}  // namespace

std::string remedy(Attempt attempt, int error, const Endpoint& at) {
  return attempt == Attempt::listening ? remedy_of_listening(error, at) : remedy_of_connecting(error, at);
}

SocketFailure::SocketFailure(const std::string& what, Attempt attempt, int error, const Endpoint& at)
    : std::runtime_error(describe(what, attempt, error, at)) {}

}  // namespace gpusock::program
