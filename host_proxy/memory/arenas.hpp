#pragma once
/// @file Rings in a GPU's memory for kernels of several processes. Each context that uses host rings (host_rings.hpp)
/// has an arena of its GPU's memory. While it is made, it maps those of the contexts that came before it, on the same
/// GPU and on GPUs whose memory it reaches. Of two contexts on one GPU both then reach the earlier one's arena. To one
/// on another GPU it gives its own arena, which that one maps if none of its kernels run: then both reach both. Why:
/// docs/decisions/024-rings-between-processes.md and 032-rings-between-processes-on-two-gpus.md.

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

/// One context's part: its own arena, those it has mapped, and its entry in the list of members, which is in the host
/// rings' file. A slot of the file is one of every arena, so its locks say which contexts use it.
class Arenas {
 public:
  /// Contexts that are members at a time; further ones share host memory alone.
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
  /// An arena's descriptor; none where the member does not answer, or this process has no descriptor left for it.
  struct Fetched {
    Descriptor arena;
    bool lacks_descriptor = false;
  };
  /// Gets the descriptors of all, or none from those that do not answer in this time.
  using Fetch = std::function<std::vector<Fetched>(const std::vector<Asked>& asked, std::chrono::nanoseconds wait)>;

  /// What a member on another GPU did with an arena that was given to it. It goes over the wire, but for the last:
  /// nothing was given, as this process has no descriptor left to do it.
  enum class Taken : std::uint8_t { no_answer, mapped, kernels_ran, refused, not_asked };
  /// Gives a descriptor, with the giver's id, to all; what they answered in this time.
  using Give = std::function<std::vector<Taken>(const std::vector<Asked>& to, const Id& giver, int descriptor,
                                                std::chrono::nanoseconds wait)>;

  Arenas(std::shared_ptr<Platform> platform, const File& file) : platform_(std::move(platform)), file_(file) {}

  static std::size_t table_bytes();
  static std::size_t locks() { return 1 + kMembersMax; }
  /// The lock of a member's entry, among them: a context has it as long as it lives.
  static constexpr std::size_t lock_of(std::size_t number) { return 1 + number; }

  /// A member, for people.
  struct Listed {
    std::string device;             ///< Platform::name_on_host()
    std::uint64_t arena_bytes = 0;  ///< of its GPU's memory
    std::uint64_t mapped = 0;       ///< arenas of others that it mapped when it was made
  };
  /// The members of a copied table that live.
  static std::vector<Listed> list(const std::vector<std::byte>& table,
                                  const std::function<bool(std::size_t number)>& lives);

  /// Makes this context a member: with an arena of at most `bytes_max` bytes, which it gives away at `socket` from now
  /// on. Before its kernels run, once. Waits at most a second for other processes that enter, and a second for members
  /// that do not answer. Where it cannot be one, why_not() says so.
  void enter(const std::string& socket, std::size_t bytes_max, const Fetch& fetch);
  /// After that, once: gives this context's arena to the members on other GPUs whose arenas it has mapped. Waits at
  /// most a second.
  void give_to_other_gpus(const Give& give);
  /// That member gives its arena: maps it, if no kernel runs here, and unmaps those of members that have ended, which
  /// no connection uses any more. Any thread but the proxy's, as it may wait for kernels that gpusock did not launch.
  Taken take(const Id& giver, Descriptor arena) noexcept;

  /// kNobody: it is no member.
  const Id& own_id() const { return own_id_; }
  int descriptor() const { return own_->descriptor(); }

  /// In whose arena what this context receives lies, and what the other one does. One arena has both on one GPU.
  struct Meeting {
    Id own;
    Id others;
    bool operator==(const Meeting&) const = default;
  };
  /// Where this context and that member meet, in this slot.
  std::optional<Meeting> meeting_with(const Id& member, std::uint32_t slot) const;
  /// Why they do not.
  std::string why_not(const Id& member, std::uint32_t slot) const;

  /// The rings and words of a slot, in this member's arena.
  struct Place {
    std::byte* rings;
    DeviceWords* words;
    /// Another member's: mapped as long as this pointer is held.
    std::shared_ptr<const DeviceArena> arena = nullptr;
  };
  /// Nothing: this context does not reach that arena, or the arena has no such slot.
  std::optional<Place> find(const Id& member, std::uint32_t slot) const;

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
  Place place_in(const DeviceArena& arena, std::uint32_t slots, std::uint32_t slot) const;

  /// Words of all slots, then their rings.
  std::size_t words_bytes(std::uint32_t slots) const;
  std::size_t arena_bytes(std::uint32_t slots) const { return words_bytes(slots) + 2 * file_.room_bytes * slots; }
  std::uint32_t slots_in(std::uint64_t bytes) const;

  std::shared_ptr<Platform> platform_;
  File file_;
  std::string why_none_ = "this context shares no GPU memory with other processes";
  Id own_id_{};
  std::uint32_t own_slots_ = 0;
  std::unique_ptr<DeviceArena> own_;
  std::vector<Id> asked_;     // for their descriptors
  mutable std::mutex mutex_;  // take() is called on a thread of its own
  std::vector<Mapped> mapped_;
  std::vector<std::pair<Id, std::string>> apart_;  // on other GPUs: why they do not meet
};

}  // namespace gpusock::proxy
