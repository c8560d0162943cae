#include "tests/support/sim/verbs.hpp"

#include "tests/support/sim/schedule.hpp"
#include "tests/support/sim/shortage.hpp"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

namespace gpusock::sim {
namespace {

/// A NIC tries for so long to reach one that does not answer.
constexpr std::uint64_t kCardGivesUpNs = 3'000'000'000;
constexpr std::uint64_t kCardTriesAgainNs = 50'000'000;

}  // namespace

Nics* current_nics = nullptr;

bool Nics::memory_fails() const { return kernel_.schedule().now_ns() < current_process->memory_fails_until_ns; }

Nics::Pair* Nics::find(std::uint32_t number) {
  const auto found = pairs_.find(number);
  return found == pairs_.end() ? nullptr : &found->second;
}

/// The region that has this key, if it holds these bytes and permits that.
const Nics::Region* Nics::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned access) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  const Region& region = found->second;
  const bool inside = address >= region.first && bytes <= region.mr.length &&
                      address - region.first <= region.mr.length - bytes;
  return inside && (region.access & access) == access ? &region : nullptr;
}

void Nics::hold_back(const Process& process, bool until_flushed) {
  if (until_flushed) {
    held_[&process].clear();
  } else {
    held_.erase(&process);
  }
}

void Nics::flush(const Process& process) {
  for (const HeldWrite& write : held_[&process]) std::memcpy(write.to, write.data.data(), write.data.size());
  held_[&process].clear();
}

void Nics::remove_region(ibv_mr* region) {
  for (auto& [process, writes] : held_)
    std::erase_if(writes, [&](const HeldWrite& write) { return write.key == region->lkey; });
  regions_.erase(region->lkey);
}

ibv_mr* Nics::add_region(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t known_as, unsigned access) {
  next_ += 7;
  Region& region = regions_[next_];
  region.mr.context = domain->context;
  region.mr.pd = domain;
  region.mr.addr = address;
  region.mr.length = bytes;
  region.mr.lkey = region.mr.rkey = next_;
  region.access = access;
  region.first = known_as;
  region.process = current_process;
  return &region.mr;
}

ibv_cq* Nics::add_queue(ibv_context* context, int entries) {
  auto queue = std::make_unique<Queue>();
  queue->cq.context = context;
  queue->cq.cqe = entries;
  ibv_cq* result = &queue->cq;
  queues_.emplace(result, std::move(queue));
  return result;
}

ibv_qp* Nics::add_pair(ibv_pd* domain, const ibv_qp_init_attr& wanted) {
  Pair& pair = pairs_[++next_];
  pair.qp.context = domain->context;
  pair.qp.pd = domain;
  pair.qp.qp_num = next_;
  pair.process = current_process;
  pair.queue = wanted.send_cq;
  return &pair.qp;
}

void Nics::modify_pair(ibv_qp* qp, const ibv_qp_attr& attributes, int mask) {
  Pair& pair = *find(qp->qp_num);
  if ((mask & IBV_QP_STATE) != 0) pair.state = attributes.qp_state;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes.dest_qp_num;
}

int Nics::post(ibv_qp* qp, ibv_send_wr* request) {
  Pair& pair = *find(qp->qp_num);
  if (pair.process->dead) return 0;  // its NIC has taken the pair away
  Schedule& schedule = kernel_.schedule();
  for (; request != nullptr; request = request->next) {
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    const ibv_sge& piece = *request->sg_list;
    Request posted{request->wr_id,
                   piece.addr,
                   request->wr.rdma.remote_addr,
                   piece.length,
                   piece.lkey,
                   request->wr.rdma.rkey,
                   (request->send_flags & IBV_SEND_SIGNALED) != 0,
                   schedule.now_ns() + some_ns(),
                   0,
                   false,
                   {}};
    if ((request->send_flags & IBV_SEND_INLINE) != 0) {
      posted.data.assign(reinterpret_cast<const char*>(piece.addr), piece.length);
      posted.read = true;
    }
    pair.last_ns = posted.land_ns = std::max(pair.last_ns, posted.read_ns + some_ns());
    for (const std::uint64_t time_ns : {posted.read_ns, posted.land_ns}) {
      schedule.at(time_ns, [this, number = qp->qp_num] { work(number); });
    }
    pair.requests.push_back(std::move(posted));
  }
  if (pair.state == IBV_QPS_ERR) break_pair(pair, IBV_WC_WR_FLUSH_ERR);
  return 0;
}

