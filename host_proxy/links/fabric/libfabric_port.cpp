#include "host_proxy/links/fabric/libfabric_port.hpp"

#include "plain_types/socket_address.hpp"
#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/random.hpp"
#include "host_proxy/links/fabric/library.hpp"
#include "host_proxy/links/fabric/reach.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>

namespace gpusock::proxy::fabric {

/// libfabric's description of a provider.
struct InfoDeleter {
  void operator()(fi_info* info) const { library()->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

namespace {

/// Providers, best first. Others are used only if they are named: they are slower than tcp, or made for other purposes.
constexpr std::array kPreference = {"cxi", "efa", "psm3", "opx", "verbs;ofi_rxm", "shm", "tcp", "tcp;ofi_rxm"};
constexpr std::size_t kHardware = 5;  // the first ones, which use a NIC's own protocol

struct FidDeleter {
  template <class Fid>
  void operator()(Fid* fid) const {
    fi_close(&fid->fid);
  }
};
template <class Fid>
using Owned = std::unique_ptr<Fid, FidDeleter>;

std::string words(int error) { return library()->strerror(error < 0 ? -error : error); }

/// libfabric's numbers below FI_ERRNO_OFFSET are those of errno.
int to_errno(int error) {
  const int positive = error < 0 ? -error : error;
  return positive > 0 && positive < FI_ERRNO_OFFSET ? positive : EIO;
}

void check(int result, const std::string& what) {
  if (result != 0) throw Error(to_errno(result), what + ": " + words(result));
}

/// The properties that the link needs of an endpoint: reliable, for any peer, with completions of writes at the target.
Info make_hints(std::uint64_t operation_flags) {
  Info hints(library()->dupinfo(nullptr));
  if (hints == nullptr) throw Error(ENOMEM, "asking libfabric for its providers");
  hints->caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // the engine's lock ensures it
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->cq_data_size = 4;
  hints->tx_attr->op_flags = operation_flags;
  return hints;
}

ProviderAddress address_of(const fi_info& info) {
  ProviderAddress result;
  if (info.domain_attr->name != nullptr) result.domain = info.domain_attr->name;
  if (info.addr_format == FI_SOCKADDR_IB) result.kind = ProviderAddress::Kind::infiniband;
  if (info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6) {
    result.kind = ProviderAddress::Kind::ip;
    if (info.src_addr == nullptr) return result;  // without a family it matches no host
    result.ip = detail::endpoint_of(*static_cast<const sockaddr*>(info.src_addr));
  }
  return result;
}

bool matches(const std::string& name, const std::string& wanted) {
  return name == wanted || name.starts_with(wanted + ";");
}

class LibfabricRegistration final : public FabricRegistration {
 public:
  LibfabricRegistration(Owned<fid_mr> region, std::uint64_t address) : region_(std::move(region)), address_(address) {}
  std::uint64_t address() const override { return address_; }
  std::uint64_t key() const override { return fi_mr_key(region_.get()); }
  void* descriptor() const override { return fi_mr_desc(region_.get()); }

 private:
  Owned<fid_mr> region_;
  std::uint64_t address_;
};

class LibfabricDomain final : public FabricDomain, public std::enable_shared_from_this<LibfabricDomain> {
 public:
  explicit LibfabricDomain(const fi_info& info) : info_(library()->dupinfo(&info)), name_(info.fabric_attr->prov_name) {
    fid_fabric* fabric = nullptr;
    check(library()->fabric(info_->fabric_attr, &fabric, nullptr), "opening the fabric of " + name_);
    fabric_.reset(fabric);
  }

  const std::string& provider() const override { return name_; }
  std::unique_ptr<FabricPort> open_port() override;

  fi_info& info() { return *info_; }
  fid_fabric* fabric() { return fabric_.get(); }

  /// In libfabric a key is valid at every endpoint of its domain. A peer that has a key could therefore send false
  /// completions to other peers' endpoints. So each endpoint has a domain of its own.
  Owned<fid_domain> open_access() {
    fid_domain* access = nullptr;
    check(fi_domain(fabric_.get(), info_.get(), &access, nullptr), "opening a domain of " + name_);
    return Owned<fid_domain>(access);
  }

 private:
  Info info_;
  std::string name_;
  Owned<fid_fabric> fabric_;
};

class LibfabricPort final : public FabricPort {
 public:
  explicit LibfabricPort(std::shared_ptr<LibfabricDomain> domain)
      : domain_(std::move(domain)), access_(domain_->open_access()) {
    open_queue();
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    fid_av* av = nullptr;
    check(fi_av_open(access_.get(), &addresses, &av, nullptr), what("an address table"));
    av_.reset(av);
    int result = -FI_EBUSY;
    for (int turn = 0; turn < kNameTurns && result == -FI_EBUSY; ++turn) result = open_endpoint();
    check(result, what("an endpoint that works"));
    address_.resize(256);
    std::size_t bytes = address_.size();
    check(fi_getname(&endpoint_->fid, address_.data(), &bytes), what("an endpoint's address"));
    address_.resize(std::min(bytes, address_.size()));
  }

  /// When ofi_rxm (1.17 to 2.4: libfabric's issue 11828) closes an endpoint, it first frees the endpoint's connections
  /// and then reads their completions. If one of these is a receive, ofi_rxm posts it again on the freed connection,
  /// and crashes. Each write with completion data causes such a receive; so do ofi_rxm's own messages, which it sends
  /// when a connection is made and after some receives. With shared receive contexts, which it uses over tcp, receives
  /// belong to no connection; over verbs an environment variable must switch these on.
  bool closes_only_idle() const override { return domain_->provider() == "verbs;ofi_rxm"; }
  void close() override { endpoint_.reset(); }

  std::span<const std::byte> address() const override { return address_; }

  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    std::vector<std::byte> text(address.begin(), address.end());
    text.push_back(std::byte{0});  // some addresses are strings; a peer's may lack its zero
    fi_addr_t added = FI_ADDR_NOTAVAIL;
    const int inserted = fi_av_insert(av_.get(), text.data(), 1, &added, 0, nullptr);
    if (inserted != 1 || added == FI_ADDR_NOTAVAIL) return inserted < 0 ? -to_errno(inserted) : -EINVAL;
    peer = added;
    return 0;
  }

  bool registers_sources() const override { return has_mode(FI_MR_LOCAL); }

  std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access,
                                                      int& error) override {
    const iovec vector{memory.data(), memory.size()};
    fi_mr_attr attributes{};
    attributes.mr_iov = &vector;
    attributes.iov_count = 1;
    attributes.access = access == FabricAccess::remote_target ? FI_REMOTE_WRITE : FI_WRITE;
    attributes.iface = FI_HMEM_SYSTEM;
    fid_mr* region = nullptr;
    int result = -FI_ENOKEY;
    for (int turn = 0; turn < kKeyTurns && result == -FI_ENOKEY; ++turn) {
      attributes.requested_key = random_key();
      result = fi_mr_regattr(access_.get(), &attributes, 0, &region);
    }
    Owned<fid_mr> owned(result == 0 ? region : nullptr);
    if (result == 0 && has_mode(FI_MR_ENDPOINT)) {
      result = fi_mr_bind(region, &endpoint_->fid, 0);
      if (result == 0) result = fi_mr_enable(region);
    }
    if (result != 0) {
      error = to_errno(result);
      log_warn("registering " + std::to_string(memory.size()) + " bytes with " + domain_->provider() + ": " +
               words(result));
      return nullptr;
    }
    const auto address = has_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uint64_t>(memory.data()) : 0;
    return std::make_unique<LibfabricRegistration>(std::move(owned), address);
  }

  int write(const FabricWrite& write) override {
    Operation* operation = take_operation(write.token);
    iovec local{const_cast<void*>(write.from), write.bytes};
    void* descriptor = write.source == nullptr ? nullptr : write.source->descriptor();
    fi_rma_iov remote{write.address, write.bytes, write.key};
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = write.peer;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &operation->context;
    message.data = write.data;
    const bool tells = (domain_->info().tx_attr->op_flags & FI_DELIVERY_COMPLETE) != 0;
    const std::uint64_t level = write.delivered && tells ? FI_DELIVERY_COMPLETE : 0;
    const auto result = fi_writemsg(endpoint_.get(), &message, FI_REMOTE_CQ_DATA | FI_COMPLETION | level);
    if (result == 0) return 0;
    free_.push_back(operation);
    return result == -FI_EAGAIN ? -EAGAIN : -to_errno(static_cast<int>(result));
  }

  bool read(std::vector<Completion>& into) override {
    const std::size_t before = into.size();
    into.reserve(before + kEntries * kReadsPerPoll);  // first: what is read from the queue must not be lost
    std::array<fi_cq_data_entry, kEntries> entries;
    for (int turn = 0; turn < kReadsPerPoll; ++turn) {
      const auto count = fi_cq_read(queue_.get(), entries.data(), entries.size());
      if (count == -FI_EAVAIL) {
        read_error(into);
        continue;
      }
      if (count == -FI_EAGAIN) break;
      if (count < 0) {
        into.push_back({Completion::Kind::failed, Completion::kNoToken, 0, to_errno(static_cast<int>(count)),
                        domain_->provider() + " cannot be asked for completions: " + words(static_cast<int>(count))});
        break;
      }
      for (ssize_t i = 0; i < count; ++i) take(entries[static_cast<std::size_t>(i)], into);
      if (count < static_cast<ssize_t>(entries.size())) break;
    }
    return into.size() != before;
  }

  int descriptor() const override { return descriptor_; }

  bool may_sleep() override {
    fid* waited[] = {&queue_->fid};
    return descriptor_ >= 0 && fi_trywait(domain_->fabric(), waited, 1) == FI_SUCCESS;
  }

 private:
  static constexpr std::size_t kEntries = 32;
  static constexpr int kReadsPerPoll = 4;
  static constexpr int kKeyTurns = 4;

  /// One write in progress: what libfabric may keep of it, and then what this class keeps.
  struct Operation {
    fi_context2 context{};
    std::uint64_t token = 0;
  };

  std::string what(const char* thing) const {
    return "setting up " + std::string(thing) + " of " + domain_->provider();
  }
  bool has_mode(int mode) const { return (domain_->info().domain_attr->mr_mode & mode) != 0; }

  /// The provider shm names an endpoint's file in /dev/shm by the process's number and the endpoint's. A process that
  /// is killed leaves its files. A later process with the same number believes that such a file belongs to a live
  /// process (itself), so that the name is taken (libfabric 1.17). The next name is free.
  static constexpr int kNameTurns = 8;

  /// Opens an endpoint and enables it. Returns 0, or libfabric's error if it cannot be enabled.
  int open_endpoint() {
    fid_ep* endpoint = nullptr;
    check(fi_endpoint(access_.get(), &domain_->info(), &endpoint, nullptr), what("an endpoint"));
    endpoint_.reset(endpoint);
    check(fi_ep_bind(endpoint, &av_->fid, 0), what("an endpoint's address table"));
    check(fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV), what("an endpoint's completion queue"));
    return fi_enable(endpoint);
  }

