#include "collectives.hpp"

#include "reduction.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace gpusock_torch {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

constexpr std::size_t kWord = 4;  // what a group moves
/// Up to this size a reduction without a schedule gathers all tensors at all ranks: one step less than by pieces.
constexpr std::size_t kGatheredBytesMax = 16 << 10;
/// Larger memory for copies is given back after each operation.
constexpr std::size_t kScratchKeptMax = 64 << 20;

std::size_t words_of(std::size_t bytes) { return (bytes + kWord - 1) / kWord; }

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kWord == 0; }

/// The tensor's elements in memory without gaps: its own memory if that has none.
at::Tensor flat_of(const at::Tensor& tensor) {
  return is_plain(tensor) ? tensor.view({-1}) : tensor.resolve_conj().resolve_neg().contiguous().view({-1});
}

/// Writes the elements of `flat` to `tensor`, unless they are the same memory.
void put_back(at::Tensor& tensor, const at::Tensor& flat) {
  if (tensor.numel() == 0 || (is_plain(tensor) && tensor.data_ptr() == flat.data_ptr())) return;
  tensor.copy_(flat.view(tensor.sizes()));
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

/// Messages that are sent and received at the same time.
class Collectives::Round {
 public:
  Round(Messages& messages, OpType what, std::uint64_t number, std::uint64_t timeout_ns)
      : messages_(messages), key_{static_cast<std::uint32_t>(what) + 1, number}, timeout_ns_(timeout_ns) {}

  void send(int to, const Piece& piece) {
    started();
    ids_.push_back(messages_.send(to, key_, piece.data, piece.bytes, timeout_ns_, ended()));
  }
  void receive(int from, const Piece& piece) {
    started();
    ids_.push_back(messages_.receive(from, key_, piece.data, piece.bytes, timeout_ns_, ended()));
  }

  /// Waits for all of them. Throws the first error; then none of them is under way any more.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ == 0 || !error_.empty(); });
    if (open_ != 0) {
      lock.unlock();
      for (const Messages::Id id : ids_) messages_.cancel(id, "another message of the operation has failed");
      lock.lock();
      changed_.wait(lock, [&] { return open_ == 0; });
    }
    if (!error_.empty()) throw std::runtime_error(error_);
  }

 private:
  void started() {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  Messages::Done ended() {
    return [this](const MessageResult& result) {
      const std::lock_guard lock(mutex_);
      --open_;
      if (error_.empty()) error_ = result.error;
      changed_.notify_all();
    };
  }

  Messages& messages_;
  MessageKey key_;
  std::uint64_t timeout_ns_;
  std::vector<Messages::Id> ids_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_ = 0;
  std::string error_;
};

Collectives::Collectives(gpusock::Context& context, Messages& messages, int rank, int ranks,
                         const param_sync::GroupOptions& options)
    : messages_(messages),
      rank_(rank),
      ranks_(ranks),
      group_(std::make_unique<param_sync::Group>(context, rank, ranks, options)) {}

void Collectives::check() const {
  if (!failed_.empty()) {
    throw std::runtime_error("an operation of this process group has failed before (" + failed_ +
                             "): make a new group on all ranks");
  }
}

void Collectives::fail(std::string why) {
  constexpr const char kLost[] = "lost rank ";
  constexpr std::uint64_t kHearNs = 200'000'000;
  const std::size_t at = why.find(kLost);
  int lost = at == std::string::npos ? -1 : std::atoi(why.c_str() + at + sizeof kLost - 1);
  // A rank that has ended may have ended because it has lost another one. What it has told comes by another connection.
  if (lost >= 0) {
    if (const auto heard = messages_.heard_from(lost, kHearNs)) {
      lost = heard->lost;
      why = heard->error;
    }
  }
  failed_ = why;
  messages_.tell(lost);
  // Ranks that wait for this one in an operation of the group see the end of its connections.
  group_.reset();
  scratch_ = at::Tensor();
  throw std::runtime_error(why);
}

param_sync::Group& Collectives::group() {
  if (!connected_) group_->connect(addresses_);
  connected_ = true;
  return *group_;
}

at::Tensor Collectives::scratch(std::size_t bytes) {
  if (scratch_.defined() && static_cast<std::size_t>(scratch_.numel()) >= bytes) return scratch_;
  scratch_ = at::Tensor();
  at::Tensor made = at::empty({static_cast<std::int64_t>(std::max(bytes, kWord))}, at::kByte);
  if (bytes <= kScratchKeptMax) scratch_ = made;
  return made;
}

/// Element r of the lists goes to and comes from rank r.
void Collectives::exchange(OpType what, const std::vector<Piece>& to_send, const std::vector<Piece>& to_receive,
                           std::uint64_t timeout_ns) {
  Round round(messages_, what, ++rounds_, timeout_ns);
  // Each rank begins with its right neighbour, so that not all of them send to the same one first.
  for (int i = 1; i < ranks_; ++i) {
    const auto from = static_cast<std::size_t>((rank_ - i + ranks_) % ranks_);
    if (!to_receive.empty()) round.receive(static_cast<int>(from), to_receive[from]);
  }
  for (int i = 1; i < ranks_; ++i) {
    const auto to = static_cast<std::size_t>((rank_ + i) % ranks_);
    if (!to_send.empty()) round.send(static_cast<int>(to), to_send[to]);
  }
  round.wait();
}

void Collectives::all_gather_words(void* data, std::size_t words_of_rank, std::uint64_t timeout_ns) {
  param_sync::Group& all = group();
  all.wait(
      all.all_gather({static_cast<std::int32_t*>(data), words_of_rank * static_cast<std::size_t>(ranks_)}, timeout_ns));
}

/// At any address, and with any number of elements.
void Collectives::reduce_on_group(void* data, std::size_t elements, param_sync::DataType type, param_sync::ReduceOp op,
                                  std::uint64_t timeout_ns) {
  param_sync::Group& all = group();
  const std::size_t size = param_sync::size_of(type), bytes = elements * size;
  if (is_aligned(data) && bytes % kWord == 0) {
    return all.wait(all.all_reduce({data, elements, type}, op, timeout_ns));
  }
  const std::size_t words = words_of(bytes);
  const at::Tensor memory = scratch(words * kWord);
  char* const copy = static_cast<char*>(memory.data_ptr());
  copy_bytes(copy, data, bytes);
  std::memset(copy + bytes, 0, words * kWord - bytes);
  all.wait(all.all_reduce({copy, words * kWord / size, type}, op, timeout_ns));
  copy_bytes(data, copy, bytes);
}

/// Any type and operation. Adds in the order of ranks: ((d0 + d1) + d2) + ...
void Collectives::reduce_exactly(at::Tensor& flat, const ReduceOp& op, std::uint64_t timeout_ns) {
  const auto size = static_cast<std::size_t>(flat.element_size()), ranks = static_cast<std::size_t>(ranks_);
  const auto elements = static_cast<std::size_t>(flat.numel()), bytes = elements * size;
  char* const data = static_cast<char*>(flat.data_ptr());
  const auto view = [&](char* at, std::size_t count) {
    return at::from_blob(at, {static_cast<std::int64_t>(count)}, flat.options());
  };
  if (bytes <= kGatheredBytesMax) {
    const std::size_t row = words_of(bytes) * kWord, stride = (row + 15) / 16 * 16;
    // Rows are at multiples of any element's size: the copies below are what ATen reads.
    std::vector<char> memory(row * ranks + kWord);
    char* const begin = memory.data() + (kWord - reinterpret_cast<std::uintptr_t>(memory.data()) % kWord) % kWord;
    copy_bytes(begin + row * static_cast<std::size_t>(rank_), data, bytes);
    all_gather_words(begin, row / kWord, timeout_ns);
    const at::Tensor rows_memory = scratch(stride * ranks);
    std::vector<at::Tensor> rows;
    for (std::size_t r = 0; r < ranks; ++r) {
      char* const to = static_cast<char*>(rows_memory.data_ptr()) + stride * r;
      copy_bytes(to, begin + row * r, bytes);
      rows.push_back(view(to, elements));
    }
    reduce_rows(rows, op, ranks_);
    return copy_bytes(data, rows.front().data_ptr(), bytes);
  }
  // Each rank gets its piece of all tensors, reduces it, and sends it to all.
  const auto begin_of = [&](std::size_t r) { return elements * r / ranks; };
  const std::size_t own_begin = begin_of(static_cast<std::size_t>(rank_)),
                    own = begin_of(static_cast<std::size_t>(rank_) + 1) - own_begin;
  const std::size_t stride = (own * size + 15) / 16 * 16;
  const at::Tensor memory = scratch(stride * ranks);
  std::vector<Piece> out(ranks), in(ranks);
  std::vector<at::Tensor> rows;
  for (std::size_t r = 0; r < ranks; ++r) {
    out[r] = {data + begin_of(r) * size, (begin_of(r + 1) - begin_of(r)) * size};
    char* const row = static_cast<char*>(memory.data_ptr()) + stride * r;
    in[r] = {row, own * size};
    rows.push_back(view(row, own));
  }
  copy_bytes(in[static_cast<std::size_t>(rank_)].data, data + own_begin * size, own * size);
  exchange(OpType::REDUCE_SCATTER, out, in, timeout_ns);
  reduce_rows(rows, op, ranks_);
  copy_bytes(data + own_begin * size, rows.front().data_ptr(), own * size);
  std::vector<Piece> mine(ranks, Piece{data + own_begin * size, own * size});
  exchange(OpType::ALLGATHER, mine, out, timeout_ns);
}

void Collectives::all_reduce(at::Tensor& tensor, const ReduceOp& op, std::uint64_t timeout_ns) {
  at::Tensor flat = flat_of(tensor);
  premultiply(flat, op);
  if (const auto reduction = group_reduction(tensor.scalar_type(), op)) {
    reduce_on_group(flat.data_ptr(), static_cast<std::size_t>(flat.numel()), reduction->type, reduction->op,
                    timeout_ns);
  } else {
    reduce_exactly(flat, op, timeout_ns);
  }
  put_back(tensor, flat);
}

void Collectives::all_reduce(std::vector<at::Tensor>& tensors, const ReduceOp& op, std::uint64_t timeout_ns) {
  if (tensors.size() == 1) return all_reduce(tensors.front(), op, timeout_ns);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(flat_of(tensor));
  at::Tensor together = at::cat(parts);
  all_reduce(together, op, timeout_ns);
  std::int64_t begin = 0;
  for (at::Tensor& tensor : tensors) {
    put_back(tensor, together.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
}

void Collectives::all_reduce_sparse(at::Tensor& tensor, std::uint64_t timeout_ns) {
  const at::Tensor own = tensor.coalesce();
  const auto gather = [&](const at::Tensor& input) {
    std::vector<at::Tensor> all;
    for (int r = 0; r < ranks_; ++r) all.push_back(at::empty(input.sizes(), input.options()));
    all_gather(all, input, timeout_ns);
    return all;
  };
  std::vector<std::int64_t> counts;
  for (const at::Tensor& count : gather(at::full({1}, own._nnz(), at::kLong)))
    counts.push_back(count.item<std::int64_t>());
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  // Each rank sends as many places as the one that has most.
  const auto padded = [&](const at::Tensor& some, std::int64_t dimension) {
    std::vector<std::int64_t> sizes = some.sizes().vec();
    sizes[static_cast<std::size_t>(dimension)] = most;
    at::Tensor wide = at::zeros(sizes, some.options());
    wide.narrow(dimension, 0, some.size(dimension)).copy_(some);
    return wide;
  };
  std::vector<at::Tensor> indices = gather(padded(own._indices(), 1)), values = gather(padded(own._values(), 0));
  for (std::size_t r = 0; r < counts.size(); ++r) {
    indices[r] = indices[r].narrow(1, 0, counts[r]);
    values[r] = values[r].narrow(0, 0, counts[r]);
  }
  tensor.copy_(at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), own.sizes(), own.options()).coalesce());
}

void Collectives::reduce(at::Tensor& tensor, const ReduceOp& op, int root, std::uint64_t timeout_ns) {
  if (rank_ == root) return all_reduce(tensor, op, timeout_ns);
  at::Tensor copy = tensor.clone();
  all_reduce(copy, op, timeout_ns);
}

void Collectives::broadcast(at::Tensor& tensor, int root, std::uint64_t timeout_ns) {
  param_sync::Group& all = group();
  const at::Tensor flat = flat_of(tensor);
  const std::size_t bytes = flat.nbytes(), words = words_of(bytes);
  if (is_aligned(flat.data_ptr()) && bytes % kWord == 0) {
    all.wait(all.broadcast({static_cast<std::int32_t*>(flat.data_ptr()), words}, root, timeout_ns));
  } else {
    const at::Tensor memory = scratch(words * kWord);
    if (rank_ == root) {
      std::memset(static_cast<char*>(memory.data_ptr()) + (words - 1) * kWord, 0, kWord);
      copy_bytes(memory.data_ptr(), flat.data_ptr(), bytes);
    }
    all.wait(all.broadcast({static_cast<std::int32_t*>(memory.data_ptr()), words}, root, timeout_ns));
    copy_bytes(flat.data_ptr(), memory.data_ptr(), bytes);
  }
  if (rank_ != root) put_back(tensor, flat);
}

void Collectives::all_gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, std::uint64_t timeout_ns) {
  const at::Tensor own = flat_of(input);
  const std::size_t bytes = own.nbytes(), words = words_of(bytes), ranks = static_cast<std::size_t>(ranks_);
  const auto mine = static_cast<std::size_t>(rank_);
  if (outputs.size() == 1 && is_plain(outputs[0]) && is_aligned(outputs[0].data_ptr()) && bytes % kWord == 0) {
    char* const all = static_cast<char*>(outputs[0].data_ptr());
    copy_bytes(all + mine * bytes, own.data_ptr(), bytes);
    return all_gather_words(all, words, timeout_ns);
  }
  const at::Tensor memory = scratch(words * kWord * ranks);
  char* const all = static_cast<char*>(memory.data_ptr());
  copy_bytes(all + mine * words * kWord, own.data_ptr(), bytes);
  all_gather_words(all, words, timeout_ns);
  const bool is_one = outputs.size() == 1 && ranks != 1;
  at::Tensor together = is_one ? flat_of(outputs[0]) : at::Tensor();
  for (std::size_t r = 0; r < ranks; ++r) {
    char* const from = all + r * words * kWord;
    if (is_one) {
      copy_bytes(static_cast<char*>(together.data_ptr()) + r * bytes, from, bytes);
    } else if (is_plain(outputs[r])) {
      copy_bytes(outputs[r].data_ptr(), from, bytes);
    } else if (bytes != 0) {
      at::Tensor copy = at::empty(outputs[r].sizes(), outputs[r].options());
      copy_bytes(copy.data_ptr(), from, bytes);
      outputs[r].copy_(copy);
    }
  }
  if (is_one) put_back(outputs[0], together);
}

