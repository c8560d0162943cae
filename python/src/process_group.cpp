#include "process_group.hpp"

#include "reduction.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <utility>

namespace gpusock_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

std::uint64_t ns_of(milliseconds time) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // a hundred years: no sum of it with a clock overflows
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(time.count(), 0, kMost)) * 1'000'000;
}

void check_tensor(const char* what, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "gpusock: ", what, " of an undefined tensor");
  TORCH_CHECK(tensor.layout() == at::kStrided, "gpusock: ", what, ": unsupported layout ", tensor.layout(),
              ": give dense tensors");
  TORCH_CHECK(tensor.device().is_cpu(), "gpusock: ", what, " of a tensor on ", tensor.device(),
              ": this back end moves tensors on the CPU only. Use backend=\"cpu:gpusock,cuda:nccl\", or tensor.cpu()");
}

void check_tensors(const char* what, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) check_tensor(what, tensor);
}

/// `side`: "input ", "output " or nothing.
void check_one(const char* what, const char* side, const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "gpusock: ", what, ": requires a single-element ", side, "tensor list, not one of ",
              tensors.size());
  check_tensor(what, tensors[0]);
}

void check_like(const char* what, const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "gpusock: ", what, ": invalid tensor type ",
              tensor.scalar_type(), ", expected ", like.scalar_type(), " as the others have");
  TORCH_CHECK(tensor.numel() == like.numel(), "gpusock: ", what, ": invalid tensor size ", tensor.sizes(),
              ", expected ", like.sizes(), " as the others have");
}

void check_all_like(const char* what, const Tensors& tensors, const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(what, tensor);
    check_like(what, tensor, like);
  }
}

/// The tensors of one rank, which has them on several devices: all of one layout, type and size.
void check_alike(const char* what, const Tensors& tensors) {
  TORCH_CHECK(!tensors.empty(), "gpusock: ", what, ": requires non-empty tensor list");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.defined() && tensor.layout() == tensors[0].layout(), "gpusock: ", what,
                ": invalid tensor layout: tensors must all have the same layout");
    check_like(what, tensor, tensors[0]);
  }
}

/// `side`: "input" or "output".
void check_list(const char* what, const char* side, const Tensors& tensors, int ranks, const at::Tensor& like) {
  TORCH_CHECK(tensors.size() == static_cast<std::size_t>(ranks), "gpusock: ", what, ": Incorrect ", side, " list size ",
              tensors.size(), ". ", side[0] == 'i' ? "Input" : "Output", " list size should be ", ranks,
              ": one tensor for each rank");
  check_all_like(what, tensors, like);
}

/// Only the root gives `lists`, and in them one list, of a tensor for each rank. `side`: "input" or "output".
void check_list_of_root(const char* what, const char* side, const std::vector<Tensors>& lists, bool is_root, int ranks,
                        const at::Tensor& like) {
  const std::string wanted = is_root
                                 ? "a single-element " + std::string(side) + " list containing a list with " +
                                       std::to_string(ranks) + " tensors."
                                 : "empty " + std::string(side) + " on non-root, not " + std::to_string(lists.size());
  TORCH_CHECK(lists.size() == (is_root ? 1u : 0u), "gpusock: ", what, ": requires ", wanted);
  if (is_root) check_list(what, side, lists[0], ranks, like);
}

void check_whole(const char* what, const at::Tensor& whole, const at::Tensor& part, int ranks) {
  check_tensor(what, whole);
  check_tensor(what, part);
  TORCH_CHECK(whole.scalar_type() == part.scalar_type(), "gpusock: ", what, ": tensors of ", whole.scalar_type(),
              " and ", part.scalar_type(), ": give both the same type");
  TORCH_CHECK(whole.numel() == part.numel() * ranks, "gpusock: ", what, ": the tensor of all ranks has ", whole.numel(),
              " elements, not ", ranks, " times the ", part.numel(), " of one rank");
}

