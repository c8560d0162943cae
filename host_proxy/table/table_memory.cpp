#include "host_proxy/table/table_memory.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace gpusock::proxy {
namespace {

/// Lays out arrays one after the other, each on its own pages. It runs twice: to measure, and then to lay out.
class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}

  template <class T>
  T* array(std::size_t count) {
    T* memory = room<T>(count);
    for (std::size_t i = 0; memory != nullptr && i < count; ++i) new (memory + i) T();
    return memory;
  }

  /// An array whose entries are written before they are read.
  template <class T>
  T* room(std::size_t count) {
    constexpr std::size_t kPage = 4096;
    T* memory = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * sizeof(T) + kPage - 1) / kPage * kPage;
    return memory;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace

TableMemory::TableMemory(std::shared_ptr<Platform> platform, std::uint32_t sockets_max, bool has_device_side,
                         RingPlacement words)
    : platform_(std::move(platform)),
      sockets_max_(sockets_max),
      has_device_side_(has_device_side),
      slots_(sockets_max * (has_device_side ? 3 : 2)),
      free_capacity_(std::bit_ceil(sockets_max)) {
  const std::uint32_t sides = has_device_side ? 2 : 1;
  sets_.own = std::min(table::kSetsMax / sides, sockets_max);
  sets_.count = sets_.own * sides;
  sets_.capacity = std::min(table::kSetEntriesMax, std::bit_floor(sockets_max));
  const auto lay_out = [this](std::byte* base) {
    Layout layout(base);
    common_.tx_committed = layout.array<std::uint64_t>(slots_);
    common_.rx_consumed = layout.array<std::uint64_t>(slots_);
    common_.requests = layout.array<std::uint64_t>(slots_);
    common_.options = layout.array<std::uint64_t>(slots_);
    sets_.watches = layout.array<std::uint64_t>(slots_);
    common_.open_requests = layout.array<table::OpenRequest>(slots_);
    common_.setups = layout.array<table::SocketSetup>(slots_);
    sets_.taken = layout.array<std::uint64_t>(sets_.count);
    polled_at_ = layout.bytes();
    common_.proxy_words = layout.array<table::ProxyWords>(slots_);
    common_.accept_entries = layout.room<std::uint64_t>(std::size_t{table::kListenersMax} * table::kAcceptQueueEntries);
    common_.accept_published = layout.array<std::uint64_t>(table::kListenersMax);
    sets_.words = layout.array<table::PollSetWords>(sets_.count);
    sets_.entries = layout.room<table::SetEntry>(std::size_t{sets_.count} * sets_.capacity);
    for (FreeQueue& queue : free_) {
      queue.entries = layout.array<std::uint64_t>(free_capacity_);
      queue.published = layout.array<std::uint64_t>(1);
    }
    abort_ = layout.array<std::uint64_t>(1);
    return layout.bytes();
  };
  bytes_ = lay_out(nullptr);
  if (has_device_side && words != RingPlacement::host) open_window(words);
  memory_ = static_cast<std::byte*>(platform_->allocate_shared(bytes_));
  lay_out(memory_);
  common_.abort = abort_;
  common_.slots = slots_;
  common_.free_capacity = free_capacity_;
  sets_.polled = sets_.words;
}

void TableMemory::open_window(RingPlacement words) {
  try {
    window_ = platform_->make_window(bytes_ - polled_at_);
  } catch (const Error& error) {
    if (words != RingPlacement::automatic) throw;
    why_no_device_words_ = error.what();
  }
}

void TableMemory::cancel() {
  if (std::uint64_t* const bar_abort = bar_address(abort_)) ringbuf::bar_write(bar_abort, 1);  // all threads write 1
  cancel_copy();
}

void TableMemory::cancel_copy() {
  ringbuf::SystemAtomics::Ref<std::uint64_t> abort(*abort_);
  abort.store(1, ringbuf::kRelaxed);  // T5, pairs with T6
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    ringbuf::SystemAtomics::Ref<std::uint64_t> status(common_.proxy_words[slot].status);
    status.fetch_or(table::kStatusCanceled, ringbuf::kRelaxed);  // T5, pairs with T4
  }
}

TableMemory::~TableMemory() { platform_->free_shared(memory_, bytes_); }

table::TableView TableMemory::view(SideKind side) const {
  table::TableView view = common_;
  view.free_entries = free_[static_cast<int>(side)].entries;
  view.free_published = free_[static_cast<int>(side)].published;
  if (side == SideKind::host) return view;
  view.proxy_words = for_kernels(view.proxy_words);
  view.accept_entries = for_kernels(view.accept_entries);
  view.accept_published = for_kernels(view.accept_published);
  view.free_entries = for_kernels(view.free_entries);
  view.free_published = for_kernels(view.free_published);
  view.abort = for_kernels(view.abort);
  view.statuses_are_on_device = has_device_words();
  return view;
}

ringbuf::HandleProducer<> TableMemory::producer(std::uint64_t* entries, std::uint64_t capacity,
                                                std::uint64_t* published, SideKind consumers) const {
  if (consumers == SideKind::host) return {entries, capacity, published};
  return {entries, capacity, published, {bar_address(entries), bar_address(published)}};
}

ringbuf::HandleProducer<> TableMemory::free_queue(SideKind side) const {
  const FreeQueue& queue = free_[static_cast<int>(side)];
  return producer(queue.entries, free_capacity_, queue.published, side);
}

ringbuf::HandleProducer<> TableMemory::accept_queue(std::uint32_t which) const {
  return producer(common_.accept_entries + std::uint64_t{which} * table::kAcceptQueueEntries,
                  table::kAcceptQueueEntries, common_.accept_published + which, consumers_of(which));
}

table::PollSetView TableMemory::sets(SideKind side, table::CallerSet* callers) const {
  table::PollSetView view = sets_;
  view.callers = callers;
  view.side = static_cast<std::uint32_t>(side);
  view.first = view.side * sets_.own;
  if (side == SideKind::host) {
    view.bar_words = bar_address(view.words);
    view.bar_entries = bar_address(view.entries);
  } else {
    view.polled = for_kernels(view.words);
    view.entries = for_kernels(view.entries);
  }
  return view;
}

}  // namespace gpusock::proxy
