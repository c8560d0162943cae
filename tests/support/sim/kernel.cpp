#include "tests/support/sim/kernel.hpp"

#include "tests/support/sim/planted.hpp"
#include "tests/support/sim/shortage.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

namespace gpusock::sim {
namespace {

constexpr std::uint64_t kResendNs = 200'000'000;
constexpr int kTriesMax = 8;  // each twice as late as the one before: 25 s and then it is given up
constexpr std::align_val_t kPage{4096};
constexpr std::byte kFreed{0xdb};

std::uint64_t resend_ns(int tries) { return kResendNs << std::min(tries, 6); }

/// Page-aligned memory, kept from one run to the next.
std::map<std::size_t, std::vector<std::byte*>>& idle_memory() {
  static std::map<std::size_t, std::vector<std::byte*>> memory;
  return memory;
}

}  // namespace

Process* current_process = nullptr;
Schedule* current_schedule = nullptr;

const void* process_key() { return current_process; }

std::shared_ptr<void>& kept_by_process(const void* key) {
  const Outside outside;
  return current_process->kept[key];
}

void start_thread(std::function<void()> body) {
  if (deny_call()) throw std::system_error(EAGAIN, std::generic_category());
  const Outside outside;
  Process& process = *current_process;
  ++process.threads;
  process.kernel.schedule().after(process.kernel.thread_ns, [&process, body = std::move(body)] {
    --process.threads;
    if (process.dead) return;
    const AsProcess as(&process);
    body();
  });
}

void wait_for_thread(bool over) {
  if (!over && current_process->threads == 0) current_process->kernel.waited_for_no_thread = true;
}

std::uint64_t host_key() { return current_process == nullptr ? 0 : current_process->host.number; }

void may_turn() {
  if (current_schedule != nullptr) current_schedule->may_turn();
}

// --- files

void File::notify() {
  for (EpollFile* watcher : watchers) watcher->on_event(this);
}

std::size_t Process::open_descriptors() const {
  return static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const auto& file) { return file != nullptr; }));
}

void EpollFile::add(const std::shared_ptr<File>& file, std::uint32_t events, std::uint64_t data) {
  items_.push_back({file, file.get(), events, data, true});
  file->watchers.push_back(this);
  if ((file->ready() & events) != 0) on_news_();
}

void EpollFile::remove(File* file) {
  std::erase_if(items_, [file](const Item& item) { return item.key == file; });
  std::erase(file->watchers, this);
}

void EpollFile::close() {
  for (Item& item : items_) {
    if (const auto file = item.file.lock()) std::erase(file->watchers, this);
  }
  items_.clear();
}

void EpollFile::on_event(File* file) {
  for (Item& item : items_) {
    if (item.key == file) item.pending = true;
  }
  on_news_();
}

bool EpollFile::has_news() const {
  return std::any_of(items_.begin(), items_.end(), [](const Item& item) {
    const auto file = item.file.lock();
    return item.pending && file != nullptr && (file->ready() & (item.events | EPOLLERR | EPOLLHUP)) != 0;
  });
}

/// Readiness is a hint (select(2), BUGS): what it was about may be gone by the time of the call.
bool EpollFile::is_told_in_vain() {
  const std::uint64_t percent = kernel_.wire.spurious_percent;
  return percent != 0 && kernel_.schedule().random().percent(percent);
}

int EpollFile::take(epoll_event* into, int most) {
  int count = 0;
  for (std::size_t i = 0; i < items_.size() && count < most; ++i) {
    Item& item = items_[i];
    const auto file = item.file.lock();
    if (file == nullptr) continue;
    const std::uint32_t in_vain = is_told_in_vain() ? item.events & (EPOLLIN | EPOLLOUT) : 0;
    if (!item.pending && in_vain == 0) continue;
    const std::uint32_t ready = (file->ready() & (item.events | EPOLLERR | EPOLLHUP)) | in_vain;
    if (ready == 0 || (item.events & EPOLLET) != 0) item.pending = false;
    if (ready == 0) continue;
    into[count].events = ready;
    into[count++].data.u64 = item.data;
  }
  return count;
}

MemoryFile::MemoryFile(Kernel& kernel) : kernel_(kernel) { ++kernel_.memory_files_; }

MemoryFile::~MemoryFile() {
  if (memory != nullptr) kernel_.free(memory, bytes);
  --kernel_.memory_files_;
}

bool MemoryFile::resize(std::size_t wanted) {
  if (memory != nullptr) return false;  // nobody does that
  memory = kernel_.allocate(wanted);
  bytes = wanted;
  return true;
}

