// The libc calls that host_proxy makes, as the linker's --wrap names them. Made by a simulated process they reach its
// simulated kernel; made by anybody else, or about a real descriptor, the real system. tests/support/sim/CMakeLists.txt
// lists their names.
#include "tests/support/sim/kernel.hpp"
#include "tests/support/sim/shortage.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpusock::sim {
namespace {

int give(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}
ssize_t give(std::int64_t result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

/// Is this descriptor a simulated process's. Between two system calls others may run.
bool simulated(int descriptor) {
  if (current_process == nullptr || descriptor < Kernel::kFirstDescriptor) return false;
  current_process->kernel.schedule().may_turn();
  return true;
}

/// The open file of this descriptor, or nullptr.
std::shared_ptr<File> file_at(int descriptor) {
  const auto index = static_cast<std::size_t>(descriptor - Kernel::kFirstDescriptor);
  const auto& files = current_process->files;
  return index < files.size() ? files[index] : nullptr;
}

template <class Kind>
std::shared_ptr<Kind> at(int descriptor) {
  return std::dynamic_pointer_cast<Kind>(file_at(descriptor));
}

bool out_of_files() {
  return current_process->dead || current_process->kernel.schedule().now_ns() < current_process->files_fail_until_ns;
}

}  // namespace

int open_descriptor(std::shared_ptr<File> file) {
  auto& files = current_process->files;
  ++file->references;
  const auto unused = std::find(files.begin(), files.end(), nullptr);
  const auto index = static_cast<int>(unused - files.begin());
  if (unused == files.end()) {
    files.push_back(std::move(file));
  } else {
    *unused = std::move(file);
  }
  return Kernel::kFirstDescriptor + index;
}

namespace {

int close_file(int descriptor) {
  const auto file = file_at(descriptor);
  if (file == nullptr) return give(-EBADF);
  current_process->files[static_cast<std::size_t>(descriptor - Kernel::kFirstDescriptor)].reset();
  if (--file->references != 0) return 0;
  for (EpollFile* watcher : std::vector(file->watchers)) watcher->remove(file.get());
  file->close();
  return 0;
}

Address to_address(const sockaddr* name) {
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(name);
  return {v4->sin_addr.s_addr, ntohs(v4->sin_port)};
}

int put_name(const Address& address, sockaddr* name, socklen_t* bytes) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = address.ip;
  v4.sin_port = htons(address.port);
  std::memcpy(name, &v4, std::min<std::size_t>(*bytes, sizeof v4));
  *bytes = sizeof v4;
  return 0;
}

std::string abstract_name(const sockaddr* name, socklen_t bytes) {
  const auto* address = reinterpret_cast<const sockaddr_un*>(name);
  return {address->sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1};
}

int connect_unix(UnixSocket& socket, const std::string& name) {
  const auto found = socket.host.unix_listeners.find(name);
  if (found == socket.host.unix_listeners.end()) return -ECONNREFUSED;
  Kernel& kernel = current_process->kernel;
  if (kernel.wire.full_percent != 0 && kernel.schedule().random().percent(kernel.wire.full_percent)) return -EAGAIN;
  auto server = std::make_shared<UnixSocket>(*current_process);
  server->connected = socket.connected = true;
  server->peer = socket.weak_from_this();
  socket.peer = server;
  found->second->waiting.push_back(server);
  found->second->notify();
  return 0;
}

std::int64_t send_unix(UnixSocket& socket, UnixMessage message) {
  const auto peer = socket.peer.lock();
  if (peer == nullptr || socket.hung_up) return -EPIPE;
  const auto bytes = static_cast<std::int64_t>(message.bytes.size());
  peer->in.push_back(std::move(message));
  peer->notify();
  return bytes;
}

/// The next message; its bytes go to `into`.
std::int64_t take_unix(UnixSocket& socket, void* into, std::size_t bytes, std::shared_ptr<File>* passed) {
  if (socket.in.empty()) return socket.hung_up || !socket.connected ? 0 : -EAGAIN;
  // Linux looks for a message and then, apart from that, whether the peer has closed. Where the peer sends and closes
  // between the two looks, the call gives 0 although a message is there. The next call finds it.
  if (socket.hung_up && !socket.missed_message && current_process->kernel.schedule().random().one_in(4)) {
    socket.missed_message = true;
    return 0;
  }
  const UnixMessage message = std::move(socket.in.front());
  socket.in.pop_front();
  const std::size_t count = std::min(bytes, message.bytes.size());
  std::memcpy(into, message.bytes.data(), count);
  if (passed != nullptr) *passed = message.passed;
  return static_cast<std::int64_t>(count);
}

std::int64_t receive_message(int descriptor, msghdr* message) {
  if (const auto tcp = at<TcpSocket>(descriptor)) {
    std::int64_t done = 0;
    for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
      const iovec& part = message->msg_iov[i];
      const std::int64_t count = tcp->read(part.iov_base, part.iov_len);
      if (count < 0) return done != 0 ? done : count;
      done += count;
      if (tcp->bytes_there() == 0) break;  // an error behind them is the next call's
    }
    return done;
  }
  const auto unix_socket = at<UnixSocket>(descriptor);
  if (unix_socket == nullptr) return -EBADF;
  std::shared_ptr<File> passed;
  const std::int64_t count = take_unix(*unix_socket, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len,
                                       &passed);
  if (passed == nullptr || out_of_files()) {
    message->msg_controllen = 0;
    return count;
  }
  cmsghdr* header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int made = open_descriptor(passed);
  std::memcpy(CMSG_DATA(header), &made, sizeof made);
  message->msg_controllen = CMSG_SPACE(sizeof(int));
  return count;
}

