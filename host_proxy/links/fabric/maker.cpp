#include "host_proxy/links/fabric/maker.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/random.hpp"
#include "host_proxy/links/one_sided_link.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <utility>

namespace gpusock::proxy::fabric {
namespace {

struct Decoration {
  std::mutex mutex;
  PortDecorator decorator;
};
Decoration& decoration() {
  static auto* only = new Decoration;
  return *only;
}

/// Makes a name that a peer has sent printable.
std::string to_text(const ProviderName& name) {
  std::string text(name.data(), strnlen(name.data(), name.size()));
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return text;
}

ProviderName to_name(const std::string& text) {
  ProviderName name{};
  std::copy_n(text.begin(), std::min(text.size(), name.size()), name.begin());
  return name;
}

/// Equal for processes that see the same shared memory and process numbers: same boot, /dev/shm, process namespace and
/// user.
Identity host_identity() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  struct stat shared {
  }, processes{};
  stat("/dev/shm", &shared);
  stat("/proc/self/ns/pid", &processes);
  for (const std::uint64_t part : {std::uint64_t{shared.st_dev}, std::uint64_t{shared.st_ino},
                                   std::uint64_t{processes.st_ino}, std::uint64_t{geteuid()}}) {
    text += ' ' + std::to_string(part);
  }
  Identity identity;
  for (std::size_t half = 0; half < 2; ++half) {
    std::uint64_t hash = 0xcbf29ce484222325u + half;  // FNV-1a: an attacker gains nothing by a collision
    for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
    std::memcpy(identity.data() + 8 * half, &hash, sizeof hash);
  }
  return identity;
}

class FabricSetup : public LinkSetup {
 public:
  FabricSetup(FabricMaker& maker, const LinkRequest& request, ReadySink& sink)
      : maker_(maker), request_(request), sink_(sink) {}
  ~FabricSetup() { maker_.forget(sink_); }

  /// Returns `waiting` until libfabric has answered which providers there are; then begins.
  State advance() override {
    if (failure_.error == 0 && !begun_) {
      const FabricProviders* providers = maker_.providers(sink_);
      if (providers == nullptr) return State::waiting;
      begun_ = true;
      attempt([&] { begin(*providers); });
    }
    return LinkSetup::advance();
  }

  std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                  LinkEvents& events) override {
    return std::make_unique<OneSidedLink>(std::move(transport_), std::move(stream), rings, events);
  }

 protected:
  /// Makes the message for the peer. Throws Error.
  virtual void begin(const FabricProviders& providers) = 0;

  void use(const std::shared_ptr<PeerEndpoint>& peer) {
    rings_ = maker_.segments().take_rings(request_.own_ring_bytes(), request_.kernels);
    transport_ = std::make_unique<FabricTransport>(peer, rings_.link, request_.acceptor);
  }

  FabricMaker& maker_;
  LinkRequest request_;
  ReadySink& sink_;
  bool begun_ = false;
  std::unique_ptr<FabricTransport> transport_;
};

class FabricOffer final : public FabricSetup {
 public:
  FabricOffer(FabricMaker& maker, const LinkRequest& request, ReadySink& sink) : FabricSetup(maker, request, sink) {
    if (!takes_software() && !FabricProviders::may_have_hardware()) {
      failure_ = {ENODEV, "no NIC here that is better used by libfabric than by tcp"};
    }
  }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&offer_, 1)); }

  bool take_answer(std::span<const std::byte> bytes) override {
    Answer answer;
    if (bytes.size() != sizeof answer) {
      failure_ = {EPROTO, "the peer's answer is not the fabric link's"};
      return false;
    }
    std::memcpy(&answer, bytes.data(), sizeof answer);
    const auto end = offer_.names.begin() + offer_.providers;
    if (std::find(offer_.names.begin(), end, answer.provider) == end) {
      failure_ = {EPROTO, "the peer answered with a provider that was not offered"};
      return false;
    }
    return attempt([&] {
      use(maker_.peer_of_connector(to_text(answer.provider), request_, answer.pair));
      if (const int error = transport_->take_grant(answer.grant); error != 0)
        throw Error(error, error == EPROTO ? "the peer's endpoint or memory is invalid"
                                           : "no memory for the address of the peer's endpoint");
    });
  }

 private:
  /// True if a provider in software may be used: if tcp is excluded, or a provider is named. Otherwise tcp is better.
  bool takes_software() const { return request_.only || maker_.names_provider(); }

  void begin(const FabricProviders& providers) override {
    std::vector<std::string> names = providers.names_for(request_.local);
    if (!takes_software()) std::erase_if(names, [](const auto& name) { return !FabricProviders::is_hardware(name); });
    if (names.empty()) throw Error(ENODEV, providers.problem(request_.local));
    offer_.context = maker_.context();
    offer_.host = host_identity();
    offer_.providers = static_cast<std::uint32_t>(std::min(names.size(), kProvidersMax));
    std::transform(names.begin(), names.begin() + offer_.providers, offer_.names.begin(), to_name);
  }

  Offer offer_;
};

