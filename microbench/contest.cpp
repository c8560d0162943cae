#include "contest.hpp"

#include "gpusock_pair.hpp"
#include "memory_rivals.hpp"
#include "tcp_rival.hpp"

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

constexpr std::uint64_t kSamplesMax = 1'000'000;
constexpr std::uint64_t kWarmupMessages = 1000;
constexpr std::uint64_t kWarmupBytes = 4 << 20;
/// A round without an end in time may take this long, any other this much longer than it was given.
constexpr std::uint64_t kLimitNs = 120'000'000'000;

std::vector<std::unique_ptr<Contestant>> make_contestants(const BenchOptions& options) {
  std::vector<std::unique_ptr<Contestant>> all;
  all.push_back(options.between == Between::kernels ? make_kernel_pair(options) : make_thread_pair(options));
  if (options.link != gpusock::LinkKind::p2p) {
    all.push_back(make_tcp_rival());
  } else if (options.question == Question::latency) {
    all.push_back(make_line_rival());
  } else {
    all.push_back(make_copy_in_rival(options.ring_bytes));
    all.push_back(make_copy_in_out_rival(options.ring_bytes));
    all.push_back(make_ring_rival(options.ring_bytes));
  }
  return all;
}

Job job_of(const BenchOptions& options, std::uint64_t bytes) {
  Job job;
  job.question = options.question;
  job.bytes = bytes;
  const bool timed = options.duration_s > 0;
  job.duration_ns = timed ? static_cast<std::uint64_t>(options.duration_s * 1e9) : ~std::uint64_t{0};
  job.limit_ns = (timed ? job.duration_ns : 0) + kLimitNs;
  job.messages_max = options.iterations != 0 ? options.iterations : ~std::uint64_t{0};
  if (options.question == Question::latency) job.messages_max = std::min(job.messages_max, kSamplesMax);
  job.warmup = std::clamp<std::uint64_t>(kWarmupBytes / bytes, 1, kWarmupMessages);
  if (options.iterations != 0) job.warmup = std::min(job.warmup, options.iterations);
  return job;
}

SizeResult run_rounds(const std::vector<std::unique_ptr<Contestant>>& contestants, const Job& job, int repeat) {
  SizeResult result;
  result.bytes = job.bytes;
  for (int i = 0; i < repeat; ++i) {
    auto& row = result.rounds.emplace_back();
    for (const auto& contestant : contestants) {
      const Round round = contestant->run(job);
      row.push_back({figures_of(job, round), round.proxy_steps, round.proxy_wakeups});
    }
  }
  return result;
}

const char* describe(Step step) {
  switch (step) {
    case Step::connect:
      return "connecting";
    case Step::accept:
      return "accepting";
    case Step::send:
      return "sending";
    case Step::receive:
      return "receiving";
    default:
      return "ending the round";
  }
}

}  // namespace

void require_success(const Account& account, const Job& job, const std::string& side) {
  const std::string where = side + ", messages of " + std::to_string(job.bytes) + " bytes: ";
  if (account.failed_step != Step::none) {
    const int error = account.result < 0 ? static_cast<int>(-account.result) : EPROTO;
    const std::string count = account.result < 0 ? "" : " stopped at " + std::to_string(account.result);
    throw gpusock::Error(error, where + describe(account.failed_step) + count);
  }
  if (account.wrong_words != 0) {
    throw gpusock::Error(
        EBADMSG, where + std::to_string(account.wrong_words) + " words arrived wrong; this is a defect: report it");
  }
}

Round make_round(const Job& job, const Account& account, const std::uint64_t* samples_ns) {
  Round round;
  round.messages = account.messages;
  round.elapsed_ns = account.elapsed_ns;
  if (job.question == Question::latency) round.samples_ns.assign(samples_ns, samples_ns + account.messages);
  return round;
}

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

ContestResult run_contest(const BenchOptions& options) {
  const auto contestants = make_contestants(options);
  ContestResult result;
  for (const auto& contestant : contestants) {
    result.names.push_back(contestant->name());
    result.descriptions.push_back(contestant->description());
  }
  for (const std::uint64_t bytes : options.sizes) {
    result.sizes.push_back(run_rounds(contestants, job_of(options, bytes), options.repeat));
  }
  return result;
}

}  // namespace bench