// --- Unix sockets

std::uint32_t UnixSocket::ready() const {
  if (listening) return waiting.empty() ? 0 : std::uint32_t{EPOLLIN};
  std::uint32_t bits = EPOLLOUT;
  if (!in.empty() || hung_up) bits |= EPOLLIN;
  if (hung_up) bits |= EPOLLHUP | EPOLLRDHUP;
  return bits;
}

void UnixSocket::close() {
  if (listening) host.unix_listeners.erase(name);
  for (const auto& visitor : waiting) visitor->close();
  waiting.clear();
  if (const auto other = peer.lock()) {
    other->hung_up = true;
    other->notify();
  }
}

// --- TCP

/// What this end may write, as far as it has heard what the other one has read.
std::size_t TcpSocket::room() const {
  return kernel_.wire.buffer_bytes - static_cast<std::size_t>(written_ - acknowledged_);
}

std::uint32_t TcpSocket::ready() const {
  std::uint32_t bits = 0;
  switch (state_) {
    case State::fresh:
      return EPOLLOUT | EPOLLHUP;
    case State::listening:
      return waiting_.empty() ? 0 : std::uint32_t{EPOLLIN};
    case State::connecting:
      return 0;
    case State::connected:
      if (in_.size() > in_taken_ || peer_ended_) bits |= EPOLLIN;
      if (peer_ended_) bits |= EPOLLRDHUP;
      if (ended_ || room() >= kernel_.wire.buffer_bytes / 3) bits |= EPOLLOUT;
      if (peer_ended_ && ended_) bits |= EPOLLHUP;
      return bits;
    case State::over:
      bits = EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLRDHUP;
      return error_ != 0 ? bits | EPOLLERR : bits;
  }
  return bits;
}

int TcpSocket::bind(Address at) {
  if (at.port == 0) {
    while (host_->listeners.contains(host_->next_port)) ++host_->next_port;
    at.port = host_->next_port++;
  }
  local_ = at;
  return 0;
}

int TcpSocket::listen(int backlog) {
  if (host_->listeners.contains(local_.port)) return -EADDRINUSE;
  host_->listeners[local_.port] = this;
  state_ = State::listening;
  backlog_ = backlog;
  return 0;
}

std::shared_ptr<TcpSocket> TcpSocket::accept() {
  if (waiting_.empty()) return nullptr;
  auto accepted = std::move(waiting_.front());
  waiting_.pop_front();
  accepted->waits_to_be_accepted_ = false;
  return accepted;
}

int TcpSocket::connect(Address to) {
  if (kernel_.host_of(to.ip, *host_) == nullptr) return -EHOSTUNREACH;
  const std::uint32_t from = kernel_.host_of(to.ip, *host_) == host_ ? to.ip : host_->ip;
  local_ = {from, kernel_.choose_port(*host_, from, to)};
  remote_ = to;
  state_ = State::connecting;
  const bool free_here = kernel_.host_of(to.ip, *host_) == host_ && !host_->listeners.contains(to.port);
  if (free_here && kernel_.schedule().random().one_in(4)) {
    local_ = to;  // the port that it gets is the one that it asks for: it meets itself
    peer_ = shared_from_this();
    kernel_.schedule().after(kernel_.travel_ns(*host_, *host_, 0), [self = shared_from_this()] {
      if (self->state_ != State::connecting || self->closed_) return;
      self->state_ = State::connected;
      self->notify();
    });
    return -EINPROGRESS;
  }
  knock(0);
  return -EINPROGRESS;
}

