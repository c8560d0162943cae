#pragma once
/// @file What happens in one run: drawn from its seed, and made smaller by the shrinker.

#include "gpusock/endpoint.hpp"
#include "tests/support/sim/kernel.hpp"
#include "tests/support/sim/shortage.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gpusock::sim {

/// How a caller moves bytes.
enum class Manner { copy, whole, zero_copy, polled };
/// How one side ends its connection, once it has sent all.
enum class Ending {
  orderly,  ///< shuts down, reads to the end, closes
  at_once,  ///< closes behind its last byte, whatever may still come
  reset,    ///< lingers for 0 s and closes
  midway,   ///< somebody else closes it while it sends and receives
};

struct PlannedWay {
  std::uint64_t bytes = 0;
  std::uint64_t piece_bytes = 1;  ///< of one call, at most
  Manner sending = Manner::copy;
  Manner receiving = Manner::copy;
  std::uint64_t pause_ns = 0;  ///< a slow reader's, between two calls
  int senders = 1;             ///< of records
  bool read_late = false;      ///< its reader first sends all that it has to send
};

struct PlannedConnection {
  std::uint32_t client = 0;  ///< process
  std::uint32_t server = 0;
  LinkKind link = LinkKind::tcp;
  bool records = false;
  bool by_loopback = false;
  bool knocks_first = false;  ///< at a port where nobody listens; and its name of the server has a wrong address first
  int times = 1;              ///< one after the other
  std::uint64_t start_ns = 0;
  std::uint64_t deadline_ns = 0;                           ///< of each call
  std::uint64_t midway_ns = 0;                             ///< Ending::midway: when, since it was open
  PlannedWay ways[2];                                      ///< from the client; from the server
  Ending endings[2] = {Ending::orderly, Ending::orderly};  ///< the client's; the server's
};

enum class FaultKind { partition, reset, half_reset, crash, kill, stall, no_files, no_memory, cancel, slow, fabric };

struct PlannedFault {
  FaultKind kind = FaultKind::stall;
  std::uint64_t time_ns = 0;
  std::uint64_t duration_ns = 0;
  std::uint32_t target = 0;  ///< a process
  bool restart = false;
};

struct PlannedProcess {
  std::uint32_t host = 0;
  bool assist = false;
  bool device_rings = false;            ///< in device memory, which the proxy reaches by copies:
  std::uint64_t copy_bytes_max = 4096;  ///< the longest of them
  bool gpudirect = false;               ///< or which an RDMA NIC reaches
  bool flushed = false;                 ///< whose writes kernels see after a flush
  bool device_words = false;            ///< callers are kernels, which poll the proxy's words in device memory
  bool hasty = false;  ///< closes its listeners whether or not all that have come were accepted, and listens again
};

struct Plan {
  std::uint64_t seed = 0;
  std::uint64_t turn_accesses = 1;
  Wire wire;
  std::uint32_t hosts = 1;
  bool fabric = false;
  std::uint64_t fabric_disorder_ns = 0;
  std::uint64_t fabric_refused_percent = 0;
  std::uint64_t fabric_answers_ns = 0;   ///< a process finds out what fabric there is only after so long
  std::uint64_t fabric_connects_ns = 0;  ///< a new endpoint refuses writes for so long
  bool fabric_tells_no_loss = false;     ///< a write that reaches nobody is complete
  bool verbs = false;                    ///< hosts have RDMA NICs
  std::uint64_t card_delay_ns = 1'000;   ///< of each step of a write, at most
  std::uint64_t ring_bytes = 4096;
  std::uint32_t sockets_max = 4;
  int backlog = 4;
  std::uint64_t looks_ns = 0;  ///< where nothing breaks: how long proxies sleep at most, to find what nobody woke them
                               ///< for; 0: any time
  bool holds_back = false;     ///< senders use kMore now and then
  std::vector<PlannedProcess> processes;
  std::vector<PlannedConnection> connections;
  std::vector<PlannedFault> faults;
  Shortage shortage;

  bool faulty() const {
    return !faults.empty() || shortage.of == Shortage::Of::memory || shortage.of == Shortage::Of::calls;
  }
};

Plan make_plan(std::uint64_t seed);
/// The seed's plan without faults, denied something.
Plan make_plan(std::uint64_t seed, const Shortage& shortage);

/// For people.
std::string describe(const Plan& plan);

}  // namespace gpusock::sim