std::int64_t send_message(int descriptor, const msghdr* message) {
  if (const auto tcp = at<TcpSocket>(descriptor)) {
    std::int64_t done = 0;
    for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
      const iovec& part = message->msg_iov[i];
      const std::int64_t count = tcp->write(part.iov_base, part.iov_len);
      if (count < 0) return done != 0 ? done : count;
      done += count;
      if (static_cast<std::size_t>(count) < part.iov_len) break;
    }
    return done;
  }
  const auto unix_socket = at<UnixSocket>(descriptor);
  if (unix_socket == nullptr) return -EBADF;
  UnixMessage out{{static_cast<const char*>(message->msg_iov[0].iov_base), message->msg_iov[0].iov_len}, nullptr};
  if (message->msg_controllen != 0) {
    int descriptor_passed = -1;
    std::memcpy(&descriptor_passed, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof descriptor_passed);
    out.passed = file_at(descriptor_passed);
  }
  return send_unix(*unix_socket, std::move(out));
}

/// A call that signals may interrupt and that may fail with the errno `denial`, as the run's shortage has it. About a
/// simulated descriptor `simulate` makes it, about any other `real`.
template <class Simulate, class Real>
ssize_t make_call(int descriptor, int denial, Simulate simulate, Real real) {
  const bool denied = deny_call();
  const bool interrupted = interrupt_call();
  const Outside outside;
  if (!simulated(descriptor)) return real();
  if (interrupted) return give(std::int64_t{-EINTR});
  return give(denied ? std::int64_t{-denial} : simulate());
}

int set_option(int descriptor, int level, int option, const void* value) {
  const auto tcp = at<TcpSocket>(descriptor);
  if (tcp == nullptr) return -EBADF;
  if (level == SOL_SOCKET && option == SO_LINGER) tcp->linger_reset = static_cast<const linger*>(value)->l_onoff != 0;
  return 0;
}

int get_option(int descriptor, int option, void* value) {
  if (option == SO_PEERCRED) {
    *static_cast<ucred*>(value) = {getpid(), geteuid(), getegid()};
    return at<UnixSocket>(descriptor) == nullptr ? -EBADF : 0;
  }
  const auto tcp = at<TcpSocket>(descriptor);
  if (tcp == nullptr) return -EBADF;
  *static_cast<int*>(value) = tcp->take_error();
  return 0;
}

int control_epoll(int epoll, int operation, int descriptor, const epoll_event* event) {
  const auto poller = at<EpollFile>(epoll);
  const auto file = file_at(descriptor);
  if (poller == nullptr || file == nullptr) return -EBADF;
  if (operation == EPOLL_CTL_ADD) {
    poller->add(file, event->events, event->data.u64);
  } else {
    poller->remove(file.get());
  }
  return 0;
}

void* map_memory(int descriptor) {
  const auto file = at<MemoryFile>(descriptor);
  if (file == nullptr || current_process->kernel.schedule().now_ns() < current_process->memory_fails_until_ns) {
    errno = file == nullptr ? EBADF : ENOMEM;
    return MAP_FAILED;
  }
  current_process->kernel.map(*current_process, file);
  return file->memory;
}

}  // namespace
}  // namespace gpusock::sim