void check_root_tensor(const char* what, std::int64_t which, const Tensors& tensors) {
  TORCH_CHECK(which >= 0 && static_cast<std::size_t>(which) < tensors.size(), "gpusock: ", what,
              ": invalid root tensor ", which, ": there are ", tensors.size());
}

/// A rank with several tensors reduces them, and then the ranks reduce the results.
void check_reduction_of_several(const char* what, const Tensors& tensors, const c10d::ReduceOp& op) {
  TORCH_CHECK(tensors.size() == 1 || (op != c10d::ReduceOp::AVG && op != c10d::ReduceOp::PREMUL_SUM), "gpusock: ", what,
              ": an average or a premultiplied sum takes one tensor of each rank, not ", tensors.size());
}

void copy_to_others(Tensors& tensors, std::size_t which) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i != which) tensors[i].copy_(tensors[which]);
  }
}

/// Rows [begin, end) of each rank.
Tensors split_rows(const char* what, const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks) {
  const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  Tensors parts;
  if (sizes.empty()) {
    TORCH_CHECK(rows % ranks == 0, "gpusock: ", what, ": ", rows, " rows do not divide equally among ", ranks,
                " ranks: give the split sizes");
    for (int r = 0; r < ranks; ++r) parts.push_back(tensor.narrow(0, rows / ranks * r, rows / ranks));
    return parts;
  }
  TORCH_CHECK(sizes.size() == static_cast<std::size_t>(ranks), "gpusock: ", what, ": ", sizes.size(),
              " split sizes for ", ranks, " ranks");
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    TORCH_CHECK(size >= 0 && size <= rows - begin, "gpusock: ", what, ": the split sizes do not add up to the ", rows,
                " rows of the tensor");
    parts.push_back(tensor.narrow(0, begin, size));
    begin += size;
  }
  TORCH_CHECK(begin == rows, "gpusock: ", what, ": the split sizes add up to ", begin, ", the tensor has ", rows,
              " rows");
  return parts;
}

}  // namespace

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           const c10::intrusive_ptr<Options>& options, const Place& place)
    : Backend(rank, size), options_(options), all_ranks_(place.ranks), process_(getpid()) {
  try {
    gpusock::Options of_context = gpusock::Options::from_env();
    if (of_context.secret.empty()) of_context.secret = place.secret;
    context_ = std::make_unique<gpusock::Context>(of_context);
    param_sync::GroupOptions of_group;
    of_group.all_reduce = options->all_reduce;
    of_group.deterministic = options->deterministic;
    of_group.connect_timeout_ns = ns_of(options->timeout);
    const gpusock::Endpoint at = gpusock::Endpoint::of(place.address, 0);
    messages_ = std::make_unique<Messages>(*context_, rank, size, at);
    collectives_ = std::make_unique<Collectives>(*context_, *messages_, rank, size, of_group);
    const std::string both = messages_->address().to_string() + " " + collectives_->listen(at).to_string();
    store->set("at/" + std::to_string(rank), both);
    meet(store);
  } catch (const gpusock::Error& error) {
    collectives_.reset();
    messages_.reset();
    C10_THROW_ERROR(DistBackendError, std::string("gpusock: ") + error.what());
  }
  thread_ = std::thread([this] { run(); });
}

void ProcessGroup::meet(const c10::intrusive_ptr<c10d::Store>& store) {
  std::vector<gpusock::Endpoint> of_messages, of_groups;
  for (int r = 0; r < size_; ++r) {
    const std::string key = "at/" + std::to_string(r);
    try {
      store->wait({key}, options_->timeout);
    } catch (const std::exception& error) {
      collectives_.reset();
      messages_.reset();
      C10_THROW_ERROR(DistBackendError, "gpusock: rank " + std::to_string(r) + of_group() +
                                            " has not come to the store: " + error.what());
    }
    const std::string both = store->get_to_str(key);
    const std::size_t space = both.find(' ');
    of_messages.push_back(gpusock::Endpoint::parse(both.substr(0, space)));
    of_groups.push_back(gpusock::Endpoint::parse(both.substr(space + 1)));
  }
  messages_->set_addresses(std::move(of_messages));
  collectives_->set_addresses(std::move(of_groups));
}

