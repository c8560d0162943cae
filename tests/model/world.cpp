#include "world.hpp"

#include "gpusock/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/negotiation/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace gpusock::proxy {

// Not in these cases: all connections here are plain TCP, and nobody reads a log.
std::unique_ptr<Handshake> make_connector_handshake(ByteStream&, const LinkResources&, const Endpoint&, ReadySink&,
                                                    bool) {
  return nullptr;
}
std::unique_ptr<Handshake> make_acceptor_handshake(ByteStream&, const LinkResources&, const Endpoint&, ReadySink&,
                                                   bool) {
  return nullptr;
}
std::string Handshake::mismatch() const { return {}; }
Secret::Secret(const std::string& text) : empty_(text.empty()) {}
void log(LogLevel, const std::string&, const CodeLine&) {}

}  // namespace gpusock::proxy

namespace gpusock::model {
namespace {

class ModelStream final : public proxy::ByteStream {
 public:
  ModelStream(std::shared_ptr<Wire> wire, bool echoes, bool breaks)
      : wire_(std::move(wire)), echoes_(echoes), breaks_(breaks) {}
  ~ModelStream() override { wire_->gone = true; }

  std::int64_t read(std::span<const iovec> into) override {
    std::string& arriving = wire_->arriving;
    if (arriving.empty()) return wire_->peer_ended ? 0 : -EAGAIN;
    const std::size_t bytes = std::min(arriving.size(), into[0].iov_len);
    std::memcpy(into[0].iov_base, arriving.data(), bytes);
    arriving.erase(0, bytes);
    return static_cast<std::int64_t>(bytes);
  }

  std::int64_t write(std::span<const iovec> from) override {
    if (breaks_) return -ECONNRESET;
    std::int64_t written = 0;
    for (const iovec& part : from) {
      const auto* bytes = static_cast<const char*>(part.iov_base);
      wire_->sent.append(bytes, bytes + part.iov_len);
      if (echoes_) wire_->arriving.append(bytes, bytes + part.iov_len);
      written += static_cast<std::int64_t>(part.iov_len);
    }
    return written;
  }

  int connected() override { return 0; }
  int take_error() override { return 0; }
  void end_writing() override {
    wire_->ended = true;
    if (echoes_) wire_->peer_ended = true;
  }
  void reset_on_close() override {}
  Endpoint local() const override {  // of another port than the peer's: a socket is not connected to itself
    Endpoint endpoint = somewhere();
    ++endpoint.port;
    return endpoint;
  }
  Endpoint peer() const override { return somewhere(); }

 private:
  std::shared_ptr<Wire> wire_;
  bool echoes_;
  bool breaks_;
};

class ModelAcceptor final : public proxy::Acceptor {
 public:
  explicit ModelAcceptor(ModelNetwork& network)
      : network_(network), is_served_(network.listeners++ >= network.served_from) {}
  std::unique_ptr<proxy::ByteStream> accept() override {
    return is_served_ && network_.incoming-- > 0 ? network_.make_stream() : nullptr;
  }
  Endpoint local() const override { return somewhere(); }

 private:
  ModelNetwork& network_;
  bool is_served_;
};

/// Memory that is kept from one execution to the next.
class ModelPlatform final : public proxy::Platform {
 public:
  void* allocate_shared(std::size_t bytes) override {
    if (bytes > bytes_) {
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kPage)));
      bytes_ = bytes;
    }
    return memory_.get();
  }
  void free_shared(void*, std::size_t) noexcept override {}
  void attach(void*, std::size_t) override {}
  void detach(void*, std::size_t) noexcept override {}
  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return true; }
  /// One memory under one address: who loads a word through the mapping is found out by the simulation.
  std::unique_ptr<proxy::DeviceWindow> make_window(std::size_t bytes) override {
    class Window final : public proxy::DeviceWindow {
     public:
      explicit Window(std::vector<std::uint64_t>& words) : memory_(reinterpret_cast<std::byte*>(words.data())) {}
      std::byte* device() const override { return memory_; }
      std::byte* mapping() const override { return memory_; }

     private:
      std::byte* memory_;
    };
    window_.resize(bytes / sizeof(std::uint64_t));
    clear(window_.data(), window_.size());
    return std::make_unique<Window>(window_);
  }
  // Rings are in host memory.
  bool device_memory_is_mappable() const override { return true; }
  std::byte* allocate_device(std::size_t) override { throw gpusock::Error(ENOMEM, "no device memory in the model"); }
  void free_device(std::byte*) noexcept override {}
  void zero_device(std::byte*, std::size_t) override {}
  std::byte* proxy_address(std::byte* device_memory) const override { return device_memory; }
  bool reaches_device_memory_of(const Platform&) const override { return true; }
  std::unique_ptr<proxy::Copier> make_copier() override {
    throw gpusock::Error(ENOMEM, "no device memory in the model");
  }

 private:
  /// As the kernel does with new memory: these are no stores of a thread.
  [[gnu::no_sanitize_thread]] static void clear(std::uint64_t* words, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) words[i] = 0;
  }

  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<std::uint64_t> window_;
  std::size_t bytes_ = 0;
};