using namespace gpusock::sim;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {

#define GPUSOCK_REAL(result, name, ...) result __real_##name(__VA_ARGS__)
GPUSOCK_REAL(int, socket, int, int, int);
GPUSOCK_REAL(int, bind, int, const sockaddr*, socklen_t);
GPUSOCK_REAL(int, listen, int, int);
GPUSOCK_REAL(int, accept4, int, sockaddr*, socklen_t*, int);
GPUSOCK_REAL(int, connect, int, const sockaddr*, socklen_t);
GPUSOCK_REAL(ssize_t, recvmsg, int, msghdr*, int);
GPUSOCK_REAL(ssize_t, sendmsg, int, const msghdr*, int);
GPUSOCK_REAL(ssize_t, recv, int, void*, size_t, int);
GPUSOCK_REAL(ssize_t, send, int, const void*, size_t, int);
GPUSOCK_REAL(int, shutdown, int, int);
GPUSOCK_REAL(int, setsockopt, int, int, int, const void*, socklen_t);
GPUSOCK_REAL(int, getsockopt, int, int, int, void*, socklen_t*);
GPUSOCK_REAL(int, getsockname, int, sockaddr*, socklen_t*);
GPUSOCK_REAL(int, getpeername, int, sockaddr*, socklen_t*);
GPUSOCK_REAL(int, close, int);
GPUSOCK_REAL(int, epoll_create1, int);
GPUSOCK_REAL(int, epoll_ctl, int, int, int, epoll_event*);
GPUSOCK_REAL(int, epoll_wait, int, epoll_event*, int, int);
GPUSOCK_REAL(int, eventfd, unsigned, int);
GPUSOCK_REAL(int, memfd_create, const char*, unsigned);
GPUSOCK_REAL(int, ftruncate, int, off_t);
GPUSOCK_REAL(int, fchmod, int, mode_t);
GPUSOCK_REAL(int, fcntl, int, int, ...);
GPUSOCK_REAL(int, fstat, int, struct stat*);
GPUSOCK_REAL(void*, mmap, void*, size_t, int, int, int, off_t);
GPUSOCK_REAL(int, munmap, void*, size_t);
GPUSOCK_REAL(ssize_t, getrandom, void*, size_t, unsigned);
GPUSOCK_REAL(int, clock_gettime, clockid_t, timespec*);

int __wrap_socket(int family, int type, int protocol) {
  const bool denied = deny_call();
  const Outside outside;
  if (current_process == nullptr) return __real_socket(family, type, protocol);
  if (denied) return give(-ENFILE);
  if (out_of_files()) return give(-EMFILE);
  if (family == AF_UNIX) return open_descriptor(std::make_shared<UnixSocket>(*current_process));
  auto socket = std::make_shared<TcpSocket>(current_process->kernel, current_process->host);
  current_process->kernel.add(socket);
  return open_descriptor(std::move(socket));
}

int __wrap_bind(int descriptor, const sockaddr* name, socklen_t bytes) {
  const bool denied = deny_call();
  const Outside outside;
  if (!simulated(descriptor)) return __real_bind(descriptor, name, bytes);
  if (denied) return give(-ENOMEM);
  if (const auto tcp = at<TcpSocket>(descriptor)) return give(tcp->bind(to_address(name)));
  const auto unix_socket = at<UnixSocket>(descriptor);
  if (unix_socket == nullptr) return give(-EBADF);
  unix_socket->name = abstract_name(name, bytes);
  return 0;
}

int __wrap_listen(int descriptor, int backlog) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_listen(descriptor, backlog);
  if (const auto tcp = at<TcpSocket>(descriptor)) return give(tcp->listen(backlog));
  const auto unix_socket = at<UnixSocket>(descriptor);
  if (unix_socket == nullptr) return give(-EBADF);
  unix_socket->listening = true;
  unix_socket->host.unix_listeners[unix_socket->name] = unix_socket.get();
  return 0;
}

