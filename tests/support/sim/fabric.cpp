#include "tests/support/sim/fabric.hpp"

#include "gpusock/error.hpp"
#include "tests/support/sim/shortage.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace gpusock::sim {

Fabric* current_fabric = nullptr;

using proxy::fabric::Completion;
using proxy::fabric::FabricAccess;
using proxy::fabric::FabricRegion;
using proxy::fabric::FabricRegistration;
using proxy::fabric::FabricWrite;
using proxy::fabric::RegisteredRegion;

constexpr std::uint64_t kGiveUpNs = 3'000'000'000;

/// Readable while there are completions.
class CompletionFile final : public File {
 public:
  std::uint32_t ready() const override { return news ? std::uint32_t{EPOLLIN} : 0; }
  bool news = false;
};

class FabricPort final : public proxy::fabric::FabricPort, public std::enable_shared_from_this<FabricPort> {
 public:
  FabricPort(Fabric& fabric, Process& process)
      : fabric_(fabric), process_(process), id_(fabric.next_++), file_(std::make_shared<CompletionFile>()) {
    std::memcpy(address_.data(), &id_, sizeof id_);
    fabric_.ports_[id_] = this;
    descriptor_ = open_descriptor(file_);
  }
  ~FabricPort() override { FabricPort::close(); }

  void close() override {
    if (closed_) return;
    closed_ = true;
    fabric_.ports_.erase(id_);
    ::close(descriptor_);
  }
  std::span<const std::byte> address() const override { return address_; }
  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    if (deny_call()) return -ENOMEM;
    if (address.size() != sizeof peer) return -EINVAL;
    std::memcpy(&peer, address.data(), sizeof peer);
    return 0;
  }
  bool registers_sources() const override { return true; }

  std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                      int& error) override {
    const bool denied = deny_call();
    const Outside outside;
    if (denied || process_.kernel.schedule().now_ns() < process_.memory_fails_until_ns) {
      error = ENOMEM;
      return nullptr;
    }
    return std::make_unique<RegisteredRegion>(fabric_.regions_, fabric_.next_++,
                                              FabricRegion{id_, memory, access == FabricAccess::remote_target});
  }

  int write(const FabricWrite& write) override {
    const Outside outside;
    const auto* source = dynamic_cast<const RegisteredRegion*>(write.source);
    if (source == nullptr || !source->holds(write.from, write.bytes)) return -EFAULT;
    Schedule& schedule = fabric_.kernel_.schedule();
    if (process_.dead) return -EIO;
    const bool connecting = schedule.now_ns() < opened_ns_ + fabric_.connects_ns;
    if (connecting || schedule.random().percent(fabric_.refused_percent)) return -EAGAIN;
    // The bytes are read some time between now and the completion; that comes before they land, or behind it.
    const std::uint64_t read_ns = schedule.random().below(2'000 + fabric_.disorder_ns);
    schedule.after(read_ns, [weak = weak_from_this(), write] {
      if (const auto port = weak.lock()) port->fetch(write);
    });
    return 0;
  }

  bool read(std::vector<Completion>& into) override {
    const bool any = !completions_.empty();
    Random& random = fabric_.kernel_.schedule().random();
    while (!completions_.empty()) {
      const std::size_t index = random.below(completions_.size());
      into.push_back(std::move(completions_[index]));
      completions_[index] = std::move(completions_.back());
      completions_.pop_back();
    }
    file_->news = false;
    return any;
  }

  int descriptor() const override { return descriptor_; }
  bool may_sleep() override { return completions_.empty(); }

 private:
  void complete(Completion completion) {
    if (closed_) return;
    completions_.push_back(std::move(completion));
    file_->news = true;
    file_->notify();
  }
  void succeed(const FabricWrite& write) { complete({Completion::Kind::written, write.token, 0, 0, {}}); }
  void fail(const FabricWrite& write, int error) {
    complete({Completion::Kind::failed, write.token, 0, error, "the simulated fabric failed"});
  }

  /// Takes the bytes out of this side's memory.
  void fetch(const FabricWrite& write) {
    if (closed_ || process_.dead) return;
    Schedule& schedule = fabric_.kernel_.schedule();
    const auto* first = static_cast<const char*>(write.from);
    std::string bytes(first, write.bytes);
    const bool early = !write.delivered && (schedule.random().one_in(2) || fabric_.tells_no_loss);
    if (early) succeed(write);
    const std::uint64_t travel_ns = 1'000 + schedule.random().below(1 + fabric_.disorder_ns);
    schedule.after(travel_ns, [self = shared_from_this(), write, early, bytes = std::move(bytes),
                               since_ns = schedule.now_ns()] { self->land(write, bytes, early, since_ns); });
  }

  void land(const FabricWrite& write, const std::string& bytes, bool early, std::uint64_t since_ns) {
    Schedule& schedule = fabric_.kernel_.schedule();
    const auto port = fabric_.ports_.find(write.peer);
    const bool away = port != fabric_.ports_.end() &&
                      (!port->second->process_.host.up ||
                       !fabric_.kernel_.reaches(process_.host, port->second->process_.host));
    if (away && (fabric_.tells_no_loss || schedule.now_ns() < since_ns + kGiveUpNs)) {
      schedule.after(10'000'000, [self = shared_from_this(), write, bytes, early, since_ns] {
        self->land(write, bytes, early, since_ns);
      });
      return;
    }
    std::byte* const target = fabric_.regions_.target(write.peer, write.key, write.address, bytes.size());
    const bool there = !away && port != fabric_.ports_.end() && !port->second->process_.dead && target != nullptr;
    if (!there && fabric_.tells_no_loss) return;
    if (!there || schedule.now_ns() < fabric_.fail_until_ns) {
      if (early && !there) return;  // its sender has long been told that it is done
      if (early) {                  // nobody's write any more: the endpoint says that it has lost something
        complete({Completion::Kind::failed, Completion::kNoToken, 0, ECONNRESET, "the simulated fabric lost a write"});
      } else {
        fail(write, there ? EIO : EACCES);
      }
      return;
    }
    std::memcpy(target, bytes.data(), bytes.size());
    port->second->complete(
        {Completion::Kind::arrived, Completion::kNoToken, write.data | schedule.random()() << 32, 0, {}});
    if (!early) succeed(write);
  }

  Fabric& fabric_;
  Process& process_;
  std::uint64_t id_;
  std::array<std::byte, sizeof(std::uint64_t)> address_{};
  std::shared_ptr<CompletionFile> file_;
  int descriptor_ = -1;
  std::uint64_t opened_ns_ = fabric_.kernel_.schedule().now_ns();
  bool closed_ = false;
  std::vector<Completion> completions_;
};