/// Does what is due of a queue pair's writes.
void Nics::work(std::uint32_t number) {
  Pair* pair = find(number);
  if (pair == nullptr || pair->process->dead || pair->state != IBV_QPS_RTS) return;
  const std::uint64_t now_ns = kernel_.schedule().now_ns();
  for (Request& request : pair->requests) {
    if (request.read || request.read_ns > now_ns) continue;
    const Region* region = find(request.local_key, request.from, request.bytes, 0);
    if (region == nullptr) return break_pair(*pair, IBV_WC_LOC_PROT_ERR);
    request.data.assign(region->at(request.from), request.bytes);
    request.read = true;
  }
  while (!pair->requests.empty() && pair->requests.front().land_ns <= now_ns) {
    if (!land(*pair)) return;
  }
}

/// The first write lands; false where it does not, now or at all.
bool Nics::land(Pair& pair) {
  Schedule& schedule = kernel_.schedule();
  Pair* there = find(pair.peer);
  const bool answers = there != nullptr && !there->process->dead && there->process->host.up &&
                       there->state == IBV_QPS_RTS && there->peer == pair.qp.qp_num &&
                       kernel_.reaches(pair.process->host, there->process->host);
  if (!answers) {
    if (pair.blocked_ns == 0) pair.blocked_ns = schedule.now_ns();
    if (schedule.now_ns() >= pair.blocked_ns + kCardGivesUpNs) {
      break_pair(pair, IBV_WC_RETRY_EXC_ERR);
    } else {
      schedule.after(kCardTriesAgainNs, [this, number = pair.qp.qp_num] { work(number); });
    }
    return false;
  }
  pair.blocked_ns = 0;
  const Request request = std::move(pair.requests.front());
  const Region* region = find(request.remote_key, request.to, request.bytes, IBV_ACCESS_REMOTE_WRITE);
  if (region == nullptr) {
    break_pair(pair, IBV_WC_REM_ACCESS_ERR);
    break_pair(*there, IBV_WC_WR_FLUSH_ERR);
    return false;
  }
  pair.requests.pop_front();
  if (const auto held = held_.find(region->process); held != held_.end() && region->on_device()) {
    held->second.push_back({request.remote_key, region->at(request.to), request.data});
  } else {
    std::memcpy(region->at(request.to), request.data.data(), request.bytes);
  }
  if (request.announced) tell(pair, request.id, IBV_WC_SUCCESS);
  return true;
}

/// Completions come in order.
void Nics::tell(Pair& pair, std::uint64_t id, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = status;
  completion.qp_num = pair.qp.qp_num;
  pair.last_told_ns = std::max(pair.last_told_ns, kernel_.schedule().now_ns() + some_ns());
  kernel_.schedule().at(pair.last_told_ns, [this, completion] {
    const Pair* told = find(completion.qp_num);
    if (told != nullptr && !told->process->dead) queues_.at(told->queue)->completions.push_back(completion);
  });
}

void Nics::break_pair(Pair& pair, ibv_wc_status first) {
  pair.state = IBV_QPS_ERR;
  for (const Request& request : pair.requests) tell(pair, request.id, std::exchange(first, IBV_WC_WR_FLUSH_ERR));
  pair.requests.clear();
}

void Nics::break_one() {
  std::vector<Pair*> all;
  for (auto& [number, pair] : pairs_) {
    if (pair.state == IBV_QPS_RTS) all.push_back(&pair);
  }
  if (!all.empty()) break_pair(*all[kernel_.schedule().random().below(all.size())], IBV_WC_RETRY_EXC_ERR);
}

int Nics::poll(ibv_cq* queue, int most, ibv_wc* completions) {
  auto& waiting = queues_.at(queue)->completions;
  int count = 0;
  for (; count < most && !waiting.empty(); ++count) {
    completions[count] = waiting.front();
    waiting.pop_front();
  }
  return count;
}

namespace {

ibv_device the_device{};
ibv_device* the_list[2] = {&the_device, nullptr};

/// What a call makes, or nullptr with ENOMEM where the run's shortage has it so.
template <class Make>
auto make_unless_denied(Make make) -> decltype(make()) {
  const bool denied = deny_call();
  const Outside outside;
  if (!denied && !current_nics->memory_fails()) return make();
  errno = ENOMEM;
  return nullptr;
}

/// 0, or the errno of a call that the run's shortage denies.
int denial() { return deny_call() ? ENOMEM : 0; }

int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** bad) {
  *bad = request;
  if (const int error = denial(); error != 0) return error;
  const Outside outside;
  return current_nics->post(pair, request);
}
int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) { return current_nics->poll(queue, most, completions); }