void Collectives::reduce_scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, const ReduceOp& op,
                                 std::uint64_t timeout_ns) {
  const auto ranks = static_cast<std::size_t>(ranks_), mine = static_cast<std::size_t>(rank_);
  const std::size_t bytes = output.nbytes();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& input : inputs) parts.push_back(flat_of(input));
  const auto part_of = [&](std::size_t r) {
    return parts.size() == 1 ? static_cast<char*>(parts[0].data_ptr()) + r * bytes
                             : static_cast<char*>(parts[r].data_ptr());
  };
  at::Tensor result = is_plain(output) ? output.view({-1}) : at::empty({output.numel()}, output.options());
  const auto reduction = group_reduction(output.scalar_type(), op);
  if (reduction && op.op_ != ReduceOp::PREMUL_SUM) {
    param_sync::Group& all = group();
    const std::size_t words = words_of(bytes), row = words * kWord;
    const at::Tensor memory = scratch(row * ranks);
    char* const copy = static_cast<char*>(memory.data_ptr());
    for (std::size_t r = 0; r < ranks; ++r) {
      copy_bytes(copy + r * row, part_of(r), bytes);
      std::memset(copy + r * row + bytes, 0, row - bytes);
    }
    const std::size_t count = row * ranks / param_sync::size_of(reduction->type);
    all.wait(all.reduce_scatter({copy, count, reduction->type}, reduction->op, timeout_ns));
    copy_bytes(result.data_ptr(), copy + mine * row, bytes);
  } else {
    at::Tensor rows_memory = at::empty({ranks_, output.numel()}, output.options());
    std::vector<Piece> out(ranks), in(ranks);
    std::vector<at::Tensor> rows;
    for (std::size_t r = 0; r < ranks; ++r) {
      out[r] = {part_of(r), bytes};
      rows.push_back(rows_memory[static_cast<std::int64_t>(r)]);
      in[r] = {rows.back().data_ptr(), bytes};
    }
    copy_bytes(in[mine].data, out[mine].data, bytes);
    exchange(OpType::REDUCE_SCATTER, out, in, timeout_ns);
    for (at::Tensor& row : rows) premultiply(row, op);
    reduce_rows(rows, op, ranks_);
    copy_bytes(result.data_ptr(), rows.front().data_ptr(), bytes);
  }
  put_back(output, result);
}