  void open_queue() {
    fi_cq_attr attributes{};
    attributes.size = domain_->info().tx_attr->size + domain_->info().rx_attr->size;
    attributes.format = FI_CQ_FORMAT_DATA;
    attributes.wait_obj = FI_WAIT_FD;
    fid_cq* queue = nullptr;
    int result = fi_cq_open(access_.get(), &attributes, &queue, nullptr);
    const bool waits = result == 0;
    if (!waits) {  // no descriptor: the queue must be polled
      attributes.wait_obj = FI_WAIT_NONE;
      result = fi_cq_open(access_.get(), &attributes, &queue, nullptr);
    }
    check(result, what("a completion queue"));
    queue_.reset(queue);
    int descriptor = -1;
    if (waits && fi_control(&queue->fid, FI_GETWAIT, &descriptor) == 0) descriptor_ = descriptor;
  }

  /// A key that others cannot guess; 0 if the provider chooses the key.
  std::uint64_t random_key() const {
    if (has_mode(FI_MR_PROV_KEY)) return 0;
    const auto bytes = random_bytes<8>();
    std::uint64_t key = 0;
    std::memcpy(&key, bytes.data(), sizeof key);
    const std::size_t key_bytes = domain_->info().domain_attr->mr_key_size;
    return key_bytes >= 8 ? key >> 1 : key & ((std::uint64_t{1} << 8 * key_bytes) - 1);
  }

