#include "host_proxy/memory/arenas.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/random.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace gpusock::proxy {

/// A context's entry in the list of members. The context writes it once, under the members' lock, before it makes or
/// takes a connection. A peer reads it after an offer or an answer of that context. A context that enters reads all
/// entries twice. The first time it has no lock, and may see half of an entry. Then no member has the id that it asks
/// for, and it asks again. Entries of other processes are copied before they are looked at: what was checked must be
/// what is used.
struct Arenas::Member {
  Id id{};
  std::array<char, 32> device{};  // Platform::name_on_host()
  std::array<char, 32> socket{};
  std::uint64_t arena_bytes = 0;
  std::uint64_t mapped_count = 0;
  std::array<Id, kMembersMax> mapped{};  // the members whose arenas it had mapped then

  Asked asked() const { return {std::string(socket.begin(), socket.end()), id}; }
};

namespace {

using namespace std::chrono_literals;

/// How long a context that enters waits for others that enter, and then for the members' answers.
constexpr auto kWait = 1s;
constexpr std::size_t kWordsPage = 4096;

template <std::size_t kSize>
std::array<char, kSize> as_array(const std::string& text) {
  std::array<char, kSize> array{};
  std::memcpy(array.data(), text.data(), std::min(text.size(), kSize));
  return array;
}

/// A name that another process wrote, in characters that can be logged and looked up.
std::string printable(const std::array<char, 32>& name) {
  std::string text;
  for (const char letter : name) {
    if (letter == 0) break;
    text += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return text;
}

constexpr const char* kNoDescriptorLeft =
    "this process had no descriptor left for it when this context was made: raise the limit on open files (ulimit -n)";

std::string why_apart(Arenas::Taken taken) {
  switch (taken) {
    case Arenas::Taken::kernels_ran:
      return "its kernels ran when this context was made: make all contexts first";
    case Arenas::Taken::no_answer:
      return "it did not answer when this context was made";
    case Arenas::Taken::not_asked:
      return kNoDescriptorLeft;
    default:
      return "it cannot map this GPU's memory (its log says why)";
  }
}

/// True if this is the name of one of gpusock's abstract Unix sockets. A process that writes to the file must not be
/// able to name any other socket.
bool is_socket_name(const std::array<char, 32>& name) {
  return std::all_of(name.begin(), name.end(),
                     [](char letter) { return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f'); });
}

}  // namespace

/// The context that has this lock is the only one that enters. The operating system ends the lock with its process.
class Arenas::MembersLock {
 public:
  explicit MembersLock(const File& file) : file_(file) {
    const auto until = std::chrono::steady_clock::now() + kWait;
    while (!file_.locks.try_lock(file_.first_lock, 1)) {
      if (std::chrono::steady_clock::now() >= until) {
        throw Error::with_cause(EBUSY,
                                "another process was making a context with the same host rings and did not go on");
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  ~MembersLock() { file_.locks.unlock(file_.first_lock, 1); }
  MembersLock(const MembersLock&) = delete;
  MembersLock& operator=(const MembersLock&) = delete;

 private:
  const File& file_;
};

std::size_t Arenas::table_bytes() { return kMembersMax * sizeof(Member); }

std::vector<Arenas::Listed> Arenas::list(const std::vector<std::byte>& table,
                                         const std::function<bool(std::size_t number)>& lives) {
  std::vector<Listed> all;
  for (std::size_t number = 0; (number + 1) * sizeof(Member) <= table.size(); ++number) {
    Member one;
    std::memcpy(&one, table.data() + number * sizeof one, sizeof one);
    if (one.id == kNobody || !lives(number)) continue;
    all.push_back({printable(one.device), one.arena_bytes, std::min<std::uint64_t>(one.mapped_count, kMembersMax)});
  }
  return all;
}

Arenas::Member& Arenas::member(std::size_t number) const {
  return *reinterpret_cast<Member*>(file_.members + number * sizeof(Member));
}

std::optional<Arenas::Member> Arenas::find_member(const Id& id) const {
  for (std::size_t number = 0; id != kNobody && number < kMembersMax; ++number) {
    if (member(number).id == id) return member(number);
  }
  return {};
}

/// True if this entry belongs to another context, which lives.
bool Arenas::is_listed(std::size_t number) const {
  return member(number).id != kNobody && file_.locks.is_locked_elsewhere(file_.first_lock + lock_of(number));
}

/// True if another context with this id is still there.
bool Arenas::lives(const Id& id) const {
  for (std::size_t number = 0; number < kMembersMax; ++number) {
    if (member(number).id == id && is_listed(number)) return true;
  }
  return false;
}

bool Arenas::is_on_this_gpu(const Member& other) const {
  return printable(other.device) == printable(as_array<32>(platform_->name_on_host()));
}

std::size_t Arenas::words_bytes(std::uint32_t slots) const {
  return (slots * sizeof(DeviceWords) + kWordsPage - 1) / kWordsPage * kWordsPage;
}

/// How many slots fit into an arena of this many bytes; 0 if there is not room for one.
std::uint32_t Arenas::slots_in(std::uint64_t bytes) const {
  const std::uint64_t most = std::min<std::uint64_t>(bytes / (2 * file_.room_bytes), file_.slots);
  for (auto slots = static_cast<std::uint32_t>(most); slots > 0; --slots) {
    if (arena_bytes(slots) <= bytes) return slots;
  }
  return 0;
}

/// How many slots this member's arena has; 0 if its entry is invalid.
std::uint32_t Arenas::slots_of(const Member& other) const {
  const std::uint32_t slots = slots_in(other.arena_bytes);
  return slots != 0 && arena_bytes(slots) == other.arena_bytes && is_socket_name(other.socket) ? slots : 0;
}

void Arenas::enter(const std::string& socket, std::size_t bytes_max, const Fetch& fetch) {
  try {
    make_own(bytes_max);
    map_others(fetch);  // most of the waiting is done without the lock
    const MembersLock lock(file_);
    const std::size_t number = take_number();
    try {
      map_others(fetch);
      publish(number, socket);
    } catch (...) {
      file_.locks.unlock(file_.first_lock + lock_of(number), 1);  // the next one may have the number
      throw;
    }
    log_info("GPU memory is shared with other processes: " + std::to_string(own_slots_) + " connections' rings, and " +
             std::to_string(mapped_.size()) + " other contexts' rings are mapped");
  } catch (const std::system_error& error) {
    why_none_ = error.what();
    log_info("rings between processes lie in host memory: " + why_none_);
    {
      const std::lock_guard lock(mutex_);
      mapped_.clear();
    }
    own_.reset();
  }
}

void Arenas::make_own(std::size_t bytes_max) {
  if (platform_->name_on_host().empty()) throw Error::with_cause(ENOTSUP, "this device has no name on this host");
  own_slots_ = slots_in(std::min<std::uint64_t>(bytes_max, arena_bytes(file_.slots)));
  if (own_slots_ == 0) throw Error::with_cause(ENOMEM, "no connection's rings fit into the GPU memory that is used");
  own_ = platform_->make_arena(arena_bytes(own_slots_));
  platform_->zero_device(own_->memory(), words_bytes(own_slots_));
}

/// Takes an entry that no living context has, and returns its number. From here on this context has the entry's lock.
std::size_t Arenas::take_number() const {
  for (std::size_t number = 0; number < kMembersMax; ++number) {
    if (!file_.locks.try_lock(file_.first_lock + lock_of(number), 1)) continue;
    member(number) = Member{};
    return number;
  }
  throw Error::with_cause(ENOSPC, "there are " + std::to_string(kMembersMax) + " contexts with the same host rings");
}

/// Maps the arenas of members that were not asked before. Leaves out a member that does not answer, and an arena that
/// this GPU does not reach or that is not what the list says.
void Arenas::map_others(const Fetch& fetch) {
  std::vector<Member> others;
  std::vector<Asked> asked;
  for (std::size_t number = 0; number < kMembersMax; ++number) {
    if (!is_listed(number)) continue;
    const Member other = member(number);
    if (slots_of(other) == 0 || std::find(asked_.begin(), asked_.end(), other.id) != asked_.end()) continue;
    asked_.push_back(other.id);
    asked.push_back(other.asked());
    others.push_back(other);
  }
  if (asked.empty()) return;
  auto fetched = fetch(asked, kWait);
  for (std::size_t i = 0; i < fetched.size(); ++i) {
    try {
      if (fetched[i].lacks_descriptor) throw Error::with_cause(EMFILE, kNoDescriptorLeft);
      if (!fetched[i].arena) throw Error::with_cause(ETIMEDOUT, "it did not answer");
      map(others[i], std::move(fetched[i].arena), false);
    } catch (const std::system_error& error) {
      note_apart(others[i], error.what());
    }
  }
}

void Arenas::map(const Member& other, Descriptor arena, bool has_ours) {
  std::shared_ptr<const DeviceArena> mapped = platform_->map_arena(std::move(arena), other.arena_bytes,
                                                                   printable(other.device));
  const std::lock_guard lock(mutex_);
  mapped_.push_back({other.asked(), std::move(mapped), slots_of(other), !is_on_this_gpu(other), has_ours});
}

void Arenas::note_apart(const Member& other, const std::string& why) {
  log_info("the GPU memory of another process is not used: " + why);
  const std::lock_guard lock(mutex_);
  std::erase_if(apart_, [&](const auto& each) { return each.first == other.id || !lives(each.first); });
  apart_.emplace_back(other.id, why);
}

/// Unmaps the arenas of members that have ended. Only this function unmaps arenas: elsewhere the proxy might drop the
/// last pointer to one, and it must not wait for kernels. An arena that a connection still uses is unmapped when a
/// later member gives its arena.
void Arenas::unmap_ended() {
  std::vector<Mapped> ended;
  {
    const std::lock_guard lock(mutex_);  // no thread gets another pointer meanwhile
    const auto first = std::stable_partition(mapped_.begin(), mapped_.end(), [&](const Mapped& each) {
      return each.arena.use_count() > 1 || lives(each.its.id);
    });
    ended.assign(std::make_move_iterator(first), std::make_move_iterator(mapped_.end()));
    mapped_.erase(first, mapped_.end());
  }
}

void Arenas::give_to_other_gpus(const Give& give) {
  std::vector<Asked> to;
  for (const Mapped& each : mapped_) {
    if (each.on_other_gpu) to.push_back(each.its);
  }
  if (to.empty()) return;
  const std::vector<Taken> answers = give(to, own_id_, descriptor(), kWait);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < to.size(); ++i) {
    Mapped& its = *std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapped& m) { return m.its.id == to[i].id; });
    its.has_ours = answers[i] == Taken::mapped;
    if (!its.has_ours) apart_.emplace_back(to[i].id, why_apart(answers[i]));
  }
}

Arenas::Taken Arenas::take(const Id& giver, Descriptor arena) noexcept {
  try {
    const auto its = find_member(giver);
    const bool expected = own_id_ != kNobody && its && slots_of(*its) != 0 && !is_on_this_gpu(*its);
    return expected ? take_of(*its, std::move(arena)) : Taken::refused;
  } catch (const std::exception&) {
    return Taken::refused;
  }
}

Arenas::Taken Arenas::take_of(const Member& giver, Descriptor arena) {
  if (find(giver.id, 0)) return Taken::mapped;
  try {
    const bool quiet = platform_->while_quiet([&] {
      unmap_ended();
      map(giver, std::move(arena), true);
    });
    if (quiet) return Taken::mapped;
    note_apart(giver, "kernels of this process ran when that context was made: make all contexts first");
    return Taken::kernels_ran;
  } catch (const std::system_error& error) {
    note_apart(giver, error.what());
    return Taken::refused;
  }
}

void Arenas::publish(std::size_t number, const std::string& socket) {
  Member& own = member(number);
  own.device = as_array<32>(platform_->name_on_host());
  own.socket = as_array<32>(socket);
  own.arena_bytes = arena_bytes(own_slots_);
  own.mapped_count = mapped_.size();
  for (std::size_t i = 0; i < mapped_.size(); ++i) own.mapped[i] = mapped_[i].its.id;
  own.id = own_id_ = random_bytes<16>();
}

Arenas::SlotMemory Arenas::slot_memory_in(const DeviceArena& arena, std::uint32_t slots, std::uint32_t slot) const {
  return {arena.memory() + words_bytes(slots) + 2 * file_.room_bytes * slot,
          reinterpret_cast<DeviceWords*>(arena.memory()) + slot};
}

std::optional<Arenas::SlotMemory> Arenas::find(const Id& id, std::uint32_t slot) const {
  if (id == kNobody) return {};
  if (id == own_id_) return slot < own_slots_ ? std::optional(slot_memory_in(*own_, own_slots_, slot)) : std::nullopt;
  const std::lock_guard lock(mutex_);
  const Mapped* const its = find_mapped(id);
  if (its == nullptr || slot >= its->slots) return {};
  SlotMemory found = slot_memory_in(*its->arena, its->slots, slot);
  found.arena = its->arena;
  return found;
}

/// Returns nullptr if there is none. The caller has the mutex.
const Arenas::Mapped* Arenas::find_mapped(const Id& id) const {
  const auto found = std::find_if(mapped_.begin(), mapped_.end(),
                                  [&](const Mapped& each) { return each.its.id == id; });
  return found == mapped_.end() ? nullptr : &*found;
}

std::optional<Arenas::Meeting> Arenas::meeting_with(const Id& id, std::uint32_t slot) const {
  if (own_id_ == kNobody || id == own_id_) return {};
  {
    const std::lock_guard lock(mutex_);
    if (const Mapped* its = find_mapped(id)) {
      if (slot >= its->slots) return {};
      if (!its->on_other_gpu) return Meeting{id, id};
      return its->has_ours && slot < own_slots_ ? std::optional(Meeting{own_id_, id}) : std::nullopt;
    }
  }
  const auto peer = find_member(id);
  if (!peer || !is_on_this_gpu(*peer) || slot >= own_slots_) return {};
  const auto* const end = peer->mapped.data() + std::min<std::uint64_t>(peer->mapped_count, kMembersMax);
  const bool has_ours = std::find(peer->mapped.data(), end, own_id_) != end;
  return has_ours ? std::optional(Meeting{own_id_, own_id_}) : std::nullopt;
}

std::string Arenas::why_not(const Id& id, std::uint32_t slot) const {
  if (own_id_ == kNobody) return why_none_;
  const std::string peer = "the peer is another process, ";
  const auto entry = find_member(id);
  if (!entry) {
    return peer +
           "which shares no GPU memory for this connection: a host thread's, GPUSOCK_RING=host there, or see its log";
  }
  if (!is_on_this_gpu(*entry) && !meets_some(id)) return peer + "on another GPU: " + why_apart_from(id);
  if (slot >= slots_in(entry->arena_bytes) || slot >= own_slots_) {
    return peer + "and the GPU memory that is shared has no room for more connections";
  }
  return peer + "and neither has mapped the other's memory";
}

/// True if this context and that member use each other's arenas, in some slots.
bool Arenas::meets_some(const Id& id) const {
  const std::lock_guard lock(mutex_);
  const Mapped* const its = find_mapped(id);
  return its != nullptr && its->has_ours;
}

std::string Arenas::why_apart_from(const Id& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(apart_.begin(), apart_.end(), [&](const auto& each) { return each.first == id; });
  return found != apart_.end() ? found->second : "it has given no memory to this process (its log says why)";
}

}  // namespace gpusock::proxy