ProcessGroup::~ProcessGroup() {
  if (getpid() != process_) {
    // A forked child: the threads, and whatever they held, are its parent's.
    thread_.detach();
    static_cast<void>(collectives_.release());
    static_cast<void>(messages_.release());
    static_cast<void>(context_.release());
    static_cast<void>(changed_.release());  // its end would wait for the parent's thread, which waits on it
    return;
  }
  shutdown();
}

void ProcessGroup::shutdown() { shutdown_within(milliseconds::max()); }

void ProcessGroup::shutdown_within(milliseconds patience) {
  if (getpid() != process_) return;
  {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    const auto idle = [&] { return queue_.empty() && !busy_; };
    if (patience == milliseconds::max()) {
      changed_->wait(lock, idle);
    } else if (!changed_->wait_for(lock, patience, idle)) {
      lock.unlock();
      abort();
      lock.lock();
      changed_->wait(lock, idle);
    }
    ending_ = true;
    changed_->notify_all();
  }
  if (thread_.joinable()) thread_.join();
  collectives_.reset();
  messages_.reset();
  context_.reset();
}

std::pair<std::uint64_t, std::uint64_t> ProcessGroup::traffic() const {
  if (context_ == nullptr) throw std::invalid_argument("gpusock: traffic: the process group has been destroyed");
  std::pair<std::uint64_t, std::uint64_t> bytes;
  for (const auto& of_link : context_->stats().traffic) {
    bytes.first += of_link.tx_bytes;
    bytes.second += of_link.rx_bytes;
  }
  return bytes;
}

void ProcessGroup::abort() {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (aborted_ || ending_) return;
  aborted_ = true;
  messages_->end("the process group was aborted");
  context_->cancel();
}

void ProcessGroup::setTimeout(milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  options_->timeout = timeout;
}

c10d::ErrorType ProcessGroup::getError() {
  const std::lock_guard lock(mutex_);
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

milliseconds ProcessGroup::timeout_of(milliseconds given) const {
  return given == c10d::kUnsetTimeout ? options_->timeout : given;
}

/// Which ranks of the program the ranks of an error are, where they differ.
std::string ProcessGroup::of_group() const {
  bool same = true;
  for (std::size_t i = 0; i < all_ranks_.size(); ++i) same = same && all_ranks_[i] == static_cast<std::int64_t>(i);
  if (same) return "";
  std::string text = " (of a group of the ranks";
  for (const std::int64_t rank : all_ranks_) text += " " + std::to_string(rank);
  return text + ", which are its ranks 0, 1, ...)";
}

ProcessGroup::WorkPtr ProcessGroup::start(TaskInfo info, const Call& call, Operation operation) {
  info.timeout = timeout_of(call.timeout);
  std::unique_lock lock(mutex_);
  TORCH_CHECK(!ended_, "gpusock: the process group has been destroyed");
  info.sequence = ++sequence_;
  auto task = c10::make_intrusive<Task>(rank_, std::move(info));
  if (std::this_thread::get_id() == thread_.get_id()) {
    // This is a callback of an operation's future, on the thread that would take it from the queue: the callback may
    // wait for it. It comes before all that is queued, so that its place among the operations does not depend on
    // timing.
    lock.unlock();
    perform({task, std::move(operation), false});
    return task;
  }
  queue_.push_back({task, std::move(operation), !call.returns_at_once});
  if (call.returns_at_once) {
    changed_->notify_all();
    return task;
  }
  // The caller would do nothing but wait. A switch to the group's thread and back takes longer than a small sum.
  changed_->wait(lock, [&] { return !busy_ && queue_.front().task == task; });
  const at::NoGradGuard no_gradients;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  perform_first(lock);
  return task;
}

void ProcessGroup::run() {
  const at::NoGradGuard no_gradients;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_->wait(lock, [&] { return (!busy_ && !queue_.empty() && !queue_.front().by_caller) || ending_; });
    if (queue_.empty()) return;
    perform_first(lock);
  }
}