int __wrap_accept4(int descriptor, sockaddr* name, socklen_t* bytes, int flags) {
  const bool denied = deny_call();
  const bool interrupted = interrupt_call();
  const Outside outside;
  if (!simulated(descriptor)) return __real_accept4(descriptor, name, bytes, flags);
  if (interrupted) return give(-EINTR);
  if (const auto tcp = at<TcpSocket>(descriptor)) {
    if (!tcp->has_acceptable()) return give(-EAGAIN);
    if (denied) return give(-ENFILE);
    return out_of_files() ? give(-EMFILE) : open_descriptor(tcp->accept());
  }
  const auto unix_socket = at<UnixSocket>(descriptor);
  if (unix_socket == nullptr) return give(-EBADF);
  if (unix_socket->waiting.empty()) return give(-EAGAIN);
  if (denied) return give(-ENFILE);
  if (out_of_files()) return give(-EMFILE);
  auto visitor = std::move(unix_socket->waiting.front());
  unix_socket->waiting.pop_front();
  return open_descriptor(std::move(visitor));
}

int __wrap_connect(int descriptor, const sockaddr* name, socklen_t bytes) {
  const bool denied = deny_call();
  const Outside outside;
  if (!simulated(descriptor)) return __real_connect(descriptor, name, bytes);
  if (denied) return give(-ENOBUFS);
  if (const auto tcp = at<TcpSocket>(descriptor)) return give(tcp->connect(to_address(name)));
  const auto unix_socket = at<UnixSocket>(descriptor);
  return give(unix_socket == nullptr ? -EBADF : connect_unix(*unix_socket, abstract_name(name, bytes)));
}

ssize_t __wrap_recvmsg(int descriptor, msghdr* message, int flags) {
  return make_call(
      descriptor, ENOMEM, [&] { return receive_message(descriptor, message); },
      [&] { return __real_recvmsg(descriptor, message, flags); });
}

ssize_t __wrap_sendmsg(int descriptor, const msghdr* message, int flags) {
  return make_call(
      descriptor, ENOBUFS, [&] { return send_message(descriptor, message); },
      [&] { return __real_sendmsg(descriptor, message, flags); });
}

ssize_t __wrap_recv(int descriptor, void* into, size_t bytes, int flags) {
  const auto take = [&] {
    if (const auto tcp = at<TcpSocket>(descriptor)) return tcp->read(into, bytes);
    const auto unix_socket = at<UnixSocket>(descriptor);
    return unix_socket == nullptr ? std::int64_t{-EBADF} : take_unix(*unix_socket, into, bytes, nullptr);
  };
  return make_call(descriptor, ENOMEM, take, [&] { return __real_recv(descriptor, into, bytes, flags); });
}

ssize_t __wrap_send(int descriptor, const void* from, size_t bytes, int flags) {
  const auto put = [&] {
    if (const auto tcp = at<TcpSocket>(descriptor)) return tcp->write(from, bytes);
    const auto unix_socket = at<UnixSocket>(descriptor);
    return unix_socket == nullptr ? std::int64_t{-EBADF}
                                  : send_unix(*unix_socket, {{static_cast<const char*>(from), bytes}, nullptr});
  };
  return make_call(descriptor, ENOBUFS, put, [&] { return __real_send(descriptor, from, bytes, flags); });
}

int __wrap_shutdown(int descriptor, int how) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_shutdown(descriptor, how);
  const auto tcp = at<TcpSocket>(descriptor);
  if (tcp == nullptr) return give(-EBADF);
  tcp->end_writing();
  return 0;
}

int __wrap_setsockopt(int descriptor, int level, int option, const void* value, socklen_t bytes) {
  const Outside outside;
  return simulated(descriptor) ? give(set_option(descriptor, level, option, value))
                               : __real_setsockopt(descriptor, level, option, value, bytes);
}

int __wrap_getsockopt(int descriptor, int level, int option, void* value, socklen_t* bytes) {
  const Outside outside;
  return simulated(descriptor) ? give(get_option(descriptor, option, value))
                               : __real_getsockopt(descriptor, level, option, value, bytes);
}

int __wrap_getsockname(int descriptor, sockaddr* name, socklen_t* bytes) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_getsockname(descriptor, name, bytes);
  const auto tcp = at<TcpSocket>(descriptor);
  return tcp == nullptr ? give(-EBADF) : put_name(tcp->local(), name, bytes);
}

int __wrap_getpeername(int descriptor, sockaddr* name, socklen_t* bytes) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_getpeername(descriptor, name, bytes);
  const auto tcp = at<TcpSocket>(descriptor);
  if (tcp == nullptr) return give(-EBADF);
  return tcp->state() == TcpSocket::State::connected ? put_name(tcp->remote(), name, bytes) : give(-ENOTCONN);
}

int __wrap_close(int descriptor) {
  const Outside outside;
  return simulated(descriptor) ? close_file(descriptor) : __real_close(descriptor);
}