void Collectives::gather(std::vector<at::Tensor>& outputs, const at::Tensor& input, int root,
                         std::uint64_t timeout_ns) {
  const at::Tensor own = flat_of(input);
  Round round(messages_, OpType::GATHER, ++rounds_, timeout_ns);
  if (rank_ != root) {
    round.send(root, {own.data_ptr(), own.nbytes()});
    return round.wait();
  }
  std::vector<at::Tensor> flats;
  for (at::Tensor& output : outputs) {
    flats.push_back(is_plain(output) ? output.view({-1}) : at::empty({output.numel()}, output.options()));
  }
  for (int r = 0; r < ranks_; ++r) {
    at::Tensor& flat = flats[static_cast<std::size_t>(r)];
    if (r == rank_) {
      copy_bytes(flat.data_ptr(), own.data_ptr(), own.nbytes());
    } else {
      round.receive(r, {flat.data_ptr(), flat.nbytes()});
    }
  }
  round.wait();
  for (std::size_t r = 0; r < flats.size(); ++r) put_back(outputs[r], flats[r]);
}

void Collectives::scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root,
                          std::uint64_t timeout_ns) {
  Round round(messages_, OpType::SCATTER, ++rounds_, timeout_ns);
  at::Tensor result = is_plain(output) ? output.view({-1}) : at::empty({output.numel()}, output.options());
  std::vector<at::Tensor> flats;
  if (rank_ == root) {
    for (const at::Tensor& input : inputs) flats.push_back(flat_of(input));
    for (int r = 0; r < ranks_; ++r) {
      const at::Tensor& flat = flats[static_cast<std::size_t>(r)];
      if (r == rank_) {
        copy_bytes(result.data_ptr(), flat.data_ptr(), flat.nbytes());
      } else {
        round.send(r, {flat.data_ptr(), flat.nbytes()});
      }
    }
  } else {
    round.receive(root, {result.data_ptr(), result.nbytes()});
  }
  round.wait();
  put_back(output, result);
}

