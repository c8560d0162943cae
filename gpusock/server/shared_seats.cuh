#pragma once
/// @file How the groups of a server use each other's seats.

#include "gpusock/server/seats.cuh"

namespace gpusock {
namespace detail {

/// Values of the words of a server's seats, and results of its functions.
struct ServerWords {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::uint64_t kEnded = ~std::uint64_t{0};  ///< in Seats::set: the group has ended with the context
  static constexpr std::uint64_t kFailed = kEnded - 1;        ///< in Seats::set: the group has ended with an error
  static constexpr std::uint64_t kClosed = kFailed - 1;       ///< in Seats::set: the listener is closed
  static constexpr int kDone = 1;                             ///< result: no client is left, and none will come
  static constexpr int kClosing = 2;                          ///< result: the listener is closed
  static constexpr int kTurnsMax = 16;  ///< requests of one client, or new clients, before the others have their turn

  GPUSOCK_FN static std::uint64_t later(std::uint64_t from_ns, std::uint64_t by_ns) {
    return by_ns > kNever - from_ns ? kNever : from_ns + by_ns;
  }
  GPUSOCK_FN static bool is_open(std::uint64_t set) { return set != 0 && set < kClosed; }
  /// Relaxed: the seat's other words are the group's own, or hints. Before the group reads what belongs to a client, it
  /// has got an event of that client, which comes after the watch() of the group that accepted the client.
  GPUSOCK_FN static std::uint64_t load(std::uint64_t& word) { return DeviceRef(word).load(ringbuf::kRelaxed); }
};

/// The seats of all groups, as one group's leader sees them. The atomic word Seat::client says which socket has a seat:
/// the group that accepts fills it, and the group that replaces a client in it closes that client. All that is not
/// atomic in a group's seats belongs to the holder of Seats::lock: that group, except while it waits for events, or a
/// group that writes to its clients in tell_all(). A server of one group needs no lock.
template <class Memory, class Departed>
class SharedSeats : public ServerWords {
 public:
  using ClientState = typename Memory::ClientState;
  using OneSeat = std::remove_reference_t<decltype(std::declval<Memory&>().seats[0])>;

  GPUSOCK_FN SharedSeats(const Net& net, Memory* all, unsigned count, unsigned own, Departed& departed)
      : net_(net), all_(all), count_(count), number_(own), departed_(departed) {}

  GPUSOCK_FN Memory& own() const { return all_[number_]; }
  GPUSOCK_FN bool accepts() const { return number_ == 0; }  ///< true for group 0
  GPUSOCK_FN unsigned groups() const { return count_; }
  GPUSOCK_FN unsigned number() const { return number_; }
  GPUSOCK_FN Memory& of(unsigned group) const { return all_[group]; }
  GPUSOCK_FN OneSeat& seat_of(std::uint64_t seat) const { return all_[seat % count_].seats[seat / count_]; }
  GPUSOCK_FN std::uint64_t set_word_of(std::uint64_t seat) const { return load(all_[seat % count_].set); }
  GPUSOCK_FN bool taken() const { return taken_; }

  /// Takes this group's seats, and publishes its poll set. Returns -EBUSY, -EALREADY if another group has or had them.
  GPUSOCK_FN_APART int take(PollSet set) {
    hold(number_);  // so that a tell_all() that comes after a client got one of these seats finds `serving` set
    const std::uint64_t word = static_cast<std::uint64_t>(set) + 1;
    std::uint64_t before = 0;  // the exchange releases the opened set; Accepting::admit() acquires it
    taken_ = DeviceRef(own().set).compare_exchange_strong(before, word, ringbuf::kAcqRel);
    if (taken_) own().serving = word;
    let_go();
    return taken_ ? 0 : is_open(before) ? -EBUSY : -EALREADY;
  }

  /// Called before this group ends: from then on other groups neither write to its clients nor use its seats.
  GPUSOCK_FN void stop_serving() {
    hold(number_);
    own().serving = 0;
    let_go();
  }

  /// Waits until this group alone uses the seats of `group`. This group gives back the seats that it holds as soon as
  /// it has drawn its number for the others: so the messages of two groups reach all groups in the same order. A holder
  /// never waits for another holder, nor for a client: it answers a request, or writes to clients.
  GPUSOCK_FN_APART void hold(unsigned group) {
    if (count_ == 1 || held_ == group) return;
    TicketLock& lock = all_[group].lock;
    TicketLock::Ticket ticket = held_ == kNone ? lock.draw() : all_[held_].lock.go_on_to(lock, number_drawn_);
    Wait wait(NetAccess::side(net_), Deadline::never(), false);
    while (!ticket.holds) {
      wait.turn();
      ticket.holds = lock.holds(ticket.number);
    }
    held_ = group;
    number_drawn_ = ticket.number;
  }