class FabricAnswer final : public FabricSetup {
 public:
  FabricAnswer(FabricMaker& maker, const LinkRequest& request, std::span<const std::byte> bytes, ReadySink& sink)
      : FabricSetup(maker, request, sink) {
    if (bytes.size() != sizeof offer_) {
      failure_ = {EPROTO, "the peer's offer is not the fabric link's"};
      return;
    }
    std::memcpy(&offer_, bytes.data(), sizeof offer_);
    if (offer_.version != kFabricVersion || offer_.providers > kProvidersMax) {
      failure_ = {EPROTO, "the peer's fabric link has another version"};
    }
  }

  std::span<const std::byte> message() const override { return std::as_bytes(std::span(&answer_, 1)); }

 private:
  void begin(const FabricProviders& providers) override {
    const std::string provider = choose(providers);
    const auto peer = maker_.peer_of_acceptor(provider, request_, offer_.context);
    use(peer);
    answer_ = {to_name(provider), peer->pair(), transport_->grant()};
  }

  /// The first provider, in the acceptor's order, that this side has as well.
  std::string choose(const FabricProviders& providers) const {
    const std::vector<std::string> own = providers.names_for(request_.local);
    if (own.empty()) throw Error(ENODEV, providers.problem(request_.local));
    std::string theirs;
    for (std::uint32_t i = 0; i < offer_.providers; ++i) {
      std::string name = to_text(offer_.names[i]);
      const bool reaches = !FabricProviders::is_local(name) || offer_.host == host_identity();
      if (reaches && std::find(own.begin(), own.end(), name) != own.end()) return name;
      theirs += (i == 0 ? "" : ", ") + name;
    }
    throw Error(EPROTONOSUPPORT, "no provider of libfabric in common: the peer has " + theirs);
  }

  Offer offer_;
  Answer answer_;
};

std::string key_of(const char* role, const std::string& provider, const Identity& identity) {
  return role + provider + ' ' + to_hex(identity);
}

}  // namespace

void decorate_ports(PortDecorator decorator) {
  const std::lock_guard lock(decoration().mutex);
  decoration().decorator = std::move(decorator);
}

/// An endpoint whose descriptor ends the proxy's sleep as long as the endpoint lives.
class FabricMaker::Watched final : public PeerEndpoint {
 public:
  Watched(FabricMaker& maker, std::unique_ptr<FabricPort> port, const Identity& pair, std::string name)
      : PeerEndpoint(std::move(port), pair, std::move(name)),
        network_(maker.network_),
        descriptor_(this->port().descriptor()) {
    if (descriptor_ >= 0) network_.watch(descriptor_, maker);
  }
  ~Watched() { detach(); }

  /// Ends the use of the network. Called before the network is destroyed.
  void detach() {
    if (descriptor_ >= 0) network_.unwatch(descriptor_);
    descriptor_ = -1;
  }

 private:
  PosixNetwork& network_;
  int descriptor_;
};

FabricMaker::FabricMaker(PosixNetwork& network, SegmentPool& segments, std::string provider)
    : network_(network), segments_(segments), wanted_(std::move(provider)), context_(random_bytes<16>()) {
  const std::lock_guard lock(decoration().mutex);
  decorator_ = decoration().decorator;
}

/// Waits for the thread that asks: it must not outlive main, at whose end libfabric is taken down.
FabricMaker::~FabricMaker() {
  if (discovery_ != nullptr) discovery_->wait();
  for (const auto& entry : polled_) {
    if (const auto peer = entry.lock()) static_cast<Watched&>(*peer).detach();
  }
}

/// If the caller names this link, or the user names a provider, the opening waits here: the handshake's time is for
/// what the peers do. Otherwise the discovery is only begun, in case it is needed.
bool FabricMaker::prepare(const Endpoint& asked) {
  const bool named = asked.link == LinkKind::fabric || names_provider();
  if (!named && !FabricProviders::may_have_hardware()) return true;
  begin_discovery();
  return !named || discovery_->over();
}

