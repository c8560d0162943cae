#include "gpusock/context/context_impl.hpp"
#include "gpusock/context/make_links.hpp"
#include "gpusock/context/options.hpp"
#include "gpusock/owned_socket.cuh"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/base/variables.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <set>
#include <thread>

namespace gpusock {
namespace {

/// How long a context that ends goes on delivering what was sent.
constexpr std::uint64_t kDrainNs = 2'000'000'000;
/// A caller that has waited for this long on a link that needs no steps makes them, if the proxy's thread keeps away.
/// Sooner they would slow round trips down.
constexpr std::uint64_t kDirectAssistNs = 20'000;

Options checked(const Options& options) {
  detail::check(options);
  proxy::warn_of_unknown_variables();
  return options;
}

/// Returns the processors that the proxy's thread may run on; empty: any.
std::vector<int> processors_of(const Options& options, const proxy::Platform& platform) {
  if (options.processors == "any") return {};
  return options.processors == "near" ? platform.near_processors() : proxy::parse_processors(options.processors);
}

proxy::ProxyPolicy policy_of(const Options& options, const proxy::Platform& platform) {
  return proxy::proxy_policy(platform.callers_can_wake(), std::thread::hardware_concurrency(), options.assist,
                             options.spin);
}

/// Hooks of callers that notify no proxy.
detail::Hooks hooks_without_proxy() {
  detail::Hooks hooks{};
  hooks.ring_doorbell = [](void*, std::uint32_t) {};
  hooks.ring_for_credit = [](void*) {};
  hooks.relax = [](void*, std::uint64_t, std::uint64_t, bool) {};
  return hooks;
}

Context::Impl& impl_of(void* self) { return *static_cast<Context::Impl*>(self); }

/// Side::status_turns if a look crosses the bus, which takes about a microsecond: callers see the end of a stream or an
/// error a few microseconds later, but every byte one look earlier.
constexpr std::uint32_t kStatusTurns = 4;
/// Words of a caller side besides its slots: the position in the queue of free sockets, and one for each accept queue.
constexpr std::size_t kTakenWords = 1 + table::kListenersMax;

/// The contexts that live in this process, and those that it inherited from its parent.
class Contexts {
 public:
  static Contexts& instance() {
    static Contexts* const all = new Contexts;  // never destroyed: static contexts may end at any time
    return *all;
  }
  void add(Context::Impl& context) {
    const std::lock_guard lock(mutex_);
    contexts_.insert(&context);
  }
  void remove(Context::Impl& context) {
    const std::lock_guard lock(mutex_);
    contexts_.erase(&context);
  }

 private:
  Contexts() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     for (Context::Impl* context : instance().contexts_) context->leave_to_parent();
                     instance().mutex_.unlock();
                   });
  }

  std::mutex mutex_;
  std::set<Context::Impl*> contexts_;
};

/// The largest rings that a connection can have. Host rings may be larger than the context's own.
std::uint64_t ring_bytes_max(const proxy::SegmentPool& segments) {
  const proxy::HostRings* const shared = segments.host_rings();
  return std::max(segments.ring_bytes_max(), shared != nullptr ? shared->room_bytes() : 0);
}

}  // namespace

Context::Impl::Impl(const Options& chosen)
    : options(checked(chosen)),
      held(detail::make_device_holdings(options)),
      device(*held->device),
      memory(held->memory),
      table(held->table),
      links(detail::make_links(options, network, held->segments)),
      resources{proxy::pointers_to(links), held->copies.get(), detail::ring_sizes(options, *held->platform).own,
                options.secret, ring_bytes_max(held->segments)},
      proxy(table, network, resources, {options.handshake_timeout_ns}),
      host_slots(table.slots()),
      host_taken(kTakenWords),
      adaptations(table.slots()),
      host_callers_sets(table.sets()),
      host_sets(table.sets(proxy::SideKind::host, host_callers_sets.data())),
      observer(options.observe, table.slots()),
      engine(proxy, network,
             {policy_of(options, *held->platform).assists, held->platform->callers_can_wake(),
              processors_of(options, *held->platform), &observer,
              policy_of(options, *held->platform).spins ? &memory.kernels_may_run() : nullptr}) {
  make_net();
  Contexts::instance().add(*this);
}

Context::Impl::~Impl() {
  Contexts::instance().remove(*this);
  if (own_stream_ != nullptr) {
    own_stream_->finish();
    memory.remove(*own_stream_);
    own_stream_.reset();
  }
  engine.drain(kDrainNs);
}