  /// Gives back the seats that this group holds.
  GPUSOCK_FN void let_go() {
    if (held_ == kNone) return;
    all_[held_].lock.give_back(number_drawn_);
    held_ = kNone;
  }

  /// Lets other groups that wait for this group's seats use them first. This group holds its seats before and after.
  GPUSOCK_FN void give_way() {
    if (!own().lock.is_awaited(number_drawn_)) return;
    let_go();
    hold(number_);
  }

  /// Returns the poll set of a group whose seats this group holds, or -1 if that group does not serve.
  GPUSOCK_FN PollSet serving_set_of(unsigned group) const { return static_cast<PollSet>(all_[group].serving) - 1; }

  /// For a group other than 0: tells group 0 that there are more seats. This group and group 0 both change group 0's
  /// word, so the one that comes second knows of the first.
  GPUSOCK_FN int join() const {
    const std::uint64_t accepting = DeviceRef(all_[0].set).fetch_add(0, ringbuf::kAcqRel);
    wake_accepting(accepting);
    return accepting == kFailed ? -ESHUTDOWN : accepting == kClosed ? kDone : 0;
  }

  /// Publishes how this group ended. join() also changes group 0's word: so a group that begins later finds group 0's
  /// end there, and groups that began before are woken. If another group has taken these seats, their word stays.
  GPUSOCK_FN_APART void tell_end(std::uint64_t how) const {
    std::uint64_t unused = 0;
    const bool told = taken_ ? DeviceRef(own().set).exchange(how, ringbuf::kAcqRel) != 0
                             : DeviceRef(own().set).compare_exchange_strong(unused, how, ringbuf::kAcqRel);
    if (told && accepts() && how == kFailed) wake_others();
  }

  /// For group 0: tells the other groups that the listener is closed.
  GPUSOCK_FN void tell_closed() const {
    DeviceRef(own().set).exchange(kClosed, ringbuf::kAcqRel);  // as in tell_end()
    wake_others();
  }

  /// For a group other than 0: returns 0 while group 0 accepts, or may still begin in time; else kClosing or an error.
  GPUSOCK_FN int look_at_accepting(bool in_time) const {
    const std::uint64_t set = DeviceRef(all_[0].set).load(ringbuf::kAcquire);  // acquires the last clients it seated
    if (set == kClosed) return kClosing;
    return set == kFailed ? -ESHUTDOWN : set == 0 && !in_time ? -ETIMEDOUT : 0;
  }

  /// Returns a group's poll set, or -1 if the group has not begun or has ended.
  GPUSOCK_FN PollSet open_set_of(std::uint64_t group) const {
    const std::uint64_t set = DeviceRef(all_[group].set).load(ringbuf::kAcquire);
    return is_open(set) ? static_cast<PollSet>(set - 1) : -1;
  }

  GPUSOCK_FN void wake_accepting(std::uint64_t set) const {
    if (is_open(set)) net_.wake(this_thread(), static_cast<PollSet>(set - 1));
  }

  GPUSOCK_FN void wake_others() const {
    for (unsigned i = 1; i < count_; ++i) {
      if (const PollSet other = open_set_of(i); other >= 0) net_.wake(this_thread(), other);
    }
  }

  /// Frees a client's seat and closes the client, unless another client has the seat already.
  GPUSOCK_FN_APART void free_seat(OneSeat& seat, Socket client) const {
    std::uint64_t expected = static_cast<std::uint64_t>(client) + 1;
    if (!DeviceRef(seat.client).compare_exchange_strong(expected, 0, ringbuf::kRelaxed)) return;
    net_.close(this_thread(), client);
    if (!accepts()) wake_accepting(DeviceRef(all_[0].set).load(ringbuf::kAcquire));
  }

  /// Calls `departed` for the client whose state is in the seat, unless that was done before.
  GPUSOCK_FN void depart(OneSeat& seat, Leave why) const {
    if (!seat.present) return;
    seat.present = false;
    departed_(Departure<ClientState>{why, seat.state, seat.served, static_cast<unsigned>(&seat - own().seats)});
  }

  GPUSOCK_FN bool was_displaced(OneSeat& seat) const {
    return seat.present && load(seat.client) != static_cast<std::uint64_t>(seat.served) + 1;
  }

 private:
  static constexpr unsigned kNone = ~0u;

  const Net& net_;
  Memory* const all_;
  const unsigned count_;
  const unsigned number_;
  Departed& departed_;
  bool taken_ = false;
  unsigned held_ = kNone;           // the group whose seats this one holds
  std::uint32_t number_drawn_ = 0;  // its number in their lock
};

}  // namespace detail
}  // namespace gpusock
