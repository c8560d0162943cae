// Graph programs: functions that update a vertex, and read or change what is beside it. Vertices are updated in
// parallel, on several ranks, and the result is that of one update after the other: vertices of one colour are updated
// at the same time, and colours are such that no two updates meet (Low et al., "Distributed GraphLab: a framework for
// machine learning and data mining in the cloud", VLDB 2012).
//
// All of it is one kernel of each rank. After each colour the ranks exchange what they have changed: each has a tensor
// of zeros with its own new values, and the kernel starts the sum of all ranks' tensors and waits for it
// (resident.cuh).
#include "examples/device_memory.hpp"
#include "examples/rank_threads.hpp"
#include "examples/vertex_programs.hpp"

#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"

#include "param_sync/resident.cuh"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using examples::in_device;
using graphs::Problem;
using graphs::View;

struct Options {
  int ranks = 4;
  unsigned threads = 32;
  std::string program = "pagerank", consistency;
  std::uint32_t vertices = 2'000, edges = 2, sweeps = 20;
  std::uint64_t seed = 1;
};

/// What a rank's kernel has, by value. Pointers point to device memory.
struct Job {
  View graph;
  param_sync::SumsHandle sums;
  std::uint32_t rank = 0, ranks = 1, sweeps = 0, colours = 0;
  const std::uint32_t *order = nullptr, *begin = nullptr;  ///< see Colours
  float *state = nullptr, *tensor = nullptr;               ///< of all vertices: the values; and what ranks exchange
  std::uint32_t* marks = nullptr;                          ///< by vertex: how many updates of the colour write it
  std::uint32_t* conflicts = nullptr;                      ///< mapped: updates that others have met
  int* error = nullptr;                                    ///< mapped
};

/// Values as the last exchange has left them; changes are for the next one.
struct Exchanged {
  const float* state;
  float* tensor;
  __device__ float read(std::uint32_t vertex) const { return state[vertex]; }
  /// atomic: with fewer colours than a program needs others may write the same value
  __device__ void write(std::uint32_t vertex, float value) const {
    cuda::atomic_ref<float, cuda::thread_scope_device>(tensor[vertex]).store(value, cuda::memory_order_relaxed);
  }
};

/// Calls call(i) for numbers from `begin` to `end`, divided among the block's threads, and waits for all threads.
template <class Call>
__device__ void in_block(std::uint32_t begin, std::uint32_t end, Call call) {
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) call(i);
  __syncthreads();
}

/// Updates all vertices, colour by colour, again and again. One block.
template <class Program>
__global__ void run_program(Job job, Program program) {
  using Word = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_device>;
  constexpr auto kRelaxed = cuda::memory_order_relaxed;  // the block's barriers order all of it
  const View& graph = job.graph;
  const Exchanged values{job.state, job.tensor};
  for (std::uint32_t sweep = 0; sweep < job.sweeps; ++sweep) {
    for (std::uint32_t colour = 0; colour < job.colours; ++colour) {
      const std::uint32_t first = job.begin[colour], size = job.begin[colour + 1] - first;
      const std::uint32_t own = first + size * job.rank / job.ranks, end = first + size * (job.rank + 1) / job.ranks;
      in_block(0, graph.vertices, [&](std::uint32_t v) {
        job.tensor[v] = 0;
        job.marks[v] = 0;
      });
      in_block(first, first + size, [&](std::uint32_t i) {
        graphs::for_written<Program>(graph, job.order[i],
                                     [&](std::uint32_t v) { Word(job.marks[v]).fetch_add(1, kRelaxed); });
      });
      in_block(own, end, [&](std::uint32_t i) {
        const std::uint32_t vertex = job.order[i];
        bool meets = job.marks[vertex] != 1;  // what another update reads or writes, this one does not write
        graph.for_neighbours(vertex,
                             [&](std::uint32_t v) { meets |= job.marks[v] != (Program::kWritesNeighbours ? 1 : 0); });
        if (meets) Word(*job.conflicts).fetch_add(1, kRelaxed);
        program.update(graph, sweep, vertex, values);
      });
      const int error = param_sync::await_sum(job.sums, 0, param_sync::start_sum(job.sums, 0));
      if (error != 0) {
        if (threadIdx.x == 0) *job.error = error;
        return;
      }
      in_block(0, graph.vertices, [&](std::uint32_t v) {
        if (job.marks[v] != 0) job.state[v] = job.tensor[v];
      });
    }
  }
}

/// A rank, whose kernel runs in this process.
template <class Program>
class Rank {
 public:
  Rank(const Options& options, int rank)
      : options_(options),
        problem_(options.program, options.consistency,
                 graphs::random_graph(options.vertices, options.edges, options.seed), options.seed),
        group_(context_, rank, options.ranks) {
    address = group_.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
  }

