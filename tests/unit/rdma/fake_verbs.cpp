#include "tests/unit/rdma/fake_verbs.hpp"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

namespace gpusock::fake {
namespace {

struct Queue {
  ibv_cq cq{};
  std::deque<ibv_wc> completions;
};
struct Request {
  std::uint64_t id;
  std::vector<std::byte> copied;
  const std::byte* data;
  std::uint32_t bytes, local_key, key;
  std::uint64_t address;
  bool signaled;
};
struct Pair {
  ibv_qp qp{};
  Queue* queue = nullptr;
  std::uint32_t peer = 0, depth = 0, inline_bytes = 0;
  std::deque<std::uint64_t> entries;  // of the send queue, that no completion has freed
  ibv_qp_state state = IBV_QPS_RESET;
  std::deque<Request> requests;
};
struct Region {
  ibv_mr mr{};
  std::uint64_t first = 0, bytes = 0;  // as requests name it
  std::byte* memory = nullptr;
  unsigned access = 0;

  std::byte* at(std::uint64_t address) const { return memory + (address - first); }
};

struct World {
  Nic nic;
  ibv_device device{};
  ibv_device* list[2] = {&device, nullptr};
  ibv_context context{};
  std::map<std::uint32_t, std::unique_ptr<Pair>> pairs;
  std::map<std::uint32_t, std::unique_ptr<Region>> regions;
  std::map<ibv_cq*, std::unique_ptr<Queue>> queues;
  std::uint32_t next = 17;
};
World& world() {
  static World the_world;
  return the_world;
}

void push(Pair& pair, std::uint64_t id, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = status;
  completion.qp_num = pair.qp.qp_num;
  pair.queue->completions.push_back(completion);
  Nic& facts = world().nic;
  facts.completions_max = std::max(facts.completions_max, static_cast<std::uint32_t>(pair.queue->completions.size()));
  if (pair.queue->completions.size() > static_cast<std::size_t>(pair.queue->cq.cqe)) facts.overflowed = true;
}

void flush(Pair& pair, ibv_wc_status first) {
  pair.state = IBV_QPS_ERR;
  for (const Request& request : pair.requests) push(pair, request.id, std::exchange(first, IBV_WC_WR_FLUSH_ERR));
  pair.requests.clear();
}

Region* region_of(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned access) {
  const auto found = world().regions.find(key);
  if (found == world().regions.end()) return nullptr;
  Region& region = *found->second;
  const bool inside = address >= region.first && bytes <= region.bytes &&
                      address - region.first <= region.bytes - bytes;
  return inside && (region.access & access) == access ? &region : nullptr;
}

bool execute_one(Pair& pair) {
  if (pair.requests.empty() || world().nic.stuck.contains(pair.qp.qp_num)) return false;
  Request request = std::move(pair.requests.front());
  const bool copied = !request.copied.empty();
  const auto from = reinterpret_cast<std::uint64_t>(request.data);
  const Region* local = copied ? nullptr : region_of(request.local_key, from, request.bytes, 0);
  const Region* remote = region_of(request.key, request.address, request.bytes, IBV_ACCESS_REMOTE_WRITE);
  const auto peer = world().pairs.find(pair.peer);
  if (!copied && local == nullptr) {
    flush(pair, IBV_WC_LOC_PROT_ERR);
  } else if (peer == world().pairs.end() || peer->second->state == IBV_QPS_ERR ||
             peer->second->peer != pair.qp.qp_num) {
    flush(pair, IBV_WC_RETRY_EXC_ERR);
  } else if (remote == nullptr) {
    flush(pair, IBV_WC_REM_ACCESS_ERR);
    flush(*peer->second, IBV_WC_WR_FLUSH_ERR);
  } else {
    pair.requests.pop_front();
    std::memcpy(remote->at(request.address), copied ? request.copied.data() : local->at(from), request.bytes);
    ++world().nic.writes;
    if (request.signaled) push(pair, request.id, IBV_WC_SUCCESS);
  }
  return true;
}

Pair& pair_of(ibv_qp* qp) { return *world().pairs.at(qp->qp_num); }

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
  Pair& pair = pair_of(qp);
  for (; request != nullptr; request = request->next) {
    const auto* data = reinterpret_cast<const std::byte*>(request->sg_list->addr);
    const std::uint32_t bytes = request->sg_list->length;
    const bool copied = (request->send_flags & IBV_SEND_INLINE) != 0;
    *bad = request;
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    if (copied && bytes > pair.inline_bytes) return ENOMEM;
    pair.entries.push_back(request->wr_id);
    if (pair.entries.size() > pair.depth) world().nic.overflowed = true;
    world().nic.outstanding_max = std::max(world().nic.outstanding_max,
                                           static_cast<std::uint32_t>(pair.entries.size()));
    pair.requests.push_back({request->wr_id,
                             copied ? std::vector<std::byte>(data, data + bytes) : std::vector<std::byte>(), data,
                             bytes, request->sg_list->lkey, request->wr.rdma.rkey, request->wr.rdma.remote_addr,
                             (request->send_flags & IBV_SEND_SIGNALED) != 0});
  }
  if (pair.state == IBV_QPS_ERR) flush(pair, IBV_WC_WR_FLUSH_ERR);
  if (!world().nic.holds_work) work();
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) {
  auto& waiting = world().queues.at(cq)->completions;
  int count = 0;
  for (; count < most && !waiting.empty(); ++count) {
    completions[count] = waiting.front();
    waiting.pop_front();
    const auto pair = world().pairs.find(completions[count].qp_num);
    if (pair == world().pairs.end()) continue;
    auto& entries = pair->second->entries;  // it frees those up to its own
    entries.erase(entries.begin(), std::next(std::find(entries.begin(), entries.end(), completions[count].wr_id)));
  }
  return count;
}

ibv_mr* add_region(ibv_pd* domain, void* memory, std::uint64_t first, std::size_t bytes, unsigned access) {
  World& all = world();
  auto region = std::make_unique<Region>();
  region->mr.context = &all.context;
  region->mr.pd = domain;
  region->mr.addr = memory;
  region->mr.length = bytes;
  region->mr.lkey = region->mr.rkey = all.next;
  region->first = first;
  region->bytes = bytes;
  region->memory = static_cast<std::byte*>(memory);
  region->access = access;
  ibv_mr* result = &region->mr;
  all.regions.emplace(all.next, std::move(region));
  all.next += 7;
  all.nic.regions = all.regions.size();
  return result;
}

ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t known_as, unsigned access) {
  Nic& facts = world().nic;
  facts.calls.push_back("reg_mr " + std::to_string(bytes) + " " + std::to_string(access));
  const bool named = known_as != reinterpret_cast<std::uint64_t>(address);
  if (const int error = facts.registering_fails != 0 || !named ? facts.registering_fails : facts.naming_fails;
      error != 0) {
    errno = error;
    return nullptr;
  }
  return add_region(domain, address, known_as, bytes, access);
}

}  // namespace

