#include "tests/simulation/run.hpp"

#include "tests/support/sim/log.hpp"

#include <algorithm>
#include <cstdio>

namespace gpusock::sim {
namespace {

/// Simulated time that a run may take: its longest waits are for TCP to give up.
constexpr std::uint64_t kRunNs = 2'000'000'000'000;
constexpr std::uint64_t kTurnsMax = 6'000'000;
/// Behind the last call: lingering (30 s), and what stays mapped for a while.
constexpr std::uint64_t kSettleNs = 60'000'000'000;
constexpr std::uint64_t kDrainNs = 2'000'000'000;
constexpr std::uint64_t kChecksEvery = 64;

}  // namespace

Run::Run(const Plan& plan, bool verbose)
    : plan_(plan),
      verbose_(verbose),
      schedule_(plan.seed, plan.turn_accesses),
      kernel_(schedule_, plan.wire, plan.hosts),
      fabric_(kernel_),
      cards_(kernel_),
      processes_(plan.processes.size()) {
  current_schedule = &schedule_;
  current_fabric = &fabric_;
  current_nics = &cards_;
  schedule_.on_switch = [](void* owner) { current_process = static_cast<Process*>(owner); };
  if (verbose) on_log = [this](const std::string& line) { tell(line); };
  fabric_.present = plan.fabric;
  fabric_.disorder_ns = plan.fabric_disorder_ns;
  fabric_.refused_percent = plan.fabric_refused_percent;
  fabric_.tells_no_loss = plan.fabric_tells_no_loss;
  fabric_.connects_ns = plan.fabric_connects_ns;
  kernel_.thread_ns = plan.fabric_answers_ns;
  cards_.present = plan.verbs;
  cards_.delay_ns = plan.card_delay_ns;
}

Run::~Run() {
  end_all();
  on_log = nullptr;
  current_schedule = nullptr;
  current_fabric = nullptr;
  current_nics = nullptr;
}

void Run::fail(const std::string& problem) {
  const bool ghost = current_process != nullptr && current_process->dead;  // it is on its way to where it can be
                                                                           // unwound
  if (!problem_.empty() || ghost) return;
  const Fiber* fiber = schedule_.running();
  problem_ = problem + (fiber == nullptr ? "" : " (" + fiber->name() + ")");
  tell("FAILED: " + problem_);
}

void Run::tell(const std::string& line) {
  if (!verbose_) return;
  const Fiber* fiber = schedule_.running();
  std::printf("%14.6f ms  %-24s %s\n", static_cast<double>(schedule_.now_ns() - 1'000'000'000) * 1e-6,
              fiber == nullptr ? "" : fiber->name().c_str(), line.c_str());
}

void Run::script(std::string name, std::uint32_t process_index, std::function<void()> body) {
  struct Counted {
    explicit Counted(int& first, int& second) : one(first), two(second) { ++one, ++two; }
    ~Counted() { --one, --two; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    int &one, &two;
  };
  if (processes_[process_index].process->dead) return;  // a process that was killed does nothing more
  const auto count = std::make_shared<Counted>(scripts_, processes_[process_index].scripts);  // until the fiber ends,
                                                                                              // in whichever way
  schedule_.spawn(std::to_string(process_index) + ": " + std::move(name), processes_[process_index].process,
                  [count, body = std::move(body)] { body(); });
}

void Run::start(std::uint32_t process_index) {
  PlannedProcess& here = processes_[process_index];
  Host& host = kernel_.hosts[plan_.processes[process_index].host];
  if (here.node != nullptr || !host.up) return;
  here.process = &kernel_.start_process(host, std::to_string(process_index));
  std::fill(std::begin(here.listening), std::end(here.listening), false);
  ++here.lives;
  {
    const AsProcess as(here.process);
    NodeOptions options;
    options.sockets_max = plan_.sockets_max;
    options.ring_bytes = plan_.ring_bytes;
    options.secret = "simulated";
    options.assist = plan_.processes[process_index].assist;
    options.has_fabric = plan_.fabric;
    options.has_verbs = plan_.verbs;
    options.device_rings = plan_.processes[process_index].device_rings;
    options.device_words = plan_.processes[process_index].device_words;
    options.gpudirect = plan_.processes[process_index].gpudirect;
    options.flushed = plan_.processes[process_index].flushed;
    options.copy_bytes_max = plan_.processes[process_index].copy_bytes_max;
    // What is held back may go whenever the proxy looks. And spurious readiness may let it write before the network
    // says that there is room.
    options.tells_lost_rings = !plan_.faulty() && plan_.wire.spurious_percent == 0 && !plan_.holds_back;
    if (options.tells_lost_rings && plan_.looks_ns != 0) options.nap_ns = plan_.looks_ns;
    if (plan_.faulty()) options.nap_ns = 1'000'000'000;  // the engine's; without faults nothing needs it
    here.node = std::make_unique<Node>(schedule_, *here.process, options);
  }
  for (int kind = 0; kind < 3; ++kind) {
    if (needs_listener(process_index, kind))
      script("listener", process_index, [this, process_index, kind] { listen_and_serve(process_index, kind); });
  }
}

void Run::break_connections_of(std::uint32_t process_index) {
  for (Attempt& attempt : attempts_) {
    const PlannedConnection& planned = plan_.connections[attempt.planned];
    if (planned.client == process_index) attempt.broken[0] = true;
    if (planned.server == process_index) attempt.broken[1] = true;
  }
}

/// Ends the process at once, as a signal would; `by_crash`: its host has stopped.
void Run::end(std::uint32_t process_index, bool by_crash) {
  PlannedProcess& here = processes_[process_index];
  if (here.node == nullptr) return;
  tell(std::string(by_crash ? "crashed: " : "killed: ") + std::to_string(process_index));
  break_connections_of(process_index);
  kernel_.end_process(*here.process);
  schedule_.kill(here.process);
  {
    const AsProcess as(here.process);
    here.node.reset();
  }
  kernel_.unmap_all(*here.process);
}

/// Ends the context in order, as its destructor does.
void Run::cancel(std::uint32_t process_index) {
  PlannedProcess& here = processes_[process_index];
  if (here.node == nullptr || here.node->canceled()) return;
  tell("canceled: " + std::to_string(process_index));
  here.node->cancel();
  script("leaver", process_index, [this, process_index] {
    PlannedProcess& there = processes_[process_index];
    while (there.scripts != 1) schedule_.sleep(100'000);
    there.node->drain(schedule_.random().magnitude(1'000, kDrainNs));  // to a network this slow 2 s are as short
    schedule_.after(1, [this, process_index] { leave(process_index); });
    schedule_.sleep_until(Schedule::kNever);
  });
}

void Run::inflict(const PlannedFault& fault) {
  const std::uint64_t until_ns = schedule_.now_ns() + fault.duration_ns;
  PlannedProcess& running = processes_[fault.target];
  Random& random = schedule_.random();
  switch (fault.kind) {
    case FaultKind::partition:
      kernel_.part_until(until_ns);
      break;
    case FaultKind::reset:
    case FaultKind::half_reset: {
      const auto all = kernel_.connected();
      if (all.empty()) break;
      all[random.below(all.size())]->break_off(fault.kind == FaultKind::reset);
      break;
    }
    case FaultKind::crash: {
      Host& host = kernel_.hosts[plan_.processes[fault.target].host];
      kernel_.crash(host);
      for (std::uint32_t i = 0; i < processes_.size(); ++i) {
        if (plan_.processes[i].host == host.number) end(i, true);
      }
      if (!fault.restart) break;
      schedule_.at(until_ns, [this, &host] {
        host.up = true;
        for (std::uint32_t i = 0; i < processes_.size(); ++i) {
          if (plan_.processes[i].host == host.number) start(i);
        }
      });
      break;
    }
    case FaultKind::kill:
      end(fault.target, false);
      if (fault.restart) schedule_.at(until_ns, [this, target = fault.target] { start(target); });
      break;
    case FaultKind::stall:
      if (running.node != nullptr) running.node->stall_until(until_ns);
      break;
    case FaultKind::no_files:
      if (running.node != nullptr) running.process->files_fail_until_ns = until_ns;
      break;
    case FaultKind::no_memory:
      if (running.node != nullptr) running.process->memory_fails_until_ns = until_ns;
      break;
    case FaultKind::cancel:
      cancel(fault.target);
      break;
    case FaultKind::slow:
      kernel_.wire.latency_ns = std::min<std::uint64_t>(8 * kernel_.wire.latency_ns, 8'000'000);
      break;
    case FaultKind::fabric:
      fabric_.fail_until_ns = until_ns;
      cards_.break_one();
      break;
  }
}

void Run::schedule_faults() {
  for (const PlannedFault& fault : plan_.faults) {
    const std::uint64_t time_ns = schedule_.now_ns() + fault.time_ns;
    last_fault_ns_ = std::max(last_fault_ns_, time_ns + fault.duration_ns);
    schedule_.at(time_ns, [this, &fault] {
      tell("fault");
      inflict(fault);
    });
  }
}

/// One turn, with its checks; false where it is over.
bool Run::go_on() {
  if (!problem_.empty()) return false;
  if (!schedule_.turn()) {
    if (scripts_ != 0) fail("calls wait, and nothing will ever happen");
    return false;
  }
  if (schedule_.turns() % kChecksEvery != 0) return true;
  check_nodes();
  if (schedule_.now_ns() > kRunNs || schedule_.turns() > kTurnsMax) {
    std::string waiting;
    for (const auto& fiber : schedule_.fibers()) {
      if (!fiber->done())
        waiting += (waiting.empty() ? "" : ", ") + fiber->name() + " (" + std::to_string(fiber->turns()) + ")";
    }
    fail("still not over after " + std::to_string(schedule_.now_ns() / 1'000'000'000) + " s and " +
         std::to_string(schedule_.turns()) + " turns: " + waiting);
  }
  return problem_.empty();
}

void Run::check_nodes() {
  for (PlannedProcess& running : processes_) {
    if (running.node == nullptr) continue;
    const std::string problem = running.node->check_words();
    if (!problem.empty()) fail(problem);
  }
}

/// Behind the last call: proxies go on until nothing is open any more.
void Run::settle() {
  const std::uint64_t until_ns = schedule_.now_ns() + kSettleNs;
  const auto open = [this] {
    return std::any_of(processes_.begin(), processes_.end(), [](const PlannedProcess& running) {
      return running.node != nullptr &&
             (running.node->proxy().has_connections() || running.node->proxy().next_deadline_ns() != Schedule::kNever ||
              !running.node->check_released().empty());
    });
  };
  while (problem_.empty() && schedule_.now_ns() < until_ns && open()) {
    if (!schedule_.turn()) break;
  }
  for (std::size_t i = 0; i < processes_.size() && problem_.empty(); ++i) {
    PlannedProcess& running = processes_[i];
    if (running.node == nullptr) continue;
    if (running.node->proxy().has_connections())
      fail("process " + std::to_string(i) + " still has connections long after all were closed");
    const std::string problem = running.node->check_released();
    if (!problem.empty()) fail(problem);
  }
}

void Run::check_way(const Attempt& attempt, int way) {
  const PlannedConnection& planned = plan_.connections[attempt.planned];
  const Way& here = attempt.ways[way];
  const bool quiet_back = planned.ways[1 - way].bytes == 0 && planned.endings[way] == Ending::at_once;
  const bool polite = planned.endings[1 - way] == Ending::orderly &&
                      (planned.endings[way] == Ending::orderly || quiet_back);
  if (!plan_.faulty() && polite && !is_hasty(planned.server) && !here.end_seen)
    fail("the end of a stream was not seen");
  if (!here.end_seen || attempt.broken[way]) return;
  const std::uint64_t received_since_close = attempt.ways[1 - way].flows[0].received - attempt.received_at_close[way];
  if (planned.endings[way] != Ending::orderly && received_since_close < attempt.unread_at_close[way]) {
    fail("connection " + std::to_string(attempt.planned) + ": an orderly end was seen, though " +
         (way == 0 ? "the client" : "the server") + " had closed with unread input");
  }
  for (const Flow& flow : here.flows) {
    if (flow.received < flow.sent) {
      fail("connection " + std::to_string(attempt.planned) + ": the end was seen after " +
           std::to_string(flow.received) + " of " + std::to_string(flow.sent) + " that were sent " +
           (way == 0 ? "by the client" : "by the server"));
    }
  }
}

void Run::check_attempt(const Attempt& attempt) {
  if (!attempt.met) return;
  check_way(attempt, 0);
  check_way(attempt, 1);
}

/// Ends a context as its destructor does, and its process; looks for what it leaves behind.
void Run::leave(std::uint32_t process_index) {
  PlannedProcess& here = processes_[process_index];
  if (here.node == nullptr) return;
  Process& process = *here.process;
  schedule_.kill(&process);
  {
    const AsProcess as(&process);
    here.node.reset();
  }
  if (process.open_descriptors() != 0)
    fail("process " + process.name + " left " + std::to_string(process.open_descriptors()) + " descriptors open");
  if (!process.mappings.empty()) fail("process " + process.name + " left memory mapped");
  kernel_.end_process(process);
  kernel_.unmap_all(process);
}

void Run::end_all() {
  for (std::uint32_t process_index = 0; process_index < processes_.size(); ++process_index) leave(process_index);
}

Outcome Run::play() {
  for (std::uint32_t i = 0; i < processes_.size(); ++i) start(i);
  for (std::uint32_t i = 0; i < plan_.connections.size(); ++i) {
    const std::uint32_t client = plan_.connections[i].client;
    ++visitors_;
    const auto leaves = std::shared_ptr<void>(nullptr, [this](void*) { --visitors_; });  // also where it is killed
    script("client", client, [this, i, leaves] { visit(i); });
  }
  schedule_faults();
  while (scripts_ != 0 && go_on()) {
  }
  check_nodes();
  settle();
  check_nodes();
  for (const Attempt& attempt : attempts_) check_attempt(attempt);
  for (std::uint32_t i = 0; i < plan_.connections.size() && !plan_.faulty() && problem_.empty(); ++i) {
    const bool met = std::any_of(attempts_.begin(), attempts_.end(),
                                 [i](const Attempt& attempt) { return attempt.planned == i && attempt.met; });
    const PlannedConnection& planned = plan_.connections[i];
    const bool may_miss = planned.endings[0] == Ending::reset || planned.endings[0] == Ending::midway ||
                          is_hasty(planned.server);
    if (!met && !may_miss) fail("connection " + std::to_string(i) + " never came about");
  }
  end_all();
  if (problem_.empty() && kernel_.memory_files() != 0)
    fail(std::to_string(kernel_.memory_files()) + " memory files are left");
  const std::size_t of_nics = cards_.regions() + cards_.pairs() + cards_.queues();
  if (problem_.empty() && of_nics != 0)
    fail(std::to_string(of_nics) + " regions, queue pairs and queues of RDMA NICs are left");
  if (problem_.empty() && kernel_.waited_for_no_thread) fail("a context's end waits for a thread that does not run");
  if (problem_.empty() && fabric_.registrations() != 0)
    fail(std::to_string(fabric_.registrations()) + " registrations are left");
  if (problem_.empty() && !kernel_.freed_memory_is_intact())
    fail("somebody wrote into memory that nobody had mapped any more");
  Outcome outcome{problem_, schedule_.trace(), schedule_.turns(), schedule_.now_ns() - 1'000'000'000, bytes_, 0, false};
  outcome.connections = static_cast<std::uint64_t>(
      std::count_if(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) { return attempt.met; }));
  return outcome;
}

Outcome run(const Plan& plan, bool verbose) {
  begin_shortage(plan.shortage);
  Outcome outcome;
  {
    Run all(plan, verbose);
    outcome = all.play();
  }
  begin_shortage({});
  outcome.denied = was_denied();
  return outcome;
}

}  // namespace gpusock::sim
