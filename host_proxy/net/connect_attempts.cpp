#include "host_proxy/net/connect_attempts.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"

#include <cerrno>
#include <string>

namespace gpusock::proxy {
namespace {

bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

/// How much an error says about the host: the error with the highest weight is reported.
int weight_of(int error) {
  switch (error) {
    case 0:
      return 0;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return 1;
    case ECONNREFUSED:
      return 3;
    default:
      return is_shortage(error) ? 4 : 2;
  }
}

}  // namespace

std::unique_ptr<ByteStream> ConnectAttempts::start_next(Network& network) {
  while (next_ < to_.addresses()) {
    current_ = to_.at_address(next_++);
    int error = 0;
    if (auto stream = network.connect(current_, error)) return stream;
    note_failure(error);
  }
  return nullptr;
}

void ConnectAttempts::note_failure(int error) {
  if (weight_of(error) >= weight_of(error_)) error_ = error;
  if (is_shortage(error)) next_ = to_.addresses();
  if (next_ < to_.addresses()) {
    log_info("connecting to " + current_.host_port() + ": " + describe_errno(error) +
             "; trying the next address of its name");
  }
}

}  // namespace gpusock::proxy
