// The attacks. Whatever is not refused with the error that it has to be is said to have SUCCEEDED.
#include "tests/unit/host_proxy/other_user.hpp"

#include "host_proxy/net/posix_network.hpp"
#include "tests/support/patience.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>

namespace gpusock::other_user {
namespace {

using proxy::Descriptor;

constexpr uid_t kNobody = 65534;
constexpr std::size_t kCrowd = 300;

bool become_nobody() {
  return setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0 && setuid(0) != 0;
}

void say(const std::string& attack, const std::string& outcome) {
  std::printf("%s: %s\n", attack.c_str(), outcome.c_str());
  std::fflush(stdout);
}

/// `result`: of a system call that must have failed with one of these.
void expect_refused(const std::string& attack, long result, std::initializer_list<int> errors = {EACCES, EPERM}) {
  const int error = errno;
  const bool refused = result < 0 && std::find(errors.begin(), errors.end(), error) != errors.end();
  say(attack, refused ? "refused" : std::string("SUCCEEDED, ") + (result < 0 ? strerror(error) : "without an error"));
}

struct Address {
  explicit Address(const std::string& name) {
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path + 1, sizeof at.sun_path - 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }
  sockaddr_un at{};
  socklen_t bytes;
};

Descriptor make_socket() {
  Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const timeval patience{kPatienceNs / 1'000'000'000, 0};
  setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return made;
}

Descriptor visit(const std::string& name) {
  Descriptor visitor = make_socket();
  const Address address(name);
  if (connect(visitor.get(), address.get(), address.bytes) != 0)
    say("connecting", std::string("FAILED, ") + strerror(errno));
  return visitor;
}

/// Sends these bytes, and this beside them.
ssize_t send_with(const Descriptor& to, const std::string& bytes, int type, const void* data, std::size_t data_bytes) {
  iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<std::max_align_t> control(CMSG_SPACE(data_bytes) / sizeof(std::max_align_t) + 1);
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(data_bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(data_bytes);
  std::memcpy(CMSG_DATA(header), data, data_bytes);
  return sendmsg(to.get(), &message, MSG_NOSIGNAL);
}

/// The end must come, and nothing before it: neither a byte nor a descriptor.
void expect_nothing(const std::string& attack, const Descriptor& from) {
  const auto [got, descriptor] = receive(from.get(), 0);
  if (got > 0) return say(attack, descriptor >= 0 ? "SUCCEEDED, it got a descriptor" : "SUCCEEDED, it got bytes");
  if (got < 0 && errno != ECONNRESET) return say(attack, std::string("SUCCEEDED in being kept: ") + strerror(errno));
  say(attack, "refused");
}

bool is_listed(const std::string& name) {
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);) {
    if (line.find("@" + name) != std::string::npos) return true;
  }
  return false;
}

/// At the Unix socket of this name, with this ticket.
void visit_socket(const std::string& name, const std::string& ticket) {
  say("the name", is_listed(name) ? "is public" : "is not seen: the attacks know too much");
  const Descriptor visitor = visit(name);
  ::send(visitor.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL);
  expect_nothing("the ticket", visitor);

  const Descriptor giver = visit(name);
  const std::vector<int> descriptors(100, visitor.get());
  send_with(giver, ticket, SCM_RIGHTS, descriptors.data(), descriptors.size() * sizeof(int));
  expect_nothing("the ticket with descriptors", giver);

  const Descriptor liar = visit(name);
  const ucred root{getpid(), 0, 0};
  expect_refused("a lie about its user", send_with(liar, ticket, SCM_CREDENTIALS, &root, sizeof root),
                 {EPERM, EPIPE, ECONNRESET});
  expect_nothing("and what came of it", liar);

  const Address address(name);
  expect_refused("taking the name", bind(make_socket().get(), address.get(), address.bytes), {EADDRINUSE});

  std::vector<Descriptor> crowd;
  for (std::size_t i = 0; i < kCrowd; ++i) crowd.push_back(visit(name));
  std::size_t kept = 0;
  for (const Descriptor& each : crowd) {
    char byte = 0;
    kept += ::recv(each.get(), &byte, 1, 0) < 0 && errno != ECONNRESET ? 1 : 0;
  }
  say("a silent crowd", kept == 0 ? "refused" : "SUCCEEDED in being kept: " + std::to_string(kept));
}

/// Somebody has let this process have the memory file, but for names alone (O_PATH): then its mode decides.
void open_memory() {
  const std::string file = "/proc/self/fd/" + std::to_string(kGiven);
  expect_refused("reading", open(file.c_str(), O_RDONLY | O_CLOEXEC));
  expect_refused("writing", open(file.c_str(), O_WRONLY | O_CLOEXEC));
  expect_refused("opening it to others", chmod(file.c_str(), 0666));
  expect_refused("cutting it", truncate(file.c_str(), 0));
}

/// In the place of a context: whoever comes is to say its ticket, and take a memory file of this user.
void serve_instead(const std::string& name) {
  const Descriptor listener = make_socket();
  const Address address(name);
  if (bind(listener.get(), address.get(), address.bytes) != 0 || listen(listener.get(), 4) != 0)
    return say("listening", strerror(errno));
  say("listening", "as one of ours");
  const Descriptor visitor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!visitor) return say("waiting for a visitor", strerror(errno));
  const int memory = memfd_create("gpusock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  send_with(visitor, std::string(1, '\1'), SCM_RIGHTS, &memory, sizeof memory);
  expect_nothing("being told the ticket", visitor);
}

/// At the process, and at what it leaves in a folder that is everybody's, as /dev/shm.
void look_at_process(const std::string& process, const std::filesystem::path& folder) {
  const std::string proc = "/proc/" + process + "/";
  for (const char* what : {"environ", "maps", "mem", "fd", "map_files"})
    expect_refused(what, open((proc + what).c_str(), O_RDONLY | O_CLOEXEC));
  for (int number = 0; number < 256; ++number) {
    if (open((proc + "fd/" + std::to_string(number)).c_str(), O_RDWR | O_CLOEXEC) >= 0)
      say("descriptor " + std::to_string(number), "SUCCEEDED");
  }
  const auto number = static_cast<pid_t>(std::stol(process));
  char byte = 0;
  const iovec vector{&byte, 1};
  expect_refused("process_vm_readv", process_vm_readv(number, &vector, 1, &vector, 1, 0), {EPERM, ENOSYS});
  const Descriptor handle(static_cast<int>(syscall(SYS_pidfd_open, number, 0)));
  for (int each = 0; each < 256; ++each) {
    if (syscall(SYS_pidfd_getfd, handle.get(), each, 0) >= 0)
      say("descriptor " + std::to_string(each), "SUCCEEDED by pidfd_getfd");
  }
  std::vector<std::filesystem::path> pages;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().rfind("gpusock-", 0) == 0) pages.push_back(entry.path());
  }
  for (const auto& page : pages) {
    expect_refused("reading a page", open(page.c_str(), O_RDONLY | O_CLOEXEC));
    expect_refused("writing a page", open(page.c_str(), O_WRONLY | O_CLOEXEC));
    expect_refused("removing a page", unlink(page.c_str()));
    expect_refused("renaming a page", rename(page.c_str(), (folder / "mine").c_str()));
  }
  if (pages.size() != 1) return say("finding the page", "FAILED");
  // What the process's next contexts will call their pages and drafts; behind these names is what nobody but its user
  // may write.
  const std::string page = pages[0].filename().string();
  const std::size_t number_at = page.rfind('-') + 1;
  const int next = std::stoi(page.substr(number_at)) + 1;
  for (int context = next; context < next + 2; ++context) {
    const std::string name = page.substr(0, number_at) + std::to_string(context);
    std::filesystem::create_symlink("precious", folder / ("." + name + ".new"));
    if (context != next) std::filesystem::create_symlink("precious", folder / name);
  }
  say("the next pages", "are planted");
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

Received receive(int socket, int flags) {
  char byte = 0;
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Received received{recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags)};
  const cmsghdr* header = received.bytes > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr) std::memcpy(&received.descriptor, CMSG_DATA(header), sizeof(int));
  return received;
}

int act(const std::vector<std::string>& arguments) {
  if (!become_nobody()) return kCannotBecome;
  const std::string& what = arguments[0];
  if (what == "visit" && arguments.size() == 3) visit_socket(arguments[1], from_hex(arguments[2]));
  if (what == "serve" && arguments.size() == 2) serve_instead(arguments[1]);
  if (what == "open") open_memory();
  if (what == "look" && arguments.size() == 3) look_at_process(arguments[1], arguments[2]);
  return 0;
}

}  // namespace gpusock::other_user