/// Performs the first operation of the queue, without the lock.
void ProcessGroup::perform_first(std::unique_lock<std::mutex>& lock) {
  Queued next = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  lock.unlock();
  perform(std::move(next));
  lock.lock();
  busy_ = false;
  if (!queue_.empty() || ended_) changed_->notify_all();
}

/// If this is the group's thread, callbacks of the task's future run here, too, and may start operations. An operation
/// that its caller performs has no callbacks yet: start() has not returned its future.
void ProcessGroup::perform(Queued next) {
  std::unique_lock lock(mutex_);
  const bool aborted = aborted_;
  lock.unlock();
  std::string why;
  if (aborted) {
    why = "the process group was aborted";
  } else {
    try {
      const std::uint64_t timeout_ns = ns_of(next.task->info().timeout);
      collectives_->run([&] { next.operation(*collectives_, timeout_ns); });
    } catch (const std::exception& error) {
      why = error.what();
    }
  }
  next.operation = nullptr;
  if (why.empty()) return next.task->succeed();
  lock.lock();
  failed_ = true;
  if (aborted_) why = "the process group was aborted: " + why;
  lock.unlock();
  next.task->fail("gpusock: " + why + of_group());
}

void ProcessGroup::check_root(const char* what, std::int64_t root) const {
  TORCH_CHECK(root >= 0 && root < size_, "gpusock: ", what, ": invalid root rank ", root, ": ranks are 0 to ",
              size_ - 1);
}

ProcessGroup::WorkPtr ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_root("broadcast", opts.rootRank);
  check_root_tensor("broadcast", opts.rootTensor, tensors);
  check_alike("broadcast", tensors);
  check_tensors("broadcast", tensors);
  return start({OpType::BROADCAST, "gpusock:broadcast", tensors, {tensors}}, {opts.timeout, opts.asyncOp},
               [tensors, root = static_cast<int>(opts.rootRank), which = static_cast<std::size_t>(opts.rootTensor)](
                   Collectives& all, std::uint64_t timeout_ns) mutable {
                 all.broadcast(tensors[which], root, timeout_ns);
                 copy_to_others(tensors, which);
               });
}

ProcessGroup::WorkPtr ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_alike("all_reduce", tensors);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  check_tensors("all_reduce", tensors);
  check_reduction(tensors[0].scalar_type(), opts.reduceOp);
  check_reduction_of_several("all_reduce", tensors, opts.reduceOp);
  return start({OpType::ALLREDUCE, "gpusock:all_reduce", tensors, {tensors}}, {opts.timeout, opts.asyncOp},
               [tensors, op = opts.reduceOp](Collectives& all, std::uint64_t timeout_ns) mutable {
                 if (tensors.size() != 1) reduce_rows(tensors, op, 1);
                 all.all_reduce(tensors[0], op, timeout_ns);
                 copy_to_others(tensors, 0);
               });
}

ProcessGroup::WorkPtr ProcessGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_alike("all_reduce", tensors);
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_sparse() && tensor.device().is_cpu(),
                "gpusock: a sparse all_reduce takes sparse tensors on the CPU");
    TORCH_CHECK(tensor.sizes() == tensors[0].sizes(), "gpusock: all_reduce: invalid tensor size ", tensor.sizes(),
                ", expected ", tensors[0].sizes(), " as the others have");
  }
  TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
              "gpusock: unsupported reduction operation: sparse tensors are summed: take ReduceOp.SUM");
  check_reduction(tensors[0].scalar_type(), opts.reduceOp);
  return start({OpType::_ALLREDUCE_SPARSE, "gpusock:sparse_all_reduce", tensors, {tensors}},
               {opts.timeout, opts.asyncOp}, [tensors](Collectives& all, std::uint64_t timeout_ns) mutable {
                 reduce_rows(tensors, c10d::ReduceOp::SUM, 1);
                 all.all_reduce_sparse(tensors[0], timeout_ns);
                 copy_to_others(tensors, 0);
               });
}