int __wrap_epoll_create1(int flags) {
  const Outside outside;
  if (current_process == nullptr) return __real_epoll_create1(flags);
  Process& process = *current_process;
  process.epoll = std::make_shared<EpollFile>(process.kernel, [&process] {
    if (process.on_news) process.on_news();
  });
  return open_descriptor(process.epoll);
}

int __wrap_epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) {
  const bool denied = operation == EPOLL_CTL_ADD && deny_call();
  const Outside outside;
  if (denied && simulated(epoll)) return give(-ENOSPC);
  return simulated(epoll) ? give(control_epoll(epoll, operation, descriptor, event))
                          : __real_epoll_ctl(epoll, operation, descriptor, event);
}

int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  const Outside outside;
  if (!simulated(epoll)) return __real_epoll_wait(epoll, events, most, timeout_ms);
  const auto poller = at<EpollFile>(epoll);
  return poller == nullptr ? give(-EBADF) : poller->take(events, most);
}

int __wrap_eventfd(unsigned value, int flags) {
  const Outside outside;
  if (current_process == nullptr) return __real_eventfd(value, flags);
  return open_descriptor(std::make_shared<File>());  // the bell, which nobody rings: here callers wake the proxy's
                                                     // fiber by itself
}

int __wrap_memfd_create(const char* name, unsigned flags) {
  const bool denied = deny_call();
  const Outside outside;
  if (current_process == nullptr) return __real_memfd_create(name, flags);
  if (denied) return give(-ENFILE);
  return out_of_files() ? give(-EMFILE) : open_descriptor(std::make_shared<MemoryFile>(current_process->kernel));
}

int __wrap_ftruncate(int descriptor, off_t bytes) {
  const bool denied = deny_call();
  const Outside outside;
  if (!simulated(descriptor)) return __real_ftruncate(descriptor, bytes);
  if (denied) return give(-ENOSPC);
  const auto file = at<MemoryFile>(descriptor);
  return give(file != nullptr && file->resize(static_cast<std::size_t>(bytes)) ? 0 : -EBADF);
}

int __wrap_fchmod(int descriptor, mode_t mode) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_fchmod(descriptor, mode);
  const auto file = at<MemoryFile>(descriptor);
  if (file == nullptr) return give(-EBADF);
  file->mode = mode;
  return 0;
}

int __wrap_fcntl(int descriptor, int command, long argument) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_fcntl(descriptor, command, argument);
  const auto file = at<MemoryFile>(descriptor);
  if (file == nullptr) return give(-EBADF);
  if (command == F_ADD_SEALS) file->seals |= static_cast<int>(argument);
  return command == F_GET_SEALS ? file->seals : 0;
}

int __wrap_fstat(int descriptor, struct stat* facts) {
  const Outside outside;
  if (!simulated(descriptor)) return __real_fstat(descriptor, facts);
  const auto file = at<MemoryFile>(descriptor);
  if (file == nullptr) return give(-EBADF);
  facts->st_size = static_cast<off_t>(file->bytes);
  facts->st_uid = geteuid();
  facts->st_mode = S_IFREG | file->mode;
  return 0;
}

void* __wrap_mmap(void* where, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  const bool denied = deny_call();
  const Outside outside;
  if (denied && simulated(descriptor)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return simulated(descriptor) ? map_memory(descriptor)
                               : __real_mmap(where, bytes, protection, flags, descriptor, offset);
}

int __wrap_munmap(void* memory, size_t bytes) {
  const Outside outside;
  if (current_process == nullptr) return __real_munmap(memory, bytes);
  return current_process->kernel.unmap(*current_process, memory) ? 0 : __real_munmap(memory, bytes);
}

ssize_t __wrap_getrandom(void* into, size_t bytes, unsigned flags) {
  const Outside outside;
  if (current_process == nullptr) return __real_getrandom(into, bytes, flags);
  auto* byte = static_cast<unsigned char*>(into);
  for (size_t i = 0; i < bytes; ++i) byte[i] = static_cast<unsigned char>(current_schedule->random()());
  return static_cast<ssize_t>(bytes);
}

int __wrap_clock_gettime(clockid_t clock, timespec* now) {
  const Outside outside;
  if (current_schedule == nullptr) return __real_clock_gettime(clock, now);
  const std::uint64_t time_ns = current_schedule->read_clock_ns();
  *now = {static_cast<time_t>(time_ns / 1'000'000'000), static_cast<long>(time_ns % 1'000'000'000)};
  return 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
