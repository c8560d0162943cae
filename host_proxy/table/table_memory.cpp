#include "host_proxy/table/table_memory.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace gpusock::proxy {
namespace {

/// Lays arrays out one after the other, each on its own pages; run twice: to measure, and to place.
class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}

  template <class T>
  T* array(std::size_t count) {
    T* place = room<T>(count);
    for (std::size_t i = 0; place != nullptr && i < count; ++i) new (place + i) T();
    return place;
  }

  /// An array whose entries are written before they are read.
  template <class T>
  T* room(std::size_t count) {
    constexpr std::size_t kPage = 4096;
    T* place = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * sizeof(T) + kPage - 1) / kPage * kPage;
    return place;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::size_t bytes_ = 0;
};

}  // namespace

TableMemory::TableMemory(std::shared_ptr<Platform> platform, std::uint32_t sockets_max, bool has_device_side)
    : platform_(std::move(platform)),
      sockets_max_(sockets_max),
      has_device_side_(has_device_side),
      slots_(sockets_max * (has_device_side ? 3 : 2)),
      free_capacity_(std::bit_ceil(sockets_max)) {
  const std::uint32_t sides = has_device_side ? 2 : 1;
  sets_.own = std::min(table::kSetsMax / sides, sockets_max);
  sets_.count = sets_.own * sides;
  sets_.capacity = std::min(table::kSetEntriesMax, std::bit_floor(sockets_max));
  const auto place = [this](std::byte* base) {
    Layout layout(base);
    common_.tx_committed = layout.array<std::uint64_t>(slots_);
    common_.rx_consumed = layout.array<std::uint64_t>(slots_);
    common_.requests = layout.array<std::uint64_t>(slots_);
    common_.options = layout.array<std::uint64_t>(slots_);
    sets_.watches = layout.array<std::uint64_t>(slots_);
    common_.open_requests = layout.array<table::OpenRequest>(slots_);
    common_.proxy_words = layout.array<table::ProxyWords>(slots_);
    common_.setups = layout.array<table::SocketSetup>(slots_);
    common_.accept_entries = layout.room<std::uint64_t>(std::size_t{table::kListenersMax} * table::kAcceptQueueEntries);
    common_.accept_published = layout.array<std::uint64_t>(table::kListenersMax);
    sets_.words = layout.array<table::PollSetWords>(sets_.count);
    sets_.taken = layout.array<std::uint64_t>(sets_.count);
    sets_.entries = layout.room<table::SetEntry>(std::size_t{sets_.count} * sets_.capacity);
    for (FreeQueue& queue : free_) {
      queue.entries = layout.array<std::uint64_t>(free_capacity_);
      queue.published = layout.array<std::uint64_t>(1);
    }
    abort_ = layout.array<std::uint64_t>(1);
    return layout.bytes();
  };
  bytes_ = place(nullptr);
  memory_ = static_cast<std::byte*>(platform_->allocate_shared(bytes_));
  place(memory_);
  common_.abort = abort_;
  common_.slots = slots_;
  common_.free_capacity = free_capacity_;
}

void TableMemory::cancel() {
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
  return view;
}

table::PollSetView TableMemory::sets(SideKind side, table::CallerSet* callers) const {
  table::PollSetView view = sets_;
  view.callers = callers;
  view.side = static_cast<std::uint32_t>(side);
  view.first = view.side * sets_.own;
  return view;
}

}  // namespace gpusock::proxy