ProcessGroup::WorkPtr ProcessGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK(!tensors.empty(), "gpusock: all_reduce_coalesced: requires non-empty tensor list");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].defined() && tensors[i].layout() == tensors[0].layout(),
                "gpusock: all_reduce_coalesced: invalid tensor layout at index ", i,
                ": tensors must all have the same layout");
    TORCH_CHECK(tensors[i].scalar_type() == tensors[0].scalar_type(), "gpusock: all_reduce_coalesced: tensors of ",
                tensors[0].scalar_type(), " and ", tensors[i].scalar_type(), ": tensors must all have the same type");
  }
  check_tensors("all_reduce_coalesced", tensors);
  check_reduction(tensors[0].scalar_type(), opts.reduceOp);
  return start({OpType::ALLREDUCE_COALESCED, "gpusock:all_reduce", tensors, {tensors}}, {opts.timeout, opts.asyncOp},
               [tensors, op = opts.reduceOp](Collectives& all, std::uint64_t timeout_ns) mutable {
                 all.all_reduce(tensors, op, timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_root("reduce", opts.rootRank);
  check_root_tensor("reduce", opts.rootTensor, tensors);
  check_one("reduce", "", tensors);
  check_reduction(tensors[0].scalar_type(), opts.reduceOp);
  return start({OpType::REDUCE, "gpusock:reduce", tensors, {tensors}}, {opts.timeout, opts.asyncOp},
               [tensor = tensors[0], op = opts.reduceOp, root = static_cast<int>(opts.rootRank)](
                   Collectives& all, std::uint64_t timeout_ns) mutable { all.reduce(tensor, op, root, timeout_ns); });
}

ProcessGroup::WorkPtr ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(!inputs.empty(), "gpusock: all_gather: requires non-empty input tensor list");
  TORCH_CHECK(outputs.size() == inputs.size(),
              "gpusock: all_gather: requires input/output tensor lists to have the same length, not ", inputs.size(),
              " and ", outputs.size());
  const std::size_t of_rank = inputs.size(), of_all = of_rank * static_cast<std::size_t>(size_);
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == of_all, "gpusock: all_gather: invalid output tensor list of ", list.size(),
                " tensors: each list has one for each tensor of each rank, which are ", of_all);
  }
  check_all_like("all_gather", inputs, inputs[0]);
  for (const Tensors& list : outputs) check_all_like("all_gather", list, inputs[0]);
  return start({OpType::ALLGATHER, "gpusock:all_gather", inputs, outputs}, {opts.timeout, opts.asyncOp},
               [outputs, inputs](Collectives& all, std::uint64_t timeout_ns) mutable {
                 // A list has the tensors of rank 0, then those of rank 1, and so on.
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   Tensors to;
                   for (std::size_t at = i; at < outputs[0].size(); at += inputs.size()) to.push_back(outputs[0][at]);
                   all.all_gather(to, inputs[i], timeout_ns);
                 }
                 for (std::size_t list = 1; list < outputs.size(); ++list) {
                   for (std::size_t at = 0; at < outputs[0].size(); ++at) outputs[list][at].copy_(outputs[0][at]);
                 }
               });
}

