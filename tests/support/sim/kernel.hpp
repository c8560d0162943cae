#pragma once
/// @file The operating systems of simulated hosts, as far as host_proxy asks them for anything: descriptors, epoll,
/// TCP, Unix sockets, memory files. The libc calls of the program are replaced by them (system_calls.cpp).
///
/// TCP here delivers bytes in order or not at all, as TCP does: loss and partitions are delays, and in the end
/// ETIMEDOUT. It has partial writes, full buffers, half-closed and half-open connections, resets, ports without a
/// listener and full backlogs.

#include "tests/support/sim/schedule.hpp"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::sim {

class Kernel;
class EpollFile;

/// What a descriptor stands for.
class File {
 public:
  virtual ~File() = default;
  virtual std::uint32_t ready() const { return 0; }  ///< bits of epoll
  virtual void close() {}                            ///< the last descriptor is gone

  /// Tells those who watch that something has happened.
  void notify();

  int references = 0;
  std::vector<EpollFile*> watchers;
};

class EpollFile final : public File {
 public:
  struct Item {
    std::weak_ptr<File> file;
    File* key = nullptr;
    std::uint32_t events = 0;
    std::uint64_t data = 0;
    bool pending = false;
  };

  EpollFile(Kernel& kernel, std::function<void()> on_news) : kernel_(kernel), on_news_(std::move(on_news)) {}
  void add(const std::shared_ptr<File>& file, std::uint32_t events, std::uint64_t data);
  void remove(File* file);
  int take(epoll_event* into, int most);
  bool has_news() const;
  void on_event(File* file);
  void close() override;

 private:
  bool is_told_in_vain();

  Kernel& kernel_;
  std::vector<Item> items_;
  std::function<void()> on_news_;
};

struct Address {
  std::uint32_t ip = 0;  ///< network order
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

struct Host {
  std::uint32_t number = 0;
  std::uint32_t ip = 0;
  bool up = true;
  std::map<std::uint16_t, class TcpSocket*> listeners;
  std::map<std::string, class UnixSocket*> unix_listeners;
  std::uint16_t next_port = 20'000;
};

/// One simulated process: what the operating system keeps of it.
struct Process {
  Process(Kernel& its_kernel, Host& its_host, std::string its_name)
      : kernel(its_kernel), host(its_host), name(std::move(its_name)) {}
  std::size_t open_descriptors() const;

  Kernel& kernel;
  Host& host;
  std::string name;
  bool dead = false;
  std::vector<std::shared_ptr<File>> files;  ///< by descriptor, less kFirstDescriptor
  std::map<void*, int> mappings;             ///< of memory files, by address: how often each is mapped
  std::shared_ptr<EpollFile> epoll;
  std::function<void()> on_news;                      ///< the epoll has something
  std::uint64_t files_fail_until_ns = 0;              ///< no descriptor to be had until then
  std::uint64_t memory_fails_until_ns = 0;            ///< nor memory
  std::map<const void*, std::shared_ptr<void>> kept;  ///< what is one for a process in production (planted.hpp)
  int threads = 0;                                    ///< that were started and have not ended
};

/// A memory file: every process maps it at the same address.
class MemoryFile final : public File {
 public:
  explicit MemoryFile(Kernel& kernel);
  ~MemoryFile() override;
  bool resize(std::size_t bytes);

  Kernel& kernel_;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  int seals = 0;
  mode_t mode = 0777;
};

struct UnixMessage {
  std::string bytes;
  std::shared_ptr<File> passed;
};

/// A SOCK_SEQPACKET Unix socket with an abstract name.
class UnixSocket final : public File, public std::enable_shared_from_this<UnixSocket> {
 public:
  explicit UnixSocket(Process& process) : host(process.host) {}
  std::uint32_t ready() const override;
  void close() override;

  Host& host;
  std::string name;
  bool listening = false;
  std::deque<std::shared_ptr<UnixSocket>> waiting;
  std::weak_ptr<UnixSocket> peer;
  bool connected = false;
  bool hung_up = false;
  bool missed_message = false;  ///< the system has said 0 once although a message was there (take_unix)
  std::deque<UnixMessage> in;
};

class TcpSocket final : public File, public std::enable_shared_from_this<TcpSocket> {
 public:
  TcpSocket(Kernel& kernel, Host& host) : kernel_(kernel), host_(&host) {}

  enum class State { fresh, listening, connecting, connected, over };

  std::uint32_t ready() const override;
  void close() override;

  // 0, a count, or a negated errno.
  int bind(Address at);
  int listen(int backlog);
  int connect(Address to);
  std::int64_t read(void* into, std::size_t bytes);
  std::int64_t write(const void* from, std::size_t bytes);
  void end_writing();
  int take_error();
  std::shared_ptr<TcpSocket> accept();

  /// Something on the way resets the connection, as seen from here.
  void be_reset(int error);
  /// As if somebody on the way had reset it: as both ends see it, or only this one.
  void break_off(bool both);
  /// The host has lost its power: nothing is said to anybody.
  void vanish();

  State state() const { return state_; }
  /// Since when it has been gone, as this end's system knows; Schedule::kNever where it is not.
  std::uint64_t over_since_ns() const { return over_since_ns_; }
  Host& host() const { return *host_; }
  const Address& local() const { return local_; }
  const Address& remote() const { return remote_; }
  bool linger_reset = false;
  std::size_t bytes_there() const { return in_.size() - in_taken_; }
  bool has_acceptable() const { return !waiting_.empty(); }