Nic& nic() { return world().nic; }

void reset() {
  world().nic = Nic();
  ibv_gid_entry entry{};
  entry.port_num = 1;
  entry.gid_index = 1;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
  inet_pton(AF_INET, "10.77.0.1", entry.gid.raw + 12);
  world().nic.gids = {entry};
}

std::size_t work(std::size_t writes_max) {
  std::size_t done = 0;
  for (bool any = true; any && done < writes_max;) {
    any = false;
    for (auto& [number, pair] : world().pairs) {
      if (done < writes_max && execute_one(*pair)) {
        any = true;
        ++done;
      }
    }
  }
  return done;
}

void break_pair(std::uint32_t number, ibv_wc_status status) { flush(*world().pairs.at(number), status); }

std::vector<std::uint32_t> pair_numbers() {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, pair] : world().pairs) numbers.push_back(number);
  return numbers;
}

std::byte* reach(std::uint32_t key, std::uint64_t address, std::uint64_t bytes) {
  const Region* region = region_of(key, address, bytes, IBV_ACCESS_REMOTE_WRITE);
  return region == nullptr ? nullptr : region->at(address);
}

}  // namespace gpusock::fake

using gpusock::fake::world;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  if (errno = world().nic.asking_fails; errno != 0) return nullptr;
  *count = world().nic.devices;
  world().list[0] = world().nic.devices == 0 ? nullptr : &world().device;
  return world().list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device*) { return "fake0"; }
ibv_context* ibv_open_device(ibv_device* device) {
  ibv_context& context = world().context;
  context.device = device;
  context.ops.post_send = gpusock::fake::post_send;
  context.ops.poll_cq = gpusock::fake::poll_cq;
  return &context;
}
int ibv_close_device(ibv_context*) { return 0; }