ProcessGroup::WorkPtr ProcessGroup::all_gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
  check_whole("all_gather_into_tensor", output, input, size_);
  return start({OpType::_ALLGATHER_BASE, "gpusock:_all_gather_base", {input}, {{output}}}, {opts.timeout, opts.asyncOp},
               [to = Tensors{output}, input](Collectives& all, std::uint64_t timeout_ns) mutable {
                 all.all_gather(to, input, timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  // Here the outer list is by rank.
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "gpusock: all_gather_coalesced: output lists should be equal to world size ", size_, ", not ",
              outputs.size());
  check_tensors("all_gather_coalesced", inputs);
  std::vector<Tensors> by_tensor(inputs.size());
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK(of_rank.size() == inputs.size(), "gpusock: all_gather_coalesced: invalid output size: ", of_rank.size(),
                " tensors for ", inputs.size(), " inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_tensor("all_gather_coalesced", of_rank[i]);
      TORCH_CHECK(of_rank[i].scalar_type() == inputs[i].scalar_type(),
                  "gpusock: all_gather_coalesced: invalid tensor type at index ", i, ": ", of_rank[i].scalar_type(),
                  ", the input has ", inputs[i].scalar_type());
      TORCH_CHECK(of_rank[i].numel() == inputs[i].numel(),
                  "gpusock: all_gather_coalesced: invalid size of output tensor at index ", i, ": ", of_rank[i].sizes(),
                  ", the input has ", inputs[i].sizes());
      by_tensor[i].push_back(of_rank[i]);
    }
  }
  return start({OpType::ALLGATHER_COALESCED, "gpusock:all_gather", inputs, outputs}, {opts.timeout, opts.asyncOp},
               [by_tensor, inputs](Collectives& all, std::uint64_t timeout_ns) mutable {
                 for (std::size_t i = 0; i < inputs.size(); ++i) all.all_gather(by_tensor[i], inputs[i], timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "gpusock: all_gather_into_tensor_coalesced: ", outputs.size(),
              " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_whole("all_gather_into_tensor_coalesced", outputs[i], inputs[i], size_);
  return start({OpType::ALLGATHER_INTO_TENSOR_COALESCED, "gpusock:all_gather", inputs, {outputs}},
               {opts.timeout, opts.asyncOp}, [outputs, inputs](Collectives& all, std::uint64_t timeout_ns) mutable {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   Tensors to{outputs[i]};
                   all.all_gather(to, inputs[i], timeout_ns);
                 }
               });
}

ProcessGroup::WorkPtr ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& opts) {
  check_root("gather", opts.rootRank);
  check_one("gather", "input ", inputs);
  const bool is_root = rank_ == opts.rootRank;
  check_list_of_root("gather", "output", outputs, is_root, size_, inputs[0]);
  return start({OpType::GATHER, "gpusock:gather", inputs, outputs}, {opts.timeout, opts.asyncOp},
               [to = is_root ? outputs[0] : Tensors(), input = inputs[0], root = static_cast<int>(opts.rootRank)](
                   Collectives& all, std::uint64_t timeout_ns) mutable { all.gather(to, input, root, timeout_ns); });
}

ProcessGroup::WorkPtr ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& opts) {
  check_root("scatter", opts.rootRank);
  check_one("scatter", "output ", outputs);
  const bool is_root = rank_ == opts.rootRank;
  check_list_of_root("scatter", "input", inputs, is_root, size_, outputs[0]);
  const Tensors from = is_root ? inputs[0] : Tensors();
  return start(
      {OpType::SCATTER, "gpusock:scatter", from, {outputs}}, {opts.timeout, opts.asyncOp},
      [output = outputs[0], from, root = static_cast<int>(opts.rootRank)](
          Collectives& all, std::uint64_t timeout_ns) mutable { all.scatter(output, from, root, timeout_ns); });
}

ProcessGroup::WorkPtr ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& opts) {
  check_one("reduce_scatter", "output ", outputs);
  TORCH_CHECK(inputs.size() == 1, "gpusock: reduce_scatter takes one list of tensors of each rank, not ",
              inputs.size());
  check_list("reduce_scatter", "input", inputs[0], size_, outputs[0]);
  check_reduction(outputs[0].scalar_type(), opts.reduceOp);
  return start(
      {OpType::REDUCE_SCATTER, "gpusock:reduce_scatter", inputs[0], {outputs}}, {opts.timeout, opts.asyncOp},
      [output = outputs[0], from = inputs[0], op = opts.reduceOp](Collectives& all, std::uint64_t timeout_ns) mutable {
        all.reduce_scatter(output, from, op, timeout_ns);
      });
}

