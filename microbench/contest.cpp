#include "contest.hpp"

#include "bounds.hpp"
#include "context_side.hpp"
#include "epoll_rival.hpp"
#include "memory_rivals.hpp"
#include "remote.hpp"
#include "tcp_rival.hpp"

#include <algorithm>
#include <random>
#include <tuple>

namespace bench {
namespace {

constexpr std::uint64_t kWarmupBytes = 4 << 20;

std::unique_ptr<Asker> make_asker(const BenchOptions& options) {
  return options.between == Between::kernels ? make_kernel_asker(options) : make_thread_asker(options);
}
std::unique_ptr<Answerer> make_answerer(const BenchOptions& options) {
  return options.between == Between::kernels ? make_kernel_answerer(options) : make_thread_answerer(options);
}

using Contestants = std::vector<std::unique_ptr<Contestant>>;

/// Makes contestants that have both halves in this process.
Contestants make_local_contestants(const BenchOptions& options) {
  Contestants all;
  all.push_back(make_pair(make_asker(options), make_answerer(options)));
  if (options.question == Question::rate) {
    all.push_back(make_epoll_rival(options));
    return all;
  }
  const bool plain = options.sockets == 1 && options.direction == Direction::out;
  if (options.link != gpusock::LinkKind::p2p || options.question == Question::connections ||
      options.question == Question::scale || !plain) {
    all.push_back(make_pair(make_tcp_asker(options.question), make_tcp_answerer(options)));
  } else if (options.question == Question::latency) {
    all.push_back(make_line_rival());
  } else {
    all.push_back(make_copy_in_rival(options.ring_bytes));
    all.push_back(make_copy_in_out_rival(options.ring_bytes));
    all.push_back(make_ring_rival(options.ring_bytes));
  }
  return all;
}

/// Makes contestants that have their answering halves in the server's process.
Contestants make_remote_contestants(const BenchOptions& options, const std::shared_ptr<Server>& server) {
  Contestants all;
  all.push_back(make_pair(make_asker(options), make_remote_answerer(server, options, Entrant::gpusock)));
  all.push_back(make_pair(make_tcp_asker(options.question), make_remote_answerer(server, options, Entrant::raw_tcp)));
  return all;
}

Job job_of(const BenchOptions& options, std::uint64_t bytes, std::uint32_t turns) {
  Job job;
  job.question = options.question;
  job.sockets_out = options.sockets_out();
  job.sockets_in = options.sockets_in();
  if (options.question == Question::scale) {
    job.sockets_out = 1;
    job.crowd = options.sockets;
    job.turns = turns;
  }
  job.bytes = bytes;
  const bool timed = options.duration_s > 0;
  job.duration_ns = timed ? static_cast<std::uint64_t>(options.duration_s * 1e9) : ~std::uint64_t{0};
  job.limit_ns = (timed ? job.duration_ns : 0) + static_cast<std::uint64_t>(options.limit_s * 1e9);
  job.messages_max = options.iterations != 0 ? options.iterations : ~std::uint64_t{0};
  if (options.question != Question::bandwidth) {
    job.messages_max = std::min(job.messages_max, kSamplesMax / job.sockets());
    job.samples_max = job.messages_max;
  }
  job.window = options.window;
  job.warmup = std::clamp<std::uint64_t>(kWarmupBytes / bytes, 1, kWarmupMax);
  if (options.question == Question::connections) job.warmup = 1;
  if (options.iterations != 0) job.warmup = std::min(job.warmup, options.iterations);
  job.warmup = std::max<std::uint64_t>(job.warmup, job.turns);  // each socket has been used once
  return job;
}

std::uint64_t new_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

SizeResult run_rounds(const Contestants& contestants, Job job, const BenchOptions& options) {
  SizeResult result;
  result.bytes = job.bytes;
  result.sockets = options.sockets;
  result.in_use = job.turns;
  result.group = options.group;
  result.histograms.resize(contestants.size());
  for (int i = 0; i < options.repeat; ++i) {
    auto& row = result.rounds.emplace_back();
    for (const auto& contestant : contestants) {
      job.token = new_token();
      const Round round = contestant->run(job);
      result.histograms[row.size()].add(round.samples_ns);
      row.push_back({figures_of(job, round), round.proxy_steps, round.proxy_wakeups});
    }
  }
  return result;
}

}  // namespace

double SizeResult::median_of(std::size_t contestant, double Figures::*figure) const {
  std::vector<double> values;
  for (const auto& row : rounds) values.push_back(row[contestant].figures.*figure);
  return median(std::move(values));
}

double SizeResult::median_ratio(double Figures::*figure) const {
  std::vector<double> ratios;
  for (const auto& row : rounds) {
    const double rival = row[1].figures.*figure;
    if (rival > 0) ratios.push_back(row[0].figures.*figure / rival);
  }
  return median(std::move(ratios));
}

namespace {

/// Adds the rounds of all sizes with calls by `options.group`, on `options.sockets` sockets.
void run_group(const BenchOptions& options, ContestResult& result) {
  std::shared_ptr<Server> server;
  if (!options.to.empty()) server = std::make_shared<Server>(options);
  const auto contestants = server == nullptr ? make_local_contestants(options)
                                             : make_remote_contestants(options, server);
  if (server != nullptr) result.server = server->device;
  if (result.names.empty()) {
    for (const auto& contestant : contestants) {
      result.names.push_back(contestant->name());
      result.descriptions.push_back(contestant->description());
    }
  } else if (options.sockets == options.counts.front()) {  // the first one of another group
    result.others.push_back(contestants.front()->description());
  }
  for (const std::uint64_t bytes : options.sizes) {
    result.sizes.push_back(run_rounds(contestants, job_of(options, bytes, 1), options));
    if (options.question != Question::scale || options.sockets == 1) continue;
    result.sizes.push_back(run_rounds(contestants, job_of(options, bytes, options.sockets), options));
  }
}

}  // namespace

ContestResult run_contest(const BenchOptions& options) {
  if (options.question == Question::scale) require_descriptors(options.sockets);
  ContestResult result;
  BenchOptions one = options;
  for (const GroupKind group : options.groups) {
    one.group = group;
    for (const std::uint64_t count : options.counts) {
      one.sockets = static_cast<unsigned>(count);
      run_group(one, result);
    }
  }
  const auto by_size = [](const SizeResult& a, const SizeResult& b) {
    return std::tuple(a.bytes, a.sockets, a.in_use) < std::tuple(b.bytes, b.sockets, b.in_use);
  };
  std::stable_sort(result.sizes.begin(), result.sizes.end(), by_size);  // so groups stand side by side
  return result;
}

}  // namespace bench