  Operation* take_operation(std::uint64_t token) {
    if (free_.empty()) {
      free_.reserve(operations_.size() + 1);  // so that give_back() allocates nothing
      operations_.emplace_back();
      free_.push_back(&operations_.back());
    }
    Operation* operation = free_.back();
    free_.pop_back();
    operation->token = token;
    return operation;
  }

  std::uint64_t give_back(void* context) {
    auto* operation = static_cast<Operation*>(context);
    free_.push_back(operation);
    return operation->token;
  }

  void take(const fi_cq_data_entry& entry, std::vector<Completion>& into) {
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      into.push_back({Completion::Kind::arrived, Completion::kNoToken, entry.data, 0, {}});
    } else if (entry.op_context != nullptr) {
      into.push_back({Completion::Kind::written, give_back(entry.op_context), 0, 0, {}});
    }
  }

  void read_error(std::vector<Completion>& into) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(queue_.get(), &entry, 0) < 0) return;
    char text[256] = "";
    const char* provider_says = fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, text, sizeof text);
    Completion failed{Completion::Kind::failed, Completion::kNoToken, 0, to_errno(entry.err),
                      domain_->provider() + ": " + words(entry.err)};
    if (provider_says != nullptr && *provider_says != 0) failed.reason += " (" + std::string(provider_says) + ")";
    const bool ours = (entry.flags & FI_REMOTE_WRITE) == 0 && entry.op_context != nullptr;
    if (ours) failed.token = give_back(entry.op_context);
    into.push_back(std::move(failed));
  }

  std::shared_ptr<LibfabricDomain> domain_;
  Owned<fid_domain> access_;          // destroyed after all that is opened on it
  std::deque<Operation> operations_;  // their addresses stay
  std::vector<Operation*> free_;
  Owned<fid_cq> queue_;
  Owned<fid_av> av_;
  Owned<fid_ep> endpoint_;
  std::vector<std::byte> address_;
  int descriptor_ = -1;
};