/// RoCE v2, of the host's address.
ibv_gid_entry gid_here() {
  ibv_gid_entry entry{};
  entry.port_num = 1;
  entry.gid_index = 1;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
  std::memcpy(entry.gid.raw + 12, &current_process->host.ip, 4);
  return entry;
}

ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t known_as, unsigned access) {
  return make_unless_denied([&] { return current_nics->add_region(domain, address, bytes, known_as, access); });
}

}  // namespace
}  // namespace gpusock::sim

using gpusock::sim::current_nics;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (errno = gpusock::sim::denial(); errno != 0) return nullptr;
  *count = current_nics->present ? 1 : 0;
  return gpusock::sim::the_list + (current_nics->present ? 0 : 1);
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device*) { return "simulated0"; }
ibv_context* ibv_open_device(ibv_device* device) {
  return gpusock::sim::make_unless_denied([device] {
    auto* context = new ibv_context{};
    context->device = device;
    context->ops.post_send = gpusock::sim::post_send;
    context->ops.poll_cq = gpusock::sim::poll_cq;
    return context;
  });
}
int ibv_close_device(ibv_context* context) {
  delete context;
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* facts) {
  *facts = {};
  facts->phys_port_cnt = 1;
  facts->max_cqe = 256;
  facts->max_qp_wr = 64;
  return gpusock::sim::denial();
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* compatible) {
  auto* facts = reinterpret_cast<ibv_port_attr*>(compatible);
  std::memset(facts, 0, offsetof(ibv_port_attr, port_cap_flags2));
  facts->state = IBV_PORT_ACTIVE;
  facts->active_mtu = IBV_MTU_4096;
  facts->link_layer = IBV_LINK_LAYER_ETHERNET;
  facts->gid_tbl_len = 1;
  facts->pkey_tbl_len = 1;
  return gpusock::sim::denial();
}
int ibv_query_pkey(ibv_context*, std::uint8_t, int, __be16* pkey) {
  *pkey = 0xffff;
  return 0;
}
int ibv_query_gid(ibv_context*, std::uint8_t, int, ibv_gid* gid) {
  *gid = gpusock::sim::gid_here().gid;
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* entries, std::size_t most, std::uint32_t, std::size_t) {
  if (most != 0) *entries = gpusock::sim::gid_here();
  return most == 0 ? 0 : 1;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return gpusock::sim::make_unless_denied([context] {
    auto* domain = new ibv_pd{};
    domain->context = context;
    return domain;
  });
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  return gpusock::sim::reg_mr(domain, address, bytes, reinterpret_cast<std::uint64_t>(address),
                              static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t iova, int access) {
  return gpusock::sim::reg_mr(domain, address, bytes, iova, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t iova, unsigned access) {
  return gpusock::sim::reg_mr(domain, address, bytes, iova, access);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  errno = EOPNOTSUPP;  // device memory is the CPU device's
  return nullptr;
}
int ibv_dereg_mr(ibv_mr* region) {
  current_nics->remove_region(region);
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  return gpusock::sim::make_unless_denied([&] { return current_nics->add_queue(context, entries); });
}
int ibv_destroy_cq(ibv_cq* queue) {
  current_nics->remove_queue(queue);
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  return gpusock::sim::make_unless_denied([&] { return current_nics->add_pair(domain, *wanted); });
}
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  if (const int error = gpusock::sim::denial(); error != 0) return error;
  current_nics->modify_pair(pair, *attributes, mask);
  return 0;
}
int ibv_destroy_qp(ibv_qp* pair) {
  current_nics->remove_pair(pair);
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status) { return "the simulated NIC failed"; }

int rdma_create_id(rdma_event_channel*, rdma_cm_id** id, void*, rdma_port_space) {
  if (!current_nics->present) {
    errno = ENODEV;
    return -1;
  }
  *id = gpusock::sim::make_unless_denied([] { return new rdma_cm_id{}; });
  return *id == nullptr ? -1 : 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  if (id->verbs != nullptr) ibv_close_device(id->verbs);
  delete id;
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr*) {  // every address here is the NIC's
  id->verbs = ibv_open_device(&gpusock::sim::the_device);
  id->port_num = 1;
  return id->verbs == nullptr ? -1 : 0;
}
}