void Context::Impl::make_net() {
  hooks.self = this;
  hooks.ring_doorbell = [](void* self, std::uint32_t slot) { impl_of(self).engine.ring_doorbell(slot); };
  hooks.ring_for_credit = [](void* self) { impl_of(self).engine.ring_for_credit(); };
  hooks.adaptations = adaptations.data();
  // Set only if callers assist: with processors to spare, the proxy's thread moves bytes while the caller goes on.
  if (policy_of(options, *held->platform).assists) {
    hooks.move_past_ring = [](void* self, std::uint32_t slot, const detail::PastRing& wanted) {
      return impl_of(self).engine.move_past_ring(slot, wanted);
    };
  }
  hooks.relax = [](void* self, std::uint64_t now_ns, std::uint64_t waited_ns, bool proxy_matters) {
    Impl& impl = impl_of(self);
    // Bytes come by p2p without steps, but the end of a stream does not. Steps that callers made before, as to connect,
    // may keep the proxy's thread away (Engine::park).
    if (proxy_matters || (waited_ns >= kDirectAssistNs && impl.engine.keeps_away(now_ns)))
      impl.engine.assist(now_ns, waited_ns);
    if (proxy::News* const news = proxy_matters ? impl.engine.news() : nullptr) {
      impl.device.relax_until(*news, waited_ns);
    } else {
      impl.device.relax(waited_ns);
    }
  };
  hooks.note = device.note_unfinished();
  hooks.keep = device.keep_unfinished();
  hooks.drop = device.drop_unfinished();
  hooks.end = [](void* self, std::int32_t handle, int kind) noexcept {
    detail::end_unfinished(impl_of(self).host_side, static_cast<detail::Unfinished>(kind), handle);
  };
  hooks.running_block = [](void* self) { return impl_of(self).device.running_block(); };
  // Hooks of kernels that run on a CPU but are a caller side of their own, as on a GPU (whose kernels use no hooks).
  kernel_hooks = hooks_without_proxy();
  kernel_hooks.self = this;
  kernel_hooks.adaptations = adaptations.data();
  kernel_hooks.relax = [](void* self, std::uint64_t, std::uint64_t waited_ns, bool) {
    impl_of(self).device.relax(waited_ns);
  };
  kernel_hooks.running_block = hooks.running_block;
  host_side = {table.view(proxy::SideKind::host),
               host_slots.data(),
               host_taken.data(),
               host_taken.data() + 1,
               &host_sets,
               &hooks,
               options.timeout_ns};
  detail::Side kernels = host_side;
  if (device.has_own_side()) {
    const std::size_t slot_bytes = table.slots() * sizeof(table::CallerSlot);
    const std::size_t set_bytes = table.sets() * sizeof(table::CallerSet);
    const std::size_t view_bytes = sizeof(table::CallerSet);  // more than the view, to align what follows
    held->device_state = device.allocate(slot_bytes + set_bytes + view_bytes + kTakenWords * sizeof(std::uint64_t));
    auto* sets = static_cast<std::byte*>(held->device_state) + slot_bytes;
    auto* set_view = sets + set_bytes;
    auto* taken = reinterpret_cast<std::uint64_t*>(set_view + view_bytes);
    const auto view = table.sets(proxy::SideKind::device, reinterpret_cast<table::CallerSet*>(sets));
    static_assert(sizeof(table::PollSetView) <= sizeof(table::CallerSet));
    device.copy_in(set_view, &view, sizeof view);
    kernels = {table.view(proxy::SideKind::device),
               static_cast<table::CallerSlot*>(held->device_state),
               taken,
               taken + 1,
               reinterpret_cast<const table::PollSetView*>(set_view),
               &kernel_hooks,
               options.timeout_ns};
  }
  if (device.has_own_side()) kernels.status_turns = kStatusTurns;
  net = detail::NetAccess::make(kernels, host_side);
}

void Context::Impl::require_own_process() const {
  if (in_own_process()) return;
  throw Error(ECANCELED, "a context of the process that forked this one; make another context here, or exec");
}

void Context::Impl::leave_to_parent() noexcept {
  hooks = hooks_without_proxy();
  if (proxy::HostRings* rings = held->segments.host_rings()) rings->leave_to_parent();
  if (!device.is_copied_by_fork()) return;
  table.cancel_copy();
  for (table::CallerSlot& slot : host_slots) {
    if (slot.request_lock != 0) slot.request_lock = 0;  // its holder was a thread of the parent
  }
  for (table::CallerSet& set : host_callers_sets) {
    if (set.lock != 0) set.lock = 0;
  }
}

