#pragma once
/// @file The kernel: the steps of a rank. All sums are made in parts, one for each rank, and parts are added in the
/// order of ranks, whether one rank makes them or each makes its own: so the weights do not depend on how the layer is
/// split.

#include "examples/split_layer/problem.hpp"

#include "param_sync/resident.cuh"

#include "gpusock/device.cuh"

#include <cmath>
#include <cstdint>

namespace split_layer {

/// a * b + c, rounded in the same way wherever it is: a compiler may fuse the two in one place and not in another.
__device__ inline float multiply_add(float a, float b, float c) {
#if GPUSOCK_ON_GPU
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;  // a CPU may have no fused one
#endif
}

/// What a rank's kernel has, by value. Pointers point to device memory. Arrays are row after row.
struct Job {
  param_sync::SumsHandle sums;
  std::uint32_t rank = 0, ranks = 1, width = 0, batch = 0, steps = 0;
  float rate = 0;
  bool by_columns = false, by_rows = false;
  std::uint32_t row = 0, rows = 0, column = 0, columns = 0;    ///< the part of the middle layer that this rank has
  const float* samples = nullptr;                              ///< [step][sample of all ranks][kInputs]
  const std::uint32_t* labels = nullptr;                       ///< [step][sample of all ranks]
  float *first = nullptr, *middle = nullptr, *last = nullptr;  ///< weights; of `middle` the rank's part
  /// Of the samples of all ranks, [sample][width]: activations below the middle layer, its sums, the errors of these,
  /// and the errors below it. Each is a tensor that ranks sum.
  float *below = nullptr, *sum = nullptr, *error = nullptr, *error_below = nullptr;
  float *first_gradient = nullptr, *last_gradient = nullptr, *loss = nullptr, *middle_gradient = nullptr;  ///< a tensor
  float* losses = nullptr;  ///< mapped: the first step's and the last one's
  int* failed = nullptr;    ///< mapped

  __device__ bool is_split() const { return by_columns || by_rows; }
};

enum Sum : std::uint32_t { kBelow, kSums, kErrors, kErrorsBelow, kGradients };

/// Calls call(i) for numbers below `count`, divided among the block's threads, and waits for all threads.
template <class Call>
__device__ void in_block(std::uint32_t count, Call call) {
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) call(i);
  __syncthreads();
}

/// Adds term(0), term(1), ... in `parts` parts of equal size, each by itself, and then the parts from `begin` to `end`.
template <class Product>
__device__ float in_parts(std::uint32_t terms, std::uint32_t parts, std::uint32_t begin, std::uint32_t end,
                          Product product) {
  float all = 0;
  for (std::uint32_t part = begin; part < end; ++part) {
    float sum = 0;
    for (std::uint32_t i = terms / parts * part; i < terms / parts * (part + 1); ++i) sum = product(i, sum);
    all = part == begin ? sum : all + sum;
  }
  return all;
}

/// The steps of a rank. Members are block-collective, and return false if a sum has failed.
struct Training {
  const Job& job;
  std::uint32_t all, own;  ///< samples of all ranks, and the first one of this rank
  const float* samples = nullptr;
  const std::uint32_t* labels = nullptr;

  __device__ bool exchange(std::uint32_t tensor) const {
    const int error = param_sync::await_sum(job.sums, tensor, param_sync::start_sum(job.sums, tensor));
    if (error != 0 && threadIdx.x == 0) *job.failed = error;
    return error == 0;
  }
  /// If the layer is split, ranks exchange what each has for its own samples, or its own part of the layer.
  __device__ bool share(std::uint32_t tensor) const { return !job.is_split() || exchange(tensor); }
  __device__ bool is_own(std::uint32_t sample) const { return sample - own < job.batch; }
  /// True if this rank computes the middle layer of a sample.
  __device__ bool computes(std::uint32_t sample) const { return job.is_split() || is_own(sample); }
  __device__ float middle(std::uint32_t row, std::uint32_t column) const {
    return job.middle[(row - job.row) * job.columns + column - job.column];
  }

  __device__ bool forward() const {
    const std::uint32_t width = job.width, ranks = job.ranks;
    in_block(all * width, [&](std::uint32_t i) {
      const float* const input = samples + i / width * kInputs;
      const auto times = [&](std::uint32_t k, float sum) {
        return multiply_add(input[k], job.first[k * width + i % width], sum);
      };
      job.below[i] = is_own(i / width) ? fmaxf(in_parts(kInputs, 1, 0, 1, times), 0) : 0;
    });
    if (!share(kBelow)) return false;
    in_block(all * width, [&](std::uint32_t i) {
      const std::uint32_t sample = i / width, column = i % width;
      const bool has = computes(sample) && column - job.column < job.columns;
      const auto times = [&](std::uint32_t row, float sum) {
        return multiply_add(job.below[sample * width + row], middle(row, column), sum);
      };
      const std::uint32_t begin = job.by_rows ? job.rank : 0, end = job.by_rows ? begin + 1 : ranks;
      job.sum[i] = has ? in_parts(width, ranks, begin, end, times) : 0;
    });
    return share(kSums);
  }

