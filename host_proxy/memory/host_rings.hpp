#pragma once
/// @file Ring memory that the processes of one user on this host share by a name. Each context maps all of it, and
/// attaches it to its device, when the context is made. So no connection later needs a call that may wait for kernels,
/// and a GPU's kernels can use rings with kernels of another process. Why:
/// docs/decisions/024-rings-between-processes.md.

#include "host_proxy/memory/arenas.hpp"
#include "host_proxy/memory/named_file.hpp"
#include "host_proxy/memory/segment.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::proxy {

/// A fixed number of slots, each a segment. The side that accepts a connection takes one; its peer joins it. A slot is
/// free when both have given it back or died.
class HostRings : public std::enable_shared_from_this<HostRings> {
 public:
  struct Settings {
    std::string name;               ///< letters, digits, '.', '_', '-'; at most 64
    std::uint32_t connections = 0;  ///< slots, 1 to 4096, if this context makes the file
    std::uint64_t ring_bytes = 0;   ///< room for each ring, if this context makes the file
    /// How long the slot of a process that died stays unused. Its kernels may write for a while after the operating
    /// system has ended its locks.
    std::uint64_t rest_ns = 1'000'000'000;
  };

  static constexpr std::uint32_t kConnectionsMax = 4096;
  static constexpr std::uint32_t kConnectionsDefault = 16;  ///< as Options::host_connections_max
  /// The name that contexts on a GPU use if the user has chosen none: the default of Options::host_rings.
  static constexpr const char* kAutomatic = "auto";

  using Id = std::array<std::uint8_t, 16>;

  /// What the peer must know to join a slot. It goes over the wire.
  struct SlotLocator {
    enum State : std::uint32_t { kNotShared, kOffered, kNoneFree, kTooSmall };
    Id file{};    ///< which memory: random, fresh in each file
    Id ticket{};  ///< which use of the slot; cannot be guessed
    std::uint64_t ring_bytes = 0;
    std::uint32_t slot = 0;
    std::uint32_t state = kNotShared;
  };

  /// Throws Error: (EINVAL) an invalid name, (EPROTO) the file is not of this version; or as NamedFile and
  /// Platform::attach() do.
  HostRings(std::shared_ptr<Platform> platform, Settings settings);
  ~HostRings();
  HostRings(const HostRings&) = delete;
  HostRings& operator=(const HostRings&) = delete;

  /// What a user chose: a name (empty for none), and the number of connections, if it was given.
  struct Chosen {
    std::string name;
    std::optional<std::uint32_t> connections;
  };
  /// Parses "off", "NAME" or "NAME,connections=N"; returns nothing for any other text. "auto" is a name here.
  static std::optional<Chosen> parse(std::string_view text);

  static bool is_name(std::string_view name);
  static bool is_count(std::uint64_t connections) { return connections >= 1 && connections <= kConnectionsMax; }
  /// The path of the file with this name.
  static std::string path_of(const std::string& name);

  /// What a file contains.
  struct Look {
    std::uint32_t connections = 0;   ///< slots
    std::uint32_t in_use = 0;        ///< slots that are in use
    std::uint32_t left_by_dead = 0;  ///< slots of processes that died; used again after Settings::rest_ns
    std::uint64_t room_bytes = 0;    ///< room for each ring
    bool has_users = false;          ///< false: all have died, and the next context makes a new file
    std::vector<Arenas::Listed> members = {};
  };
  /// Looks at a file that path_of() names; returns nothing if there is none. The file's users do not notice: it takes
  /// no lock and writes nothing. They go on meanwhile, so the counts may be of slightly different moments. Throws
  /// Error: (EPROTO) the file is not of this version, (EACCES) it is not gpusock's, or another user's.
  static std::optional<Look> look_at(const std::string& path);

  const std::string& name() const { return settings_.name; }
  std::uint32_t connections() const { return connections_; }
  /// Bytes for which each ring has room.
  std::uint64_t room_bytes() const { return room_bytes_; }

  /// Takes a slot, with rings of `ring_bytes`, and says in `locator` what a peer must know. Returns nullptr if all
  /// slots are in use or rings of this size do not fit; then locator.state says which, and locator.file which memory.
  /// The last owner of the result gives the slot back. Calls no function of the device.
  std::shared_ptr<Segment> take(std::uint64_t ring_bytes, SlotLocator& locator);

  /// Number of slots whose processes ended without giving them back: these rest for Settings::rest_ns. Queries locks.
  std::uint32_t resting() const;

  /// True if the locator names a slot of this memory.
  bool is_same(const SlotLocator& locator) const { return locator.file == id_; }
  /// Joins the slot that a peer has taken; the peer's tx is this side's rx. Throws Error (EPROTO) if the peer has no
  /// such slot for this side. Calls no function of the device.
  std::shared_ptr<Segment> join(const SlotLocator& locator);

  /// True if a peer has joined the slot that take() gave for this locator.
  bool was_joined(const SlotLocator& locator) const;

  /// The GPU memory that the contexts which use these host rings share.
  Arenas& arenas() { return *arenas_; }
  /// The rings of a slot that take() or join() gave, as kernels use them in the arena of the member `whose`; nullptr if
  /// this context does not reach that arena. `common` is the slot's segment; the result keeps it. Calls no function of
  /// the device.
  std::shared_ptr<Segment> on_device(const SlotLocator& locator, const std::shared_ptr<Segment>& common,
                                     const Arenas::Id& whose) const;

  /// Call it in a process that was just forked: the slots stay the parent's.
  void leave_to_parent() noexcept { file_.leave_to_parent(); }

 private:
  struct Head;
  struct Slot;
  struct Lease;
  /// Takes the file's memory back from the device, and unmaps it.
  struct Unmap {
    Platform* platform;
    std::size_t bytes;
    void operator()(std::byte* memory) const noexcept;
  };
  enum Role : std::uint8_t { kMaker = 1, kPeer = 2 };

  static std::vector<std::byte> new_head(const Settings& settings);
  void read_head();
  void map();
  Slot& slot(std::uint32_t number) const;
  bool claim(std::uint32_t number, const Id& ticket);
  bool has_rested(Slot& slot) const;
  void note_death(Slot& its, std::uint32_t number, Role other) const noexcept;
  std::shared_ptr<Segment> lend(std::shared_ptr<Lease> lease, std::uint32_t number, Role role,
                                std::uint64_t ring_bytes);
  void give_back(std::uint32_t number, Role role) noexcept;

  std::shared_ptr<Platform> platform_;
  Settings settings_;
  NamedFile file_;
  Id id_{};
  std::uint32_t connections_ = 0;
  std::uint64_t room_bytes_ = 0;
  std::unique_ptr<std::byte, Unmap> memory_;  // all of the file; what follows uses it
  std::deque<Segment> segments_;              // one for each slot
  std::optional<Arenas> arenas_;
  mutable std::mutex mutex_;         // callers' threads give slots back, and others take them
  std::vector<std::uint8_t> roles_;  // the Roles that this object has in each slot
  std::uint32_t next_ = 0;
};

}  // namespace gpusock::proxy