  void run(const std::vector<gpusock::Endpoint>& addresses) {
    group_.connect(addresses);
    param_sync::ResidentSums sums(group_, {{.data = tensor_.data(), .count = tensor_.size()}});
    Job job{.graph = problem_.view(),
            .sums = sums.start(),
            .rank = static_cast<std::uint32_t>(group_.rank()),
            .ranks = static_cast<std::uint32_t>(options_.ranks),
            .sweeps = options_.sweeps,
            .colours = problem_.colours.count(),
            .order = order_.data(),
            .begin = colours_.data(),
            .state = state_.data(),
            .tensor = tensor_.data(),
            .marks = marks_.data(),
            .conflicts = conflicts_.data(),
            .error = error_.data()};
    job.graph.begin = begin_.data();
    job.graph.neighbours = neighbours_.data();
    job.graph.of_vertex = of_vertex_.data();
    gpusock::launch(context_, {.block = options_.threads, .stream = &stream_}, run_program<Program>, job, Program());
    stream_.synchronize();
    sums.check();
    if (error_[0] != 0) throw gpusock::Error(-error_[0], "cannot exchange what ranks have changed");
    group_.wait(group_.barrier());
  }

  std::vector<float> values() const {
    std::vector<float> all(state_.size());
    state_.copy_out(all);
    return all;
  }
  std::uint32_t conflicts() const { return conflicts_[0]; }
  const Problem& problem() const { return problem_; }

  gpusock::Endpoint address;

 private:
  const Options& options_;
  Problem problem_;
  gpusock::Context context_;
  gpusock::Stream stream_{context_};
  gpusock::DeviceBuffer<std::uint32_t> begin_ = in_device(context_, problem_.graph.begin);
  gpusock::DeviceBuffer<std::uint32_t> neighbours_ = in_device(context_, problem_.graph.neighbours);
  gpusock::DeviceBuffer<std::uint32_t> order_ = in_device(context_, problem_.colours.order);
  gpusock::DeviceBuffer<std::uint32_t> colours_ = in_device(context_, problem_.colours.begin);
  gpusock::DeviceBuffer<float> of_vertex_ = in_device(context_, problem_.of_vertex);
  gpusock::DeviceBuffer<float> state_ = in_device(context_, problem_.state);
  gpusock::DeviceBuffer<float> tensor_{context_, problem_.state.size()};
  gpusock::DeviceBuffer<std::uint32_t> marks_{context_, problem_.state.size()};
  gpusock::Mapped<std::uint32_t> conflicts_{context_, 1};
  gpusock::Mapped<int> error_{context_, 1};
  param_sync::Group group_;
};

/// Runs a program on all ranks, and serially. `error_is`: what error_of() says.
template <class Program>
int run_all(const Options& options, const char* error_is) {
  const auto ranks = examples::run_ranks<Rank<Program>>("graph_programs", options);
  const Problem& problem = ranks[0]->problem();
  const std::vector<float> serial = graphs::serially(problem, options.sweeps, Program());
  std::uint32_t conflicts = 0;
  bool all_equal = true;
  for (const auto& rank : ranks) {
    conflicts += rank->conflicts();
    all_equal = all_equal && rank->values() == serial;
  }
  char text[400];
  std::snprintf(text, sizeof text,
                "%s: %u vertices, %zu edges, %u colours, %u sweeps on %d ranks\n"
                "%u conflicts; %s what one update after the other gives\n%s: %.3g (serially %.3g)\n",
                options.program.c_str(), problem.graph.vertices(), problem.graph.neighbours.size() / 2,
                problem.colours.count(), options.sweeps, options.ranks, conflicts, all_equal ? "exactly" : "not",
                error_is, graphs::error_of(Program(), problem, ranks[0]->values()),
                graphs::error_of(Program(), problem, serial));
  gpusock::program::print(text);
  return gpusock::program::kSuccess;
}

int run_chosen(const Options& options) {
  if (options.program == "gibbs") return run_all<graphs::Gibbs>(options, "mean product of neighbours");
  if (options.program == "kaczmarz") return run_all<graphs::Kaczmarz>(options, "what equations miss, relative");
  return run_all<graphs::PageRank>(options, "largest error of a page, in mean pages");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  gpusock::program::Arguments arguments(
      "Runs programs of a graph's vertices in parallel, with the result of one after the other.");
  arguments.number("--ranks", options.ranks, "Threads of this process, each with a context", 1, 16);
  arguments.number("--threads", options.threads, "Of each rank's block", 1u, 256u);
  arguments.choice("--program", options.program, {"pagerank", "gibbs", "kaczmarz"}, "What vertices do");
  arguments.choice(
      "--consistency", options.consistency, {"vertex", "edge", "full"},
      "Which vertices are not updated at the same time: none, neighbours, or those with a common one, too");
  arguments.number("--vertices", options.vertices, "Of the graph", 3u, 1u << 20);
  arguments.number("--edges", options.edges, "Of each vertex, to random ones; two more make a circle", 0u, 64u);
  arguments.number("--sweeps", options.sweeps, "How often each vertex is updated", 1u, 1u << 16);
  arguments.number("--seed", options.seed, "Of the graph, and of random values", std::uint64_t{0}, ~std::uint64_t{0});
  arguments.check(gpusock::program::problem_of_environment);
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("graph_programs", [&] { return run_chosen(options); });
}
