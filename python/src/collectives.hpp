#pragma once
/// @file Collective operations on PyTorch's tensors: by the schedules of a param_sync group where they suit, else by
/// messages between pairs of ranks.

#include "messages.hpp"

#include "param_sync/group.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpusock_torch {

/// The collective operations of one rank. Each call takes part in one operation, and returns at its end. All ranks make
/// the same calls in the same order. One thread at a time calls. After a failure every call throws.
///
/// Calls throw gpusock::Error, or std::runtime_error; the message names the rank that was lost, if it is known.
class Collectives {
 public:
  /// Makes the group, which listens at `at` once that is asked. The context and `messages` outlive this object. Throws
  /// gpusock::Error.
  Collectives(gpusock::Context& context, Messages& messages, int rank, int ranks,
              const param_sync::GroupOptions& options);

  /// Listens, and returns the address.
  gpusock::Endpoint listen(const gpusock::Endpoint& at) { return group_->listen(at); }
  /// Where all ranks listen, by rank. The first operation that needs the group connects it.
  void set_addresses(std::vector<gpusock::Endpoint> addresses) { addresses_ = std::move(addresses); }

  void all_reduce(at::Tensor& tensor, const c10d::ReduceOp& op, std::uint64_t timeout_ns);
  /// One operation on all of them. They have the same type.
  void all_reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op, std::uint64_t timeout_ns);
  /// The sum of sparse tensors, which may have elements at different places on each rank.
  void all_reduce_sparse(at::Tensor& tensor, std::uint64_t timeout_ns);
  void reduce(at::Tensor& tensor, const c10d::ReduceOp& op, int root, std::uint64_t timeout_ns);
  void broadcast(at::Tensor& tensor, int root, std::uint64_t timeout_ns);
  /// `outputs`: one for each rank, each of the input's size. Or one for all ranks together.
  void all_gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, std::uint64_t timeout_ns);
  /// `inputs`: one for each rank, each of the output's size. Or one for all ranks together.
  void reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, const c10d::ReduceOp& op,
                      std::uint64_t timeout_ns);
  /// `outputs`: by rank, at the root only.
  void gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, int root, std::uint64_t timeout_ns);
  /// `inputs`: by rank, at the root only.
  void scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root, std::uint64_t timeout_ns);
  /// By rank. The sizes differ as they may.
  void all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, std::uint64_t timeout_ns);
  void barrier(std::uint64_t timeout_ns);

  /// Runs `operation`, which calls the above. If it throws, tells the other ranks, and throws with all that a user
  /// needs.
  template <class Operation>
  void run(Operation operation) {
    check();
    try {
      operation();
    } catch (const gpusock::Error& error) {
      fail((error.code().value() == ETIMEDOUT ? "Timed out waiting: " : "") + std::string(error.what()));
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

 private:
  class Round;
  struct Piece {
    void* data;
    std::size_t bytes;
  };

  void check() const;
  [[noreturn]] void fail(std::string why);
  param_sync::Group& group();
  void exchange(c10d::OpType what, const std::vector<Piece>& to_send, const std::vector<Piece>& to_receive,
                std::uint64_t timeout_ns);
  void all_gather_words(void* data, std::size_t words_of_rank, std::uint64_t timeout_ns);
  void reduce_on_group(void* data, std::size_t elements, param_sync::DataType type, param_sync::ReduceOp op,
                       std::uint64_t timeout_ns);
  void reduce_exactly(at::Tensor& flat, const c10d::ReduceOp& op, std::uint64_t timeout_ns);
  at::Tensor scratch(std::size_t bytes);

  Messages& messages_;
  int rank_, ranks_;
  std::unique_ptr<param_sync::Group> group_;
  std::vector<gpusock::Endpoint> addresses_;
  bool connected_ = false;
  std::uint64_t rounds_ = 0;  // of messages
  std::string failed_;        // why
  at::Tensor scratch_;        // bytes
};

}  // namespace gpusock_torch