/// Begins the discovery, unless it has begun. Throws std::bad_alloc if there was no memory for it; the next call asks
/// again.
void FabricMaker::begin_discovery() {
  if (discovery_ != nullptr && discovery_->failed()) {
    discovery_.reset();
    throw std::bad_alloc();
  }
  if (discovery_ == nullptr) discovery_ = Discovery::of(wanted_);
}

const FabricProviders* FabricMaker::providers(ReadySink& sink) {
  begin_discovery();
  if (discovery_->over()) return &discovery_->providers();
  if (std::find(waiting_.begin(), waiting_.end(), &sink) == waiting_.end()) waiting_.push_back(&sink);
  return nullptr;
}

bool FabricMaker::tell_waiting() {
  if (waiting_.empty() || is_asking()) return false;
  for (ReadySink* sink : std::exchange(waiting_, {})) sink->on_ready();
  return true;
}

std::unique_ptr<LinkSetup> FabricMaker::start(const LinkRequest& request, std::span<const std::byte> offer,
                                              ReadySink& sink) {
  if (request.acceptor) return std::make_unique<FabricOffer>(*this, request, sink);
  return std::make_unique<FabricAnswer>(*this, request, offer, sink);
}

bool FabricMaker::poll(std::uint64_t) {
  bool any = tell_waiting();
  if (polled_.empty()) return any;
  bool gone = false;
  for (const auto& entry : polled_) {
    const auto peer = entry.lock();
    gone |= peer == nullptr;
    if (peer == nullptr) continue;
    any |= peer->poll();
  }
  if (gone) {
    std::erase_if(polled_, [](const auto& entry) { return entry.expired(); });
    std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
    std::erase_if(domains_, [](const auto& entry) { return entry.second.expired(); });
  }
  return any;
}

void FabricMaker::maintain(std::uint64_t now_ns) {
  for (const auto& entry : polled_) {
    if (const auto peer = entry.lock()) peer->maintain(now_ns);
  }
  idle_.maintain(now_ns);
}

bool FabricMaker::wants_polling() const {
  return is_asking() || std::any_of(polled_.begin(), polled_.end(), [](const auto& entry) {
           const auto peer = entry.lock();
           return peer != nullptr && !peer->may_sleep();
         });
}

std::shared_ptr<PeerEndpoint> FabricMaker::find(const std::string& key) {
  const auto found = peers_.find(key);
  auto peer = found == peers_.end() ? nullptr : found->second.lock();
  return peer != nullptr && peer->exhausted() ? nullptr : peer;
}

// A connector identifies an acceptor's context by its Identity and by the address at which it was reached: no other
// context answers there. It gives itself an Identity that only the two know. So no context can pass for another.
std::shared_ptr<PeerEndpoint> FabricMaker::peer_of_acceptor(const std::string& provider, const LinkRequest& request,
                                                            const Identity& acceptor) {
  const std::string key = key_of("to ", provider, acceptor) + ' ' + request.peer.host_port();
  if (auto peer = find(key)) return peer;
  return make_peer(key, provider, request, random_bytes<16>());
}

std::shared_ptr<PeerEndpoint> FabricMaker::peer_of_connector(const std::string& provider, const LinkRequest& request,
                                                             const Identity& pair) {
  const std::string key = key_of("from ", provider, pair);
  if (auto peer = find(key)) return peer;
  return make_peer(key, provider, request, pair);
}

std::shared_ptr<PeerEndpoint> FabricMaker::make_peer(const std::string& key, const std::string& provider,
                                                     const LinkRequest& request, const Identity& pair) {
  Endpoint local = request.local;
  local.port = 0;
  std::weak_ptr<FabricDomain>& kept = domains_[provider + ' ' + local.host_port()];
  auto domain = kept.lock();
  if (domain == nullptr) kept = domain = discovery_->providers().open(provider, local);
  auto port = domain->open_port();
  if (decorator_) port = decorator_(std::move(port));
  auto peer = std::make_shared<Watched>(*this, std::move(port), pair, provider);
  peers_[key] = peer;
  polled_.push_back(peer);
  if (peer->port().closes_only_idle()) idle_.keep(peer);
  log_debug("opened an endpoint of " + provider + " for " + request.peer.host_port());
  return peer;
}

}  // namespace gpusock::proxy::fabric