void Collectives::all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                             std::uint64_t timeout_ns) {
  std::vector<at::Tensor> to_send, results;
  std::vector<Piece> out, in;
  for (const at::Tensor& input : inputs) {
    to_send.push_back(flat_of(input));
    out.push_back({to_send.back().data_ptr(), to_send.back().nbytes()});
  }
  for (at::Tensor& output : outputs) {
    results.push_back(is_plain(output) ? output.view({-1}) : at::empty({output.numel()}, output.options()));
    in.push_back({results.back().data_ptr(), results.back().nbytes()});
  }
  const auto mine = static_cast<std::size_t>(rank_);
  if (in[mine].bytes != out[mine].bytes) {
    throw std::runtime_error("all_to_all: what a rank sends to itself is " + std::to_string(out[mine].bytes) +
                             " bytes, what it receives is " + std::to_string(in[mine].bytes));
  }
  copy_bytes(in[mine].data, out[mine].data, in[mine].bytes);
  exchange(OpType::ALLTOALL, out, in, timeout_ns);
  for (std::size_t r = 0; r < results.size(); ++r) put_back(outputs[r], results[r]);
}

void Collectives::barrier(std::uint64_t timeout_ns) {
  param_sync::Group& all = group();
  all.wait(all.barrier(timeout_ns));
}

}  // namespace gpusock_torch
