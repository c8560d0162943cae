#pragma once
/// @file Rings in a GPU's memory for kernels of several processes. Each context that uses host rings (host_rings.hpp)
/// has an arena of its GPU's memory. While a context is made, it maps the arenas of the contexts that came before it,
/// on the same GPU and on GPUs whose memory it reaches. So two contexts on one GPU both reach the arena of the earlier
/// one. To an earlier context on another GPU, the later one also gives its own arena. The earlier one maps it if none
/// of its kernels run: then both reach both arenas. Why: docs/decisions/024-rings-between-processes.md and
/// 032-rings-between-processes-on-two-gpus.md.

#include "host_proxy/memory/device_arena.hpp"
#include "host_proxy/memory/named_file.hpp"
#include "host_proxy/memory/platform.hpp"
#include "host_proxy/memory/segment_header.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// One context's part: its own arena, the arenas that it has mapped, and its entry in the list of members, which is in
/// the host rings' file. A slot of the file is one slot in every arena, so its locks say which contexts use that slot.
class Arenas {
 public:
  /// How many contexts may be members at the same time. Further contexts share only host memory.
  static constexpr std::size_t kMembersMax = 64;

  using Id = std::array<std::uint8_t, 16>;
  static constexpr Id kNobody{};

  /// The host rings' file, as far as arenas need it.
  struct File {
    const NamedFile& locks;
    std::byte* members;  ///< table_bytes() of it, zeroed when the file was made
    std::size_t first_lock;
    std::uint32_t slots;
    std::uint64_t room_bytes;  ///< of each ring
  };

  /// A member, and the abstract Unix socket where it gives its arena's descriptor to processes that say its id.
  struct Asked {
    std::string socket;
    Id id{};
  };
  /// An arena's descriptor; none if the member does not answer, or this process has no descriptor left for it.
  struct Fetched {
    Descriptor arena;
    bool lacks_descriptor = false;
  };
  /// Gets the descriptors of all these members; none of a member that does not answer in this time.
  using Fetch = std::function<std::vector<Fetched>(const std::vector<Asked>& asked, std::chrono::nanoseconds wait)>;

  /// What a member on another GPU did with an arena that was given to it. The values go over the wire, except the last:
  /// then nothing was given, because this process had no descriptor left for it.
  enum class Taken : std::uint8_t { no_answer, mapped, kernels_ran, refused, not_asked };
  /// Gives a descriptor, with the giver's id, to all these members. Returns what each of them answered in this time.
  using Give = std::function<std::vector<Taken>(const std::vector<Asked>& to, const Id& giver, int descriptor,
                                                std::chrono::nanoseconds wait)>;

  Arenas(std::shared_ptr<Platform> platform, const File& file) : platform_(std::move(platform)), file_(file) {}

  static std::size_t table_bytes();
  static std::size_t locks() { return 1 + kMembersMax; }
  /// Which of these locks belongs to a member's entry. The member has the lock as long as it lives.
  static constexpr std::size_t lock_of(std::size_t number) { return 1 + number; }

  /// A member, for people to see.
  struct Listed {
    std::string device;             ///< Platform::name_on_host()
    std::uint64_t arena_bytes = 0;  ///< bytes of its GPU's memory
    std::uint64_t mapped = 0;       ///< arenas of others that it mapped when it was made
  };
  /// The living members in a copied table.
  static std::vector<Listed> list(const std::vector<std::byte>& table,
                                  const std::function<bool(std::size_t number)>& lives);

  /// Makes this context a member, with an arena of at most `bytes_max` bytes that others can get at `socket` from now
  /// on. Call it once, before the context's kernels run. Waits at most a second for other processes that enter, and at
  /// most two seconds for members that do not answer. If the context cannot become a member, why_not() says why.
  void enter(const std::string& socket, std::size_t bytes_max, const Fetch& fetch);
  /// Call it once, after enter(). Gives this context's arena to the members on other GPUs whose arenas it has mapped.
  /// Waits at most a second.
  void give_to_other_gpus(const Give& give);
  /// Call it when the member `giver` gives its arena. Maps the arena if no kernel runs here, and unmaps arenas of ended
  /// members that no connection uses any more. Any thread but the proxy's: it may wait for kernels that gpusock did not
  /// launch.
  Taken take(const Id& giver, Descriptor arena) noexcept;

  /// kNobody if this context is not a member.
  const Id& own_id() const { return own_id_; }
  int descriptor() const { return own_->descriptor(); }

  /// The members in whose arenas each side receives: this context and the other. On one GPU both receive in one arena.
  struct Meeting {
    Id own;
    Id others;
    bool operator==(const Meeting&) const = default;
  };
  /// Where this context and that member meet, in this slot; nothing if they do not.
  std::optional<Meeting> meeting_with(const Id& member, std::uint32_t slot) const;
  /// Why they do not meet.
  std::string why_not(const Id& member, std::uint32_t slot) const;

  /// The rings and words of a slot in a member's arena.
  struct SlotMemory {
    std::byte* rings;
    DeviceWords* words;
    /// If the arena is another member's: it stays mapped as long as this pointer is held.
    std::shared_ptr<const DeviceArena> arena = nullptr;
  };
  /// Returns nothing if this context does not reach that arena, or the arena has no such slot.
  std::optional<SlotMemory> find(const Id& member, std::uint32_t slot) const;

 private:
  struct Member;
  struct Mapped {
    Asked its;
    std::shared_ptr<const DeviceArena> arena;
    std::uint32_t slots = 0;
    bool on_other_gpu = false;
    bool has_ours = false;  // on another GPU: it has mapped this context's arena
  };
  class MembersLock;

  Member& member(std::size_t number) const;
  std::optional<Member> find_member(const Id& id) const;
  bool is_listed(std::size_t number) const;
  bool lives(const Id& id) const;
  bool is_on_this_gpu(const Member& other) const;
  std::uint32_t slots_of(const Member& other) const;
  void map(const Member& other, Descriptor arena, bool has_ours);
  const Mapped* find_mapped(const Id& id) const;
  void note_apart(const Member& other, const std::string& why);
  bool meets_some(const Id& id) const;
  std::string why_apart_from(const Id& id) const;
  Taken take_of(const Member& giver, Descriptor arena);
  void unmap_ended();
  void make_own(std::size_t bytes_max);
  std::size_t take_number() const;
  void map_others(const Fetch& fetch);
  void publish(std::size_t number, const std::string& socket);
  SlotMemory slot_memory_in(const DeviceArena& arena, std::uint32_t slots, std::uint32_t slot) const;

  /// Bytes of the words of all slots. An arena has these first, and then the rings.
  std::size_t words_bytes(std::uint32_t slots) const;
  std::size_t arena_bytes(std::uint32_t slots) const { return words_bytes(slots) + 2 * file_.room_bytes * slots; }
  std::uint32_t slots_in(std::uint64_t bytes) const;

  std::shared_ptr<Platform> platform_;
  File file_;
  std::string why_none_ = "this context shares no GPU memory with other processes";
  Id own_id_{};
  std::uint32_t own_slots_ = 0;
  std::unique_ptr<DeviceArena> own_;
  std::vector<Id> asked_;     // members that were asked for their descriptors
  mutable std::mutex mutex_;  // take() is called on a thread of its own
  std::vector<Mapped> mapped_;
  std::vector<std::pair<Id, std::string>> apart_;  // members that this context does not meet, and why
};

}  // namespace gpusock::proxy