namespace {

/// What the proxy owns; the events of writes may hold the port longer.
class OwnedPort final : public proxy::fabric::FabricPort {
 public:
  explicit OwnedPort(std::shared_ptr<sim::FabricPort> port) : port_(std::move(port)) {}
  ~OwnedPort() override { port_->close(); }
  void close() override { port_->close(); }
  std::span<const std::byte> address() const override { return port_->address(); }
  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    return port_->add_peer(address, peer);
  }
  bool registers_sources() const override { return port_->registers_sources(); }
  std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                      int& error) override {
    return port_->register_memory(memory, access, error);
  }
  int write(const FabricWrite& write) override { return port_->write(write); }
  bool read(std::vector<Completion>& into) override { return port_->read(into); }
  int descriptor() const override { return port_->descriptor(); }
  bool may_sleep() override { return port_->may_sleep(); }

 private:
  std::shared_ptr<sim::FabricPort> port_;
};

class Domain final : public proxy::fabric::FabricDomain {
 public:
  const std::string& provider() const override { return name_; }
  std::unique_ptr<proxy::fabric::FabricPort> open_port() override {
    if (deny_call()) throw Error(ENOMEM, "opening a simulated endpoint");
    const Outside outside;
    return std::make_unique<OwnedPort>(std::make_shared<sim::FabricPort>(*current_fabric, *current_process));
  }

 private:
  std::string name_ = "simulated";
};

}  // namespace
}  // namespace gpusock::sim

namespace gpusock::proxy::fabric {

struct FabricProviders::Impl {};

FabricProviders::FabricProviders(std::string) {}
FabricProviders::~FabricProviders() = default;

std::vector<std::string> FabricProviders::names_for(const Endpoint&) const {
  return sim::current_fabric->present ? std::vector<std::string>{"simulated"} : std::vector<std::string>{};
}
std::string FabricProviders::problem(const Endpoint&) const { return "no simulated fabric in this run"; }
std::shared_ptr<FabricDomain> FabricProviders::open(const std::string&, const Endpoint&) const {
  const sim::Outside outside;
  return std::make_shared<sim::Domain>();
}
bool FabricProviders::is_hardware(const std::string&) { return true; }
bool FabricProviders::may_have_hardware() { return sim::current_fabric->present; }

}  // namespace gpusock::proxy::fabric