/// Sends what opens a connection, again and again.
void TcpSocket::knock(int tries) {
  Host& there = *kernel_.host_of(remote_.ip, *host_);
  const std::uint64_t there_ns = kernel_.travel_ns(*host_, there, 0);
  kernel_.schedule().after(there_ns, [self = shared_from_this(), &there, there_ns, tries] {
    TcpSocket& client = *self;
    if (client.state_ != State::connecting || client.vanished_) return;
    Kernel& kernel = client.kernel_;
    const auto again = [&] {
      if (tries >= 6) {
        client.be_reset(ETIMEDOUT);
      } else {
        kernel.schedule().after(std::uint64_t{1'000'000'000} << tries, [self, tries] {
          if (self->state_ == State::connecting) self->knock(tries + 1);
        });
      }
    };
    if (!there.up || !kernel.reaches(*client.host_, there)) return again();
    const auto found = there.listeners.find(client.remote_.port);
    if (found == there.listeners.end()) {
      kernel.schedule().after(there_ns, [self] {
        if (self->state_ == State::connecting) self->be_reset(ECONNREFUSED);
      });
      return;
    }
    TcpSocket& listener = *found->second;
    if (static_cast<int>(listener.waiting_.size()) + listener.half_open_ > listener.backlog_) return again();
    auto server = std::make_shared<TcpSocket>(kernel, there);
    kernel.add(server);
    server->state_ = State::connected;
    server->local_ = {client.remote_.ip, client.remote_.port};
    server->remote_ = client.local_;
    server->peer_ = self;
    client.peer_ = server;
    server->waits_to_be_accepted_ = true;
    ++listener.half_open_;
    kernel.schedule().after(there_ns, [self] {
      if (self->state_ != State::connecting || self->closed_) return;
      self->state_ = State::connected;
      self->notify();
    });
    kernel.schedule().after(2 * there_ns, [server, weak = std::weak_ptr<TcpSocket>(listener.shared_from_this())] {
      const auto there_still = weak.lock();
      if (there_still == nullptr || there_still->state_ != State::listening) {
        if (server->state_ == State::connected) server->send_reset();
        server->be_reset(ECONNRESET);
        return;
      }
      --there_still->half_open_;
      there_still->waiting_.push_back(server);
      there_still->notify();
    });
  });
}

std::int64_t TcpSocket::read(void* into, std::size_t bytes) {
  if (state_ == State::fresh || state_ == State::listening || state_ == State::connecting)
    return state_ == State::connecting ? -EAGAIN : -ENOTCONN;
  const std::size_t there = in_.size() - in_taken_;
  if (there == 0) {
    if (peer_ended_) return 0;  // an error that came behind the end is for who writes or asks
    if (error_ != 0) return -take_error();
    return state_ == State::over ? 0 : -EAGAIN;
  }
  const std::size_t count = std::min(there, bytes);
  std::memcpy(into, in_.data() + in_taken_, count);
  in_taken_ += count;
  if (in_taken_ == in_.size()) {
    in_.clear();
    in_taken_ = 0;
  }
  taken_ += count;
  if (peer_ != nullptr) {
    const std::uint64_t there_ns = kernel_.travel_ns(*host_, *peer_->host_, 0);
    kernel_.schedule().after(there_ns, [peer = peer_, taken = taken_] { peer->acknowledge(taken); });
  }
  return static_cast<std::int64_t>(count);
}

/// The other end has read so much of what was written here. Where this cannot get through, it asks again until it does.
void TcpSocket::acknowledge(std::uint64_t taken) {
  if (state_ != State::connected || taken <= acknowledged_) return;
  if (!kernel_.reaches(*peer_->host_, *host_)) {
    kernel_.schedule().after(kResendNs, [self = shared_from_this(), taken] { self->acknowledge(taken); });
    return;
  }
  acknowledged_ = taken;
  if (!wants_room_ || room() < kernel_.wire.buffer_bytes / 3) return;
  wants_room_ = false;
  notify();
}

std::int64_t TcpSocket::write(const void* from, std::size_t bytes) {
  if (state_ == State::connecting) return -EAGAIN;
  if (state_ == State::fresh || state_ == State::listening) return -EPIPE;
  if (error_ != 0) return -take_error();
  if (ended_ || state_ == State::over) return -EPIPE;
  const std::size_t count = std::min(bytes, room());
  if (count < bytes) wants_room_ = true;
  if (count == 0 && bytes != 0) return -EAGAIN;
  const char* data = static_cast<const char*>(from);
  written_ += count;
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done,
                                      1 + kernel_.schedule().random().below(2 * kernel_.wire.segment_bytes));
    transmit({std::string(data + done, part)});
    done += part;
  }
  return static_cast<std::int64_t>(count);
}

void TcpSocket::end_writing() {
  if (ended_ || state_ != State::connected) return;
  ended_ = true;
  transmit({{}, true});
}

void TcpSocket::transmit(Segment segment) {
  TcpSocket& there = *peer_;
  const std::uint64_t arrival_ns = kernel_.schedule().now_ns() +
                                   kernel_.travel_ns(*host_, *there.host_, segment.bytes.size());
  segment.arrival_ns = std::max(there.last_arrival_ns_, arrival_ns);
  there.last_arrival_ns_ = segment.arrival_ns;
  kernel_.schedule().at(segment.arrival_ns, [to = peer_, from = shared_from_this()] { to->arrive(from); });
  there.coming_.push_back(std::move(segment));
}