 private:
  friend class Kernel;
  struct Segment {
    std::string bytes;
    bool end = false;
    std::uint64_t arrival_ns = 0;
  };

  void transmit(Segment segment);
  void arrive(const std::shared_ptr<TcpSocket>& from);
  void acknowledge(std::uint64_t taken);
  void knock(int tries);
  void send_reset();
  std::size_t room() const;

  Kernel& kernel_;
  Host* host_;
  State state_ = State::fresh;
  Address local_, remote_;
  int backlog_ = 0;
  int half_open_ = 0;
  std::deque<std::shared_ptr<TcpSocket>> waiting_;
  std::shared_ptr<TcpSocket> peer_;  // the other end; both let go when they are over
  std::string in_;
  std::size_t in_taken_ = 0;
  std::uint64_t taken_ = 0;  // bytes of the connection that this end has read
  std::uint64_t written_ = 0;
  std::uint64_t acknowledged_ = 0;  // of those, what this end knows the other one to have read
  std::deque<Segment> coming_;      // sent to here and not arrived
  bool resending_ = false;
  int tries_ = 0;
  std::uint64_t last_arrival_ns_ = 0;
  bool peer_ended_ = false;
  bool ended_ = false;
  bool wants_room_ = false;
  bool closed_ = false;  // no descriptor is left
  bool vanished_ = false;
  bool waits_to_be_accepted_ = false;
  int error_ = 0;
  std::uint64_t over_since_ns_ = Schedule::kNever;
};

/// The network between hosts, and how the hosts' systems behave.
struct Wire {
  std::uint64_t latency_ns = 10'000;
  std::uint64_t jitter_ns = 0;
  std::uint64_t bytes_per_us = 1000;
  std::uint64_t loss_percent = 0;       ///< of segments; each is sent again
  std::size_t buffer_bytes = 16 << 10;  ///< of a connection, in each direction
  std::size_t segment_bytes = 1448;
  std::uint64_t spurious_percent = 0;  ///< of looks at epoll: it says of a descriptor that it is ready, and it is not
  std::uint64_t ports = 0;         ///< that connecting sockets share, again and again; 0: each gets a port of its own
  std::uint64_t full_percent = 0;  ///< of connects to a Unix socket: its backlog is full of strangers just then
};

class Kernel {
 public:
  Kernel(Schedule& schedule, const Wire& wire, std::size_t hosts);
  ~Kernel();

  Schedule& schedule() { return schedule_; }
  Wire wire;
  std::deque<Host> hosts;

  Process& start_process(Host& host, std::string name);
  /// Closes what it has open, as the system does with a killed process's.
  void end_process(Process& process);
  /// The host stops without a word; its processes are to be killed as well.
  void crash(Host& host);

  Host* host_of(std::uint32_t ip, Host& asking);
  bool reaches(const Host& from, const Host& to) const {
    return &from == &to || schedule_.now_ns() >= parted_until_ns_;
  }
  void part_until(std::uint64_t time_ns) { parted_until_ns_ = time_ns; }
  std::uint64_t travel_ns(const Host& from, const Host& to, std::size_t bytes);

  void add(const std::shared_ptr<TcpSocket>& socket) { sockets_.push_back(socket); }
  /// The end of this connection at `local`; nullptr where there is none.
  std::shared_ptr<TcpSocket> find(const Address& local, const Address& remote) const;
  /// Connected ends, for who wants to break one.
  std::vector<std::shared_ptr<TcpSocket>> connected();

  std::byte* allocate(std::size_t bytes);
  void free(std::byte* memory, std::size_t bytes);
  void map(Process& process, const std::shared_ptr<MemoryFile>& file);
  /// False where the process has not mapped this.
  bool unmap(Process& process, void* memory);
  void unmap_all(Process& process);  ///< of a dead one, once nothing of it runs any more
  /// Memory files that exist.
  std::size_t memory_files() const { return memory_files_; }
  /// Has anybody written into memory that nobody had mapped any more.
  bool freed_memory_is_intact() const;

  std::uint64_t parted_until_ns() const { return parted_until_ns_; }

  /// The port of a new connection from `from` to `to`: no other connection has the same addresses and ports.
  std::uint16_t choose_port(Host& host, std::uint32_t from, const Address& to);

  std::uint64_t thread_ns = 0;        ///< how long a process's own threads take
  bool waited_for_no_thread = false;  ///< a process has waited for an answer that no thread will give

  /// Lowest descriptor of simulated processes: others are the real system's.
  static constexpr int kFirstDescriptor = 1 << 20;

 private:
  friend class MemoryFile;
  Schedule& schedule_;
  std::uint64_t parted_until_ns_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::weak_ptr<TcpSocket>> sockets_;
  std::size_t memory_files_ = 0;
  std::map<void*, std::shared_ptr<MemoryFile>> mapped_;  // by address, while any process maps it
  std::map<void*, int> mappings_;
  std::vector<std::pair<std::byte*, std::size_t>> freed_;
};

/// The process whose code runs now; nullptr: the calls are the real system's.
extern Process* current_process;

/// A descriptor of the current process for this file.
int open_descriptor(std::shared_ptr<File> file);

/// Makes it the current one for as long as this lives.
class AsProcess {
 public:
  explicit AsProcess(Process* process) : before_(current_process) { current_process = process; }
  ~AsProcess() { current_process = before_; }
  AsProcess(const AsProcess&) = delete;
  AsProcess& operator=(const AsProcess&) = delete;

 private:
  Process* before_;
};

/// The schedule whose fibers run now; nullptr outside of runs.
extern Schedule* current_schedule;

}  // namespace gpusock::sim