ProcessGroup::WorkPtr ProcessGroup::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                          const c10d::ReduceScatterOptions& opts) {
  check_whole("reduce_scatter_tensor", input, output, size_);
  check_reduction(output.scalar_type(), opts.reduceOp);
  return start({OpType::_REDUCE_SCATTER_BASE, "gpusock:_reduce_scatter_base", {input}, {{output}}},
               {opts.timeout, opts.asyncOp},
               [output, input, op = opts.reduceOp](Collectives& all, std::uint64_t timeout_ns) mutable {
                 all.reduce_scatter(output, {input}, op, timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                                    const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "gpusock: reduce_scatter_tensor_coalesced: ", outputs.size(),
              " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_whole("reduce_scatter_tensor_coalesced", inputs[i], outputs[i], size_);
    check_reduction(outputs[i].scalar_type(), opts.reduceOp);
  }
  return start({OpType::REDUCE_SCATTER_TENSOR_COALESCED, "gpusock:reduce_scatter", inputs, {outputs}},
               {opts.timeout, opts.asyncOp},
               [outputs, inputs, op = opts.reduceOp](Collectives& all, std::uint64_t timeout_ns) mutable {
                 for (std::size_t i = 0; i < inputs.size(); ++i)
                   all.reduce_scatter(outputs[i], {inputs[i]}, op, timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  for (const Tensors* list : {&outputs, &inputs}) {
    TORCH_CHECK(list->size() == static_cast<std::size_t>(size_),
                "gpusock: all_to_all takes lists of one tensor for each of ", size_, " ranks, not of ", list->size());
    check_tensors("all_to_all", *list);
  }
  return start({OpType::ALLTOALL, "gpusock:all_to_all", inputs, {outputs}}, {opts.timeout, opts.asyncOp},
               [outputs, inputs](Collectives& all, std::uint64_t timeout_ns) mutable {
                 all.all_to_all(outputs, inputs, timeout_ns);
               });
}

ProcessGroup::WorkPtr ProcessGroup::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                                      std::vector<std::int64_t>& output_sizes,
                                                      std::vector<std::int64_t>& input_sizes,
                                                      const c10d::AllToAllOptions& opts) {
  check_tensor("all_to_all_single", output);
  check_tensor("all_to_all_single", input);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "gpusock: all_to_all_single: tensors of ",
              output.scalar_type(), " and ", input.scalar_type(), ": give both the same type");
  Tensors to = split_rows("all_to_all_single, output", output, output_sizes, size_);
  Tensors from = split_rows("all_to_all_single, input", input, input_sizes, size_);
  return start(
      {OpType::ALLTOALL_BASE, "gpusock:all_to_all", {input}, {{output}}}, {opts.timeout, opts.asyncOp},
      [to, from](Collectives& all, std::uint64_t timeout_ns) mutable { all.all_to_all(to, from, timeout_ns); });
}

ProcessGroup::WorkPtr ProcessGroup::barrier(const c10d::BarrierOptions& opts) {
  return start({OpType::BARRIER, "gpusock:barrier", {}, {}}, {opts.timeout, opts.asyncOp},
               [](Collectives& all, std::uint64_t timeout_ns) { all.barrier(timeout_ns); });
}

void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout = timeout_of(opts.timeout);
  TORCH_CHECK(timeout.count() > 0, "gpusock: Rank ", rank_, " timed out in monitoredBarrier after ", timeout.count(),
              " ms.");
  // Collective operations number their messages from 1 on: these numbers are apart from theirs.
  const MessageKey key{static_cast<std::uint32_t>(OpType::BARRIER) + 1, (std::uint64_t{1} << 63) + ++monitored_};
  const auto begin = [&](bool sends, int peer) {
    const auto ended = std::make_shared<std::promise<std::string>>();
    const auto done = [ended](const MessageResult& result) { ended->set_value(result.error); };
    if (sends) {
      messages_->send(peer, key, nullptr, 0, ns_of(timeout), done);
    } else {
      messages_->receive(peer, key, nullptr, 0, ns_of(timeout), done);
    }
    return ended->get_future();
  };
  if (rank_ != 0) {
    auto sent = begin(true, 0), received = begin(false, 0);
    for (auto* const ended : {&sent, &received}) {
      const std::string error = ended->get();
      TORCH_CHECK(
          error.empty(), "gpusock: Rank ", rank_,
          " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: ",
          error, of_group());
    }
    return;
  }
  std::vector<std::future<std::string>> received;
  for (int rank = 1; rank < size_; ++rank) received.push_back(begin(false, rank));
  std::string missing;
  int count = 0;
  for (int rank = 1; rank < size_; ++rank) {
    if (received[static_cast<std::size_t>(rank - 1)].get().empty()) continue;
    missing += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    if (!wait_all_ranks) break;
  }
  TORCH_CHECK(count == 0, "gpusock: [Rank 0]: ", count > 1 ? "Ranks " : "Rank ", missing,
              " failed to pass monitoredBarrier in ", timeout.count(), " ms", of_group());
  std::vector<std::future<std::string>> sent;
  for (int rank = 1; rank < size_; ++rank) sent.push_back(begin(true, rank));
  for (auto& ended : sent) {
    const std::string error = ended.get();
    TORCH_CHECK(error.empty(), "gpusock: monitoredBarrier: ", error, of_group());
  }
}

ProcessGroup::WorkPtr ProcessGroup::send(Tensors& tensors, int to, int tag) {
  check_one("send", "", tensors);
  TORCH_CHECK(to >= 0 && to < size_ && to != rank_, "gpusock: send: rank ", to, " is not another rank of this group");
  TORCH_CHECK(tag >= 0, "gpusock: send: the tag ", tag, ": take one that is not negative");
  const at::Tensor data = tensors[0].resolve_conj().resolve_neg().contiguous();
  auto task = c10::make_intrusive<Task>(
      rank_, TaskInfo{OpType::SEND, "gpusock:send", tensors, {tensors}, sequence_, options_->timeout});
  const auto id = messages_->send(to, {0, static_cast<std::uint64_t>(tag)}, data.data_ptr(), data.nbytes(),
                                  ns_of(options_->timeout), [this, task, data](const MessageResult& result) {
                                    if (result.error.empty()) {
                                      task->succeed();
                                    } else {
                                      task->fail("gpusock: " + result.error + of_group());
                                    }
                                  });
  task->set_abort([this, id] { messages_->cancel(id, "the send was aborted"); });
  return task;
}

ProcessGroup::WorkPtr ProcessGroup::recv(Tensors& tensors, int from, int tag) {
  TORCH_CHECK(from >= 0 && from < size_ && from != rank_, "gpusock: recv: rank ", from,
              " is not another rank of this group");
  return receive(tensors, from, tag);
}

ProcessGroup::WorkPtr ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, Messages::kAnyRank, tag);
}