detail::DeviceStream& Context::Impl::own_stream() {
  std::call_once(own_stream_once_, [this] {
    auto stream = device.make_stream();
    memory.add(*stream);
    own_stream_ = std::move(stream);
  });
  return *own_stream_;
}

void Context::Impl::synchronize() {
  begin_call();
  for (detail::DeviceStream* stream : memory.streams()) stream->synchronize();
  memory.free_unused();
  detail::free_ended_holdings();
}

/// Frees what was made, and only then makes the error, which needs memory itself.
Context::Context(const Options& options) try : impl_(std::make_unique<Impl>(options)) {
} catch (const std::bad_alloc&) {
  throw Error(ENOMEM,
              "making a context; raise the limits on memory (ulimit -v, -d), or lower Options::connections_max, "
              "sockets_max or ring_bytes");
}

Context::~Context() {
  if (impl_->in_own_process()) {
    cancel();
  } else {
    (void)impl_.release();  // all that this would end belongs to the parent
  }
}

Net Context::net() const { return impl_->net; }

void Context::synchronize() { impl_->synchronize(); }

void Context::cancel() noexcept {
  if (!impl_->in_own_process()) return;
  impl_->table.cancel();
  impl_->engine.tell_news();
}

const Options& Context::options() const { return impl_->options; }

Context::Stats Context::stats() const {
  impl_->require_own_process();
  const proxy::ProxyStats proxy = impl_->engine.stats();
  Stats stats;
  stats.host_api_calls = impl_->host_api_calls.load(std::memory_order_relaxed);
  stats.proxy_steps = proxy.steps;
  stats.proxy_wakeups = impl_->engine.wakeups();
  stats.connections = proxy.connections;
  stats.device_bytes = impl_->memory.device_bytes();
  for (int link = 0; link < kLinkKinds; ++link) {
    const proxy::Link::Traffic& traffic = proxy.of(static_cast<LinkKind>(link));
    stats.traffic[link] = {traffic.tx_bytes, traffic.rx_bytes};
  }
  return stats;
}

std::vector<SocketInfo> Context::sockets() const {
  impl_->require_own_process();
  return impl_->engine.sockets();
}

Stream::Impl::Impl(Context& owner) : context(owner) {
  context.impl().require_own_process();
  native = context.impl().device.make_stream();
  context.impl().memory.add(*native);
}

Stream::Stream(Context& context) : impl_(std::make_unique<Impl>(context)) {}

Stream::~Stream() {
  if (!impl_->context.impl().in_own_process()) {
    (void)impl_->native.release();  // its launches run in the parent
    return;
  }
  impl_->native->finish();  // before its memory counts as unused
  impl_->context.impl().memory.remove(*impl_->native);
}

void Stream::synchronize() {
  impl_->context.impl().begin_call();
  impl_->native->synchronize();
  impl_->context.impl().memory.free_unused();
  detail::free_ended_holdings();
}

bool Stream::idle() const {
  impl_->context.impl().require_own_process();
  return impl_->native->idle();
}

namespace detail {

void* allocate_device(Context& context, std::size_t bytes) {
  context.impl().begin_call();
  return context.impl().memory.allocate(KernelMemory::Kind::device, bytes);
}

void free_device(Context& context, void* memory) noexcept {
  if (context.impl().in_own_process()) context.impl().memory.free(memory);
}

void copy_to_device(Context& context, void* to, const void* from, std::size_t bytes) {
  context.impl().begin_call();
  if (bytes != 0) context.impl().device.copy_in(to, from, bytes);  // an empty span may have no address
}

void copy_from_device(Context& context, void* to, const void* from, std::size_t bytes) {
  context.impl().begin_call();
  if (bytes != 0) context.impl().device.copy_out(to, from, bytes);
}

void* allocate_mapped(Context& context, std::size_t bytes) {
  context.impl().begin_call();
  return context.impl().memory.allocate(KernelMemory::Kind::mapped, bytes);
}

void free_mapped(Context& context, void* memory) noexcept {
  if (context.impl().in_own_process()) context.impl().memory.free(memory);
}

DeviceStream& chosen_stream(Context& context, Stream* stream) {
  return stream != nullptr ? *stream->impl().native : context.impl().own_stream();
}

void note_launch(Context& context, Stream* stream) noexcept {
  context.impl().memory.note_launch(chosen_stream(context, stream));
}

}  // namespace detail
}  // namespace gpusock