std::unique_ptr<FabricPort> LibfabricDomain::open_port() { return std::make_unique<LibfabricPort>(shared_from_this()); }

}  // namespace

struct FabricProviders::Impl {
  std::string wanted;
  std::string problem;
  std::vector<Info> found;  // first those that report delivery

  void ask(std::uint64_t operation_flags) {
    const Info hints = make_hints(operation_flags);
    if (!wanted.empty()) hints->fabric_attr->prov_name = strdup(wanted.c_str());  // freed with the hints
    fi_info* list = nullptr;
    const int result = library()->getinfo(kApi, nullptr, nullptr, 0, hints.get(), &list);
    if (result != 0) {
      if (found.empty()) problem = "libfabric has no provider for it: " + words(result);
      return;
    }
    const Info all(list);
    for (const fi_info* info = list; info != nullptr; info = info->next) {
      if (info->domain_attr->cq_data_size < 4) continue;
      if (Info copy(library()->dupinfo(info)); copy != nullptr) found.push_back(std::move(copy));
    }
  }

  const fi_info* find(const std::string& name, const Endpoint& local) const {
    std::vector<const fi_info*> infos;
    std::vector<ProviderAddress> addresses;
    for (const Info& info : found) {
      if (info->fabric_attr->prov_name != name) continue;
      infos.push_back(info.get());
      addresses.push_back(address_of(*info));
    }
    const std::size_t chosen = choose_address(addresses, local);
    return chosen == kNowhere ? nullptr : infos[chosen];
  }
};

FabricProviders::FabricProviders(std::string wanted) : impl_(std::make_unique<Impl>()) {
  impl_->wanted = std::move(wanted);
  if (library() == nullptr) {
    impl_->problem = library_problem();
    return;
  }
  impl_->ask(FI_DELIVERY_COMPLETE);
  if (impl_->wanted.empty() || impl_->found.empty()) impl_->ask(0);
}

FabricProviders::~FabricProviders() = default;

bool FabricProviders::is_hardware(const std::string& name) {
  return std::find(kPreference.begin(), kPreference.begin() + kHardware, name) != kPreference.begin() + kHardware;
}

bool FabricProviders::may_have_hardware() {
  for (const char* folder : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code none;
    if (std::filesystem::directory_iterator(folder, none) != std::filesystem::directory_iterator()) return true;
  }
  return false;
}

std::vector<std::string> FabricProviders::names_for(const Endpoint& local) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (impl_->find(name, local) != nullptr && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  if (impl_->wanted.empty()) {
    for (const char* name : kPreference) add(name);
  } else {
    for (const Info& info : impl_->found) {
      const std::string name = info->fabric_attr->prov_name;
      if (matches(name, impl_->wanted)) add(name);
    }
  }
  return names;
}

std::string FabricProviders::problem(const Endpoint& local) const {
  if (!impl_->problem.empty()) return impl_->problem;
  Endpoint address = local;
  address.port = 0;
  const std::string which = impl_->wanted.empty()
                                ? "no provider of libfabric"
                                : "libfabric's provider \"" + impl_->wanted + "\" is not here, or not";
  return which + " on the network of " + address.host_port() +
         " (fi_info shows them; GPUSOCK_FABRIC_PROVIDER names one)";
}

std::shared_ptr<FabricDomain> FabricProviders::open(const std::string& name, const Endpoint& local) const {
  const fi_info* info = library() == nullptr ? nullptr : impl_->find(name, local);
  if (info == nullptr) throw Error(ENODEV, "opening \"" + name + "\": " + problem(local));
  return std::make_shared<LibfabricDomain>(*info);
}

}  // namespace gpusock::proxy::fabric