ProcessGroup::WorkPtr ProcessGroup::receive(Tensors& tensors, int from, int tag) {
  check_one("recv", "", tensors);
  TORCH_CHECK(tag >= 0, "gpusock: recv: the tag ", tag, ": take one that is not negative");
  const at::Tensor tensor = tensors[0];
  const at::Tensor data = tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options());
  const bool any = from == Messages::kAnyRank;
  auto task = c10::make_intrusive<Task>(rank_, TaskInfo{any ? OpType::RECVANYSOURCE : OpType::RECV,
                                                        any ? "gpusock:recvAnySource" : "gpusock:recv",
                                                        tensors,
                                                        {tensors},
                                                        sequence_,
                                                        options_->timeout});
  const auto id = messages_->receive(from, {0, static_cast<std::uint64_t>(tag)}, data.data_ptr(), data.nbytes(),
                                     ns_of(options_->timeout), [this, task, tensor, data](const MessageResult& result) {
                                       if (!result.error.empty())
                                         return task->fail("gpusock: " + result.error + of_group());
                                       if (!tensor.is_same(data)) {
                                         const at::NoGradGuard no_gradients;
                                         const at::AutoDispatchBelowADInplaceOrView below_autograd;
                                         at::Tensor to = tensor;
                                         to.copy_(data);
                                       }
                                       task->set_source(result.peer);
                                       task->succeed();
                                     });
  task->set_abort([this, id] { messages_->cancel(id, "the receive was aborted"); });
  return task;
}

}  // namespace gpusock_torch
