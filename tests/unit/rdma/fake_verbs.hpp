#pragma once
// A NIC in memory, behind the functions of libibverbs and librdmacm, which this program defines in their
// place. Queue pairs of one process write into each other's registered memory, in order, within their keys' bounds;
// what was called is recorded. One thread.
#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gpusock::fake {

/// What is set before, and seen after.
struct Nic {
  // what it does
  int devices = 1;
  std::string address = "10.77.0.1";  ///< of the device
  int link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_mtu mtu = IBV_MTU_4096;
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint32_t cqe_max = 32767;
  std::uint32_t inline_max = 220;
  int registering_fails = 0;      ///< errno of ibv_reg_mr
  int dmabuf_fails = 0;           ///< errno of ibv_reg_dmabuf_mr
  int naming_fails = 0;           ///< errno of ibv_reg_mr_iova, of memory under other addresses than its own
  int asking_fails = 0;           ///< errno of ibv_get_device_list and rdma_create_id
  int query_device_fails = 0;     ///< errno of ibv_query_device
  int query_port_fails = 0;       ///< errno of ibv_query_port
  int query_gids_fails = 0;       ///< errno of ibv_query_gid_table
  int making_pairs_fails = 0;     ///< errno of ibv_create_qp
  bool holds_work = false;        ///< posted writes wait for work()
  std::set<std::uint32_t> stuck;  ///< numbers of queue pairs whose writes wait whatever is called
  std::vector<ibv_gid_entry> gids;
  std::vector<std::uint16_t> pkeys = {0xffff};
  std::map<int, std::byte*> exported;  ///< the memory behind the descriptor of a dma-buf

  // what happened
  std::vector<std::string> calls;
  std::size_t regions = 0, pairs = 0, queues = 0;  ///< that exist
  std::uint32_t outstanding_max = 0;               ///< of one queue pair's requests
  std::uint32_t completions_max = 0;               ///< in one completion queue at a time
  bool overflowed = false;                         ///< a send queue or a completion queue
  std::uint64_t writes = 0;
};
Nic& nic();
/// Forgets everything; all must have been destroyed.
void reset();

/// Executes up to this many writes that are held; how many.
std::size_t work(std::size_t writes_max = ~std::size_t{0});
/// Breaks the queue pair of this number: its requests are flushed behind this status.
void break_pair(std::uint32_t number, ibv_wc_status status);
std::vector<std::uint32_t> pair_numbers();
/// The memory that a NIC somewhere writes by this key; nullptr where the key does not cover it, or not any more.
std::byte* reach(std::uint32_t key, std::uint64_t address, std::uint64_t bytes);

}  // namespace gpusock::fake