std::shared_ptr<ModelPlatform> platform() {
  static const auto one = std::make_shared<ModelPlatform>();
  return one;
}

proxy::TcpMaker& tcp() {
  static proxy::SegmentPool pool(platform(), {kRingBytes, kRingBytes}, 4);
  static proxy::TcpMaker maker(pool);
  return maker;
}

void ring_doorbell(void*, std::uint32_t) {}
void ring_for_credit(void*) {}
void relax(void*, std::uint64_t, std::uint64_t waited_ns, bool) {
  waited_ns == detail::kLockWaitNs ? give_way_to_lock() : give_way();
}

constexpr detail::Hooks kHooks = [] {
  detail::Hooks hooks{nullptr, ring_doorbell, ring_for_credit, relax};
  hooks.running_block = [](void*) -> std::int64_t { return 0; };  // an execution that is over leaves as a kernel does
  return hooks;
}();

}  // namespace

const detail::Hooks& hooks() { return kHooks; }

Endpoint somewhere() {
  Endpoint at;
  at.address[0] = 127;
  at.address[3] = 1;
  at.family = 4;
  at.port = 7000;
  at.link = LinkKind::tcp;
  return at;
}

std::unique_ptr<proxy::ByteStream> ModelNetwork::make_stream() {
  wires.push_back(std::make_shared<Wire>());
  wires.back()->arriving = greeting;
  wires.back()->peer_ended = ends;
  return std::make_unique<ModelStream>(wires.back(), echoes, first_breaks && wires.size() == 1);
}

std::unique_ptr<proxy::Acceptor> ModelNetwork::listen(const Endpoint&, int, int&) {
  return std::make_unique<ModelAcceptor>(*this);
}

std::unique_ptr<proxy::ByteStream> ModelNetwork::connect(const Endpoint&, int& error) {
  error = ECONNREFUSED;
  return refuses ? nullptr : make_stream();
}

void World::look_seldom() {
  side_.status_turns = 2;
  seldom_ = kHooks;
  seldom_.self = this;
  // A turn looks at a part of what its thread waits for: only after all parts the thread gives way.
  seldom_.relax = [](void* self, std::uint64_t, std::uint64_t waited_ns, bool) {
    auto& turns = static_cast<World*>(self)->turns_;
    if (waited_ns == detail::kLockWaitNs) return give_way_to_lock();
    if (++turns[static_cast<std::size_t>(thread_number())] % 2 == 0) give_way();
  };
  side_.hooks = &seldom_;
}

World::World(std::uint32_t sockets_max, Looks looks)
    : table_(std::make_unique<proxy::TableMemory>(
          platform(), sockets_max, looks == Looks::on_device,
          looks == Looks::on_device ? RingPlacement::device : RingPlacement::host)),
      slots_(table_->slots()),
      accept_taken_(table::kListenersMax),
      sets_(table_->sets()),
      host_sets_(table_->sets()) {
  resources_.makers = {&tcp()};
  proxy_ = std::make_unique<proxy::Proxy>(*table_, network, resources_, proxy::ProxyOptions{});
  const auto kind = looks == Looks::on_device ? proxy::SideKind::device : proxy::SideKind::host;
  side_.table = table_->view(kind);
  side_.slots = slots_.data();
  side_.free_taken = &free_taken_;
  side_.accept_taken = accept_taken_.data();
  set_view_ = table_->sets(kind, sets_.data());
  side_.sets = &set_view_;
  side_.hooks = &kHooks;
  if (looks == Looks::seldom) look_seldom();
  host_set_view_ = table_->sets(proxy::SideKind::host, host_sets_.data());
  host_side_.table = table_->view(proxy::SideKind::host);
  host_side_.sets = &host_set_view_;
  host_side_.hooks = &kHooks;
}

World::~World() = default;

void World::cancel() { table_->cancel(); }

}  // namespace gpusock::model