/// Takes what has come from the other end, in order; what cannot get through is sent again, and all that follows waits
/// for it.
void TcpSocket::arrive(const std::shared_ptr<TcpSocket>& from) {
  bool news = false;
  while (!coming_.empty() && !resending_ && coming_.front().arrival_ns <= kernel_.schedule().now_ns()) {
    if (from->vanished_ || (from->state_ == State::over && from->error_ == ETIMEDOUT)) {  // there is nobody to send it
                                                                                          // again
      coming_.clear();
      break;
    }
    if (!host_->up || !kernel_.reaches(*from->host_, *host_)) {
      if (tries_++ == kTriesMax) {
        from->be_reset(ETIMEDOUT);
        return;
      }
      resending_ = true;
      kernel_.schedule().after(resend_ns(tries_), [self = shared_from_this(), from] {
        self->resending_ = false;
        self->arrive(from);
      });
      break;
    }
    tries_ = 0;
    const Segment segment = std::move(coming_.front());
    coming_.pop_front();
    if (vanished_ || state_ == State::over || (closed_ && !segment.bytes.empty())) {  // nobody is there for it
      if (!vanished_) state_ = State::over;
      send_reset();
      coming_.clear();
      break;
    }
    if (segment.end) peer_ended_ = true;
    in_ += segment.bytes;
    news = true;
  }
  if (news) notify();
}

/// A reset comes behind what was sent before it, unless something of that was lost: then nobody sends it again.
void TcpSocket::send_reset() {
  if (peer_ == nullptr) return;
  Schedule& schedule = kernel_.schedule();
  std::uint64_t arrival_ns = schedule.now_ns() + kernel_.travel_ns(*host_, *peer_->host_, 0);
  const bool overtakes = host_ != peer_->host_ && kernel_.wire.loss_percent != 0 && schedule.random().one_in(2);
  if (!overtakes) arrival_ns = std::max(arrival_ns, peer_->last_arrival_ns_);
  schedule.at(arrival_ns, [from = shared_from_this(), to = peer_] {
    if (to->host_->up && from->kernel_.reaches(*from->host_, *to->host_)) to->be_reset(ECONNRESET);
  });
}

void TcpSocket::be_reset(int error) {
  if (state_ == State::over || state_ == State::listening) return;
  state_ = State::over;
  over_since_ns_ = kernel_.schedule().now_ns();
  error_ = error;
  if (error == ECONNRESET && peer_ended_) error_ = ended_ ? 0 : EPIPE;  // as Linux has it
  coming_.clear();
  if (waits_to_be_accepted_) return;
  notify();
}

void TcpSocket::break_off(bool both) {
  if (both && peer_ != nullptr) peer_->be_reset(ECONNRESET);
  be_reset(ECONNRESET);
}

void TcpSocket::vanish() {
  vanished_ = true;
  if (state_ == State::listening) host_->listeners.erase(local_.port);
  state_ = State::over;
}

int TcpSocket::take_error() {
  const int error = error_;
  error_ = 0;
  return error;
}

void TcpSocket::close() {
  closed_ = true;
  if (vanished_) return;
  if (state_ == State::listening) {
    host_->listeners.erase(local_.port);
    state_ = State::over;
    for (const auto& never_taken : waiting_) never_taken->linger_reset = true, never_taken->close();
    waiting_.clear();
    return;
  }
  if (state_ == State::connecting) {
    state_ = State::over;
    if (peer_ != nullptr) send_reset();
    return;
  }
  if (state_ != State::connected) return;
  if (linger_reset || in_.size() > in_taken_) {
    send_reset();
    state_ = State::over;
  } else {
    end_writing();  // what is on the way still arrives
  }
}

// --- all of them

Kernel::Kernel(Schedule& schedule, const Wire& the_wire, std::size_t count) : wire(the_wire), schedule_(schedule) {
  for (std::size_t i = 0; i < count; ++i) {
    Host& host = hosts.emplace_back();
    host.number = static_cast<std::uint32_t>(i);
    host.ip = htonl(0x0a000001u + static_cast<std::uint32_t>(i));
  }
}

/// Ends refer to each other.
Kernel::~Kernel() {
  mapped_.clear();
  for (const auto& process : processes_) {
    process->files.clear();
    process->epoll.reset();
  }
  for (const auto& weak : sockets_) {
    if (const auto socket = weak.lock()) {
      socket->peer_.reset();
      socket->waiting_.clear();
    }
  }
  for (const auto& [memory, bytes] : freed_) idle_memory()[bytes].push_back(memory);
}

Process& Kernel::start_process(Host& host, std::string name) {
  processes_.push_back(std::make_unique<Process>(*this, host, std::move(name)));
  return *processes_.back();
}