int ibv_query_device(ibv_context*, ibv_device_attr* facts) {
  if (world().nic.query_device_fails != 0) return world().nic.query_device_fails;
  *facts = {};
  facts->phys_port_cnt = 1;
  facts->max_cqe = static_cast<int>(world().nic.cqe_max);
  facts->max_qp_wr = 16384;
  return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* compatible) {
  if (world().nic.query_port_fails != 0) return world().nic.query_port_fails;
  auto* facts = reinterpret_cast<ibv_port_attr*>(compatible);
  std::memset(facts, 0, offsetof(ibv_port_attr, port_cap_flags2));
  facts->state = world().nic.state;
  facts->active_mtu = world().nic.mtu;
  facts->link_layer = static_cast<std::uint8_t>(world().nic.link_layer);
  facts->gid_tbl_len = static_cast<int>(world().nic.gids.size());
  facts->pkey_tbl_len = static_cast<std::uint16_t>(world().nic.pkeys.size());
  facts->lid = 9;
  return 0;
}
int ibv_query_pkey(ibv_context*, std::uint8_t, int index, __be16* pkey) {
  *pkey = htons(world().nic.pkeys.at(static_cast<std::size_t>(index)));
  return 0;
}
int ibv_query_gid(ibv_context*, std::uint8_t, int, ibv_gid* gid) {
  *gid = world().nic.gids.at(0).gid;
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* entries, std::size_t most, std::uint32_t, std::size_t) {
  if (world().nic.query_gids_fails != 0) return -world().nic.query_gids_fails;
  const std::size_t count = std::min(most, world().nic.gids.size());
  std::copy_n(world().nic.gids.begin(), count, entries);
  return static_cast<ssize_t>(count);
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* domain = new ibv_pd{};
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  return gpusock::fake::reg_mr(domain, address, bytes, reinterpret_cast<std::uint64_t>(address),
                               static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t iova, int access) {
  return gpusock::fake::reg_mr(domain, address, bytes, iova, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t iova, unsigned access) {
  return gpusock::fake::reg_mr(domain, address, bytes, iova, access);
}
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t iova, int descriptor,
                          int access) {
  auto& facts = world().nic;
  facts.calls.push_back("reg_dmabuf_mr offset " + std::to_string(offset) + " bytes " + std::to_string(bytes) +
                        " iova " + std::to_string(iova) + " access " + std::to_string(access) +
                        (descriptor >= 0 ? "" : " no descriptor"));
  if (facts.dmabuf_fails != 0) {
    errno = facts.dmabuf_fails;
    return nullptr;
  }
  const auto memory = facts.exported.find(descriptor);
  return gpusock::fake::add_region(domain, memory == facts.exported.end() ? nullptr : memory->second + offset, iova,
                                   bytes, static_cast<unsigned>(access));
}
int ibv_dereg_mr(ibv_mr* region) {
  world().nic.calls.push_back("dereg_mr");
  world().regions.erase(region->lkey);
  world().nic.regions = world().regions.size();
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  auto queue = std::make_unique<gpusock::fake::Queue>();
  queue->cq.context = context;
  queue->cq.cqe = entries;
  ibv_cq* result = &queue->cq;
  world().queues.emplace(result, std::move(queue));
  world().nic.queues = world().queues.size();
  return result;
}
int ibv_destroy_cq(ibv_cq* cq) {
  world().queues.erase(cq);
  world().nic.queues = world().queues.size();
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  auto& facts = world().nic;
  if (facts.making_pairs_fails != 0 || wanted->cap.max_inline_data > facts.inline_max) {
    errno = facts.making_pairs_fails != 0 ? facts.making_pairs_fails : EINVAL;
    return nullptr;
  }
  auto pair = std::make_unique<gpusock::fake::Pair>();
  pair->qp.context = domain->context;
  pair->qp.pd = domain;
  pair->qp.qp_num = world().next++;
  pair->queue = world().queues.at(wanted->send_cq).get();
  pair->depth = wanted->cap.max_send_wr;
  pair->inline_bytes = wanted->cap.max_inline_data;
  ibv_qp* result = &pair->qp;
  world().pairs.emplace(result->qp_num, std::move(pair));
  facts.pairs = world().pairs.size();
  return result;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  auto& pair = gpusock::fake::pair_of(qp);
  if ((mask & IBV_QP_STATE) != 0) pair.state = attributes->qp_state;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes->dest_qp_num;
  if ((mask & IBV_QP_PATH_MTU) != 0) world().nic.calls.push_back("path_mtu " + std::to_string(attributes->path_mtu));
  if ((mask & IBV_QP_PKEY_INDEX) != 0)
    world().nic.calls.push_back("pkey_index " + std::to_string(attributes->pkey_index));
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  world().nic.calls.push_back("destroy_qp");
  world().pairs.erase(qp->qp_num);
  world().nic.pairs = world().pairs.size();
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "failed";
}

int rdma_create_id(rdma_event_channel*, rdma_cm_id** id, void*, rdma_port_space) {
  if (errno = world().nic.asking_fails; errno != 0) return -1;
  if (world().nic.devices == 0) {
    errno = ENODEV;
    return -1;
  }
  *id = new rdma_cm_id{};
  return 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  delete id;
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (world().nic.address != text) {
    errno = ENODEV;
    return -1;
  }
  id->verbs = ibv_open_device(&world().device);
  id->port_num = 1;
  return 0;
}
}