  /// The last layer, of the rank's own samples. Leaves the errors of the middle layer's sums.
  __device__ bool classify() const {
    const std::uint32_t width = job.width;
    if (threadIdx.x == 0) *job.loss = 0;
    in_block(kClasses * width, [&](std::uint32_t i) { job.last_gradient[i] = 0; });
    for (std::uint32_t sample = own; sample < own + job.batch; ++sample) {
      const float* const sums = job.sum + sample * width;
      float scores[kClasses], largest = -INFINITY, total = 0;
      for (std::uint32_t c = 0; c < kClasses; ++c) {
        scores[c] = 0;
        for (std::uint32_t i = 0; i < width; ++i) {
          scores[c] = multiply_add(fmaxf(sums[i], 0), job.last[i * kClasses + c], scores[c]);
        }
        largest = fmaxf(largest, scores[c]);
      }
      for (float& score : scores) total += score = expf(score - largest);
      const std::uint32_t label = labels[sample];
      if (threadIdx.x == 0) *job.loss -= logf(scores[label] / total);
      for (std::uint32_t c = 0; c < kClasses; ++c) scores[c] = scores[c] / total - (c == label ? 1.0F : 0.0F);
      in_block(width, [&](std::uint32_t i) {
        float error = 0;
        for (std::uint32_t c = 0; c < kClasses; ++c) {
          error = multiply_add(scores[c], job.last[i * kClasses + c], error);
          float& gradient = job.last_gradient[i * kClasses + c];
          gradient = multiply_add(fmaxf(sums[i], 0), scores[c], gradient);
        }
        job.error[sample * width + i] = sums[i] > 0 ? error : 0;
      });
    }
    in_block(all * width, [&](std::uint32_t i) {
      if (!is_own(i / width)) job.error[i] = 0;
    });
    return share(kErrors);
  }

  __device__ bool backward() const {
    const std::uint32_t width = job.width, ranks = job.ranks;
    in_block(all * width, [&](std::uint32_t i) {
      const std::uint32_t sample = i / width, row = i % width;
      const bool has = computes(sample) && row - job.row < job.rows;
      const auto times = [&](std::uint32_t column, float sum) {
        return multiply_add(job.error[sample * width + column], middle(row, column), sum);
      };
      const std::uint32_t begin = job.by_columns ? job.rank : 0, end = job.by_columns ? begin + 1 : ranks;
      job.error_below[i] = has ? in_parts(width, ranks, begin, end, times) : 0;
    });
    // A rank that has all samples makes its part of the gradient whole; else it makes that of its own samples.
    in_block(job.rows * job.columns, [&](std::uint32_t i) {
      const std::uint32_t row = job.row + i / job.columns, column = job.column + i % job.columns;
      const auto times = [&](std::uint32_t sample, float sum) {
        return multiply_add(job.below[sample * width + row], job.error[sample * width + column], sum);
      };
      const std::uint32_t begin = job.is_split() ? 0 : job.rank, end = job.is_split() ? ranks : begin + 1;
      job.middle_gradient[i] = in_parts(all, ranks, begin, end, times);
    });
    if (!share(kErrorsBelow)) return false;
    in_block(kInputs * width, [&](std::uint32_t i) {
      const std::uint32_t input = i / width, column = i % width;
      float sum = 0;
      for (std::uint32_t sample = own; sample < own + job.batch; ++sample) {
        const bool passes = job.below[sample * width + column] > 0;
        const float error = passes ? job.error_below[sample * width + column] : 0;
        sum = multiply_add(samples[sample * kInputs + input], error, sum);
      }
      job.first_gradient[i] = sum;
    });
    return exchange(kGradients);
  }

  __device__ void update() const {
    const float rate = job.rate / static_cast<float>(all);
    const auto apply = [&](float* weights, const float* gradient, std::uint32_t count) {
      in_block(count, [&](std::uint32_t i) { weights[i] = multiply_add(-rate, gradient[i], weights[i]); });
    };
    apply(job.first, job.first_gradient, kInputs * job.width);
    apply(job.middle, job.middle_gradient, job.rows * job.columns);
    apply(job.last, job.last_gradient, job.width * kClasses);
  }
};

/// One block.
static __global__ void train(Job job) {
  Training training{job, job.batch * job.ranks, job.batch * job.rank};
  for (std::uint32_t step = 0; step < job.steps; ++step) {
    training.samples = job.samples + std::size_t{step} * training.all * kInputs;
    training.labels = job.labels + std::size_t{step} * training.all;
    if (!training.forward() || !training.classify() || !training.backward()) return;
    if (threadIdx.x == 0 && step == 0) job.losses[0] = *job.loss / static_cast<float>(training.all);
    if (threadIdx.x == 0) job.losses[1] = *job.loss / static_cast<float>(training.all);
    training.update();
  }
}

}  // namespace split_layer