void Kernel::end_process(Process& process) {
  process.dead = true;
  auto files = std::move(process.files);
  process.files.clear();
  for (auto& file : files) {
    if (file != nullptr && --file->references == 0) {
      for (EpollFile* watcher : std::vector(file->watchers)) watcher->remove(file.get());
      file->close();
    }
  }
  process.epoll.reset();
}

void Kernel::crash(Host& host) {
  host.up = false;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket != nullptr && socket->host_ == &host) socket->vanish();
  }
  host.listeners.clear();
  host.unix_listeners.clear();
}

Host* Kernel::host_of(std::uint32_t ip, Host& asking) {
  if ((ntohl(ip) >> 24) == 127) return &asking;
  for (Host& host : hosts) {
    if (host.ip == ip) return &host;
  }
  return nullptr;
}

std::uint64_t Kernel::travel_ns(const Host& from, const Host& to, std::size_t bytes) {
  Random& random = schedule_.random();
  if (&from == &to) return 2'000 + random.below(8'000) + bytes / 8;
  std::uint64_t time = wire.latency_ns + bytes * 1000 / wire.bytes_per_us;
  if (wire.jitter_ns != 0) time += random.below(wire.jitter_ns);
  for (int tries = 0; wire.loss_percent != 0 && tries < 5 && random.percent(wire.loss_percent); ++tries)
    time += resend_ns(tries);
  return time;
}

std::vector<std::shared_ptr<TcpSocket>> Kernel::connected() {
  std::vector<std::shared_ptr<TcpSocket>> all;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket != nullptr && socket->state_ == TcpSocket::State::connected && !socket->closed_) all.push_back(socket);
  }
  return all;
}

std::shared_ptr<TcpSocket> Kernel::find(const Address& local, const Address& remote) const {
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket != nullptr && !socket->closed_ && socket->local_ == local && socket->remote_ == remote) return socket;
  }
  return nullptr;
}

std::uint16_t Kernel::choose_port(Host& host, std::uint32_t from, const Address& to) {
  const auto is_used = [&](std::uint16_t port) {
    return std::any_of(sockets_.begin(), sockets_.end(), [&](const std::weak_ptr<TcpSocket>& weak) {
      const auto socket = weak.lock();
      const Address local{from, port};
      return socket != nullptr &&
             ((socket->local_ == local && socket->remote_ == to) ||
              (socket->local_ == to && socket->remote_ == local)) &&
             (socket->state_ != TcpSocket::State::over || !socket->closed_);
    });
  };
  constexpr std::uint16_t kFirstShared = 19'000;
  for (int tries = 0; wire.ports != 0 && tries < 8; ++tries) {
    const auto port = static_cast<std::uint16_t>(kFirstShared + schedule_.random().below(wire.ports));
    if (!is_used(port)) return port;
  }
  return host.next_port++;
}

std::byte* Kernel::allocate(std::size_t bytes) {
  auto& idle = idle_memory()[bytes];
  std::byte* memory = nullptr;
  if (idle.empty()) {
    memory = static_cast<std::byte*>(::operator new(bytes, kPage));
  } else {
    memory = idle.back();
    idle.pop_back();
  }
  std::memset(memory, 0, bytes);
  return memory;
}

void Kernel::free(std::byte* memory, std::size_t bytes) {
  std::memset(memory, static_cast<int>(kFreed), bytes);
  freed_.emplace_back(memory, bytes);
}

void Kernel::map(Process& process, const std::shared_ptr<MemoryFile>& file) {
  mapped_[file->memory] = file;
  ++mappings_[file->memory];
  ++process.mappings[file->memory];
}

bool Kernel::unmap(Process& process, void* memory) {
  if (process.dead) return true;  // it has nothing mapped any more
  const auto found = process.mappings.find(memory);
  if (found == process.mappings.end()) return false;
  if (--found->second == 0) process.mappings.erase(found);
  if (--mappings_[memory] == 0) {
    mappings_.erase(memory);
    mapped_.erase(memory);
  }
  return true;
}

void Kernel::unmap_all(Process& process) {
  for (const auto& [memory, times] : process.mappings) {
    if ((mappings_[memory] -= times) != 0) continue;
    mappings_.erase(memory);
    mapped_.erase(memory);
  }
  process.mappings.clear();
}

bool Kernel::freed_memory_is_intact() const {
  return std::all_of(freed_.begin(), freed_.end(), [](const auto& entry) {
    return std::all_of(entry.first, entry.first + entry.second, [](std::byte byte) { return byte == kFreed; });
  });
}

}  // namespace gpusock::sim
