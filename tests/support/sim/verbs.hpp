#pragma once
/// @file Simulated RDMA NICs, behind the functions of libibverbs and librdmacm, which this program defines in their
/// place (verbs.cpp). Reliable connections, as NICs have them: a queue pair's writes land whole and in order, each is
/// complete some time later, and its bytes are read at any time before. Nothing is lost without a word or comes twice;
/// where the other end cannot be reached, or is gone, the queue pair breaks, seconds later.

#include "tests/support/sim/kernel.hpp"

#include <infiniband/verbs.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace gpusock::sim {

/// All NICs of a run: each host has one.
class Nics {
 public:
  explicit Nics(Kernel& kernel) : kernel_(kernel) {}

  bool present = false;            ///< do hosts have any
  std::uint64_t delay_ns = 1'000;  ///< at most, of each of a write's steps

  /// Breaks a connection's queue pair, as a cable does that is pulled.
  void break_one();

  /// What NICs write into this process's device memory is not in it before flush().
  void hold_back(const Process& process, bool until_flushed);
  void flush(const Process& process);

  std::size_t regions() const { return regions_.size(); }
  std::size_t pairs() const { return pairs_.size(); }
  std::size_t queues() const { return queues_.size(); }

  // What the functions of libibverbs do.
  /// `known_as`: the address that requests name it by; another one than its own is device memory's.
  ibv_mr* add_region(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t known_as, unsigned access);
  void remove_region(ibv_mr* region);
  ibv_cq* add_queue(ibv_context* context, int entries);
  void remove_queue(ibv_cq* queue) { queues_.erase(queue); }
  ibv_qp* add_pair(ibv_pd* domain, const ibv_qp_init_attr& wanted);
  void modify_pair(ibv_qp* pair, const ibv_qp_attr& attributes, int mask);
  void remove_pair(ibv_qp* pair) { pairs_.erase(pair->qp_num); }
  int post(ibv_qp* pair, ibv_send_wr* request);
  int poll(ibv_cq* queue, int most, ibv_wc* completions);
  bool memory_fails() const;

 private:
  struct Region {
    ibv_mr mr{};
    unsigned access = 0;
    std::uint64_t first = 0;  // as requests name it
    const Process* process = nullptr;

    bool on_device() const { return first != reinterpret_cast<std::uint64_t>(mr.addr); }
    char* at(std::uint64_t address) const { return static_cast<char*>(mr.addr) + (address - first); }
  };
  struct HeldWrite {
    std::uint32_t key;  // of the region
    char* to;
    std::string data;
  };
  struct Queue {
    ibv_cq cq{};
    std::deque<ibv_wc> completions;
  };
  struct Request {
    std::uint64_t id;
    std::uint64_t from, to;
    std::uint32_t bytes, local_key, remote_key;
    bool announced;
    std::uint64_t read_ns, land_ns;
    bool read;
    std::string data;
  };
  struct Pair {
    ibv_qp qp{};
    Process* process = nullptr;
    ibv_cq* queue = nullptr;
    std::uint32_t peer = 0;
    ibv_qp_state state = IBV_QPS_RESET;
    std::deque<Request> requests;    // that have not landed
    std::uint64_t last_ns = 0;       // when the last of them is due
    std::uint64_t last_told_ns = 0;  // when the last completion is
    std::uint64_t blocked_ns = 0;    // since when the first cannot get through; 0: it can
  };

  Pair* find(std::uint32_t number);
  void work(std::uint32_t number);
  bool land(Pair& pair);
  void tell(Pair& pair, std::uint64_t id, ibv_wc_status status);
  void break_pair(Pair& pair, ibv_wc_status first);
  const Region* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned access) const;
  std::uint64_t some_ns() { return 200 + kernel_.schedule().random().below(delay_ns); }

  Kernel& kernel_;
  std::map<std::uint32_t, Region> regions_;
  std::map<std::uint32_t, Pair> pairs_;
  std::map<ibv_cq*, std::unique_ptr<Queue>> queues_;
  std::map<const Process*, std::vector<HeldWrite>> held_;
  std::uint32_t next_ = 17;
};

/// Those of this run.
extern Nics* current_nics;

}  // namespace gpusock::sim
