// Host rings whose file another process of the same user writes to: its slots and its list of members, at any time.
#include "gpusock/error.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <set>
#include <system_error>

namespace gpusock::fuzz::of_host_rings {
namespace {

using proxy::Arenas;
using proxy::HostRings;
using proxy::Segment;

constexpr std::uint64_t kRing = 4096;
constexpr std::uint32_t kSlots = 2;
constexpr std::size_t kAllMemory = std::numeric_limits<std::size_t>::max();
const std::string kSocketName(32, 'a');

/// Arenas are pieces of the heap: an access beyond one ends the process under AddressSanitizer.
class Gpu final : public proxy::PinningPlatform {
 public:
  Gpu() { is_gpu = shares = true; }
  std::unique_ptr<proxy::DeviceArena> make_arena(std::size_t bytes) override {
    proxy::Descriptor file(memfd_create("fuzz", MFD_CLOEXEC));
    FUZZ_CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    return std::make_unique<Arena>(bytes, std::move(file));
  }
  std::unique_ptr<proxy::DeviceArena> map_arena(proxy::Descriptor file, std::size_t bytes,
                                                const std::string&) override {
    struct stat its {};
    if (fstat(file.get(), &its) != 0 || static_cast<std::size_t>(its.st_size) != bytes) {
      throw Error(EPROTO, "mapping an arena");
    }
    return std::make_unique<Arena>(bytes, proxy::Descriptor());
  }

 private:
  struct Arena final : proxy::DeviceArena {
    Arena(std::size_t size, proxy::Descriptor kept) : bytes(size), file(std::move(kept)) {}
    std::byte* memory() const override { return bytes.data(); }
    int descriptor() const override { return file.get(); }
    mutable std::vector<std::byte> bytes;
    proxy::Descriptor file;
  };
};

/// The file as whoever lies sees it.
class File {
 public:
  explicit File(const std::string& name) {
    const proxy::Descriptor file(open(HostRings::path_of(name).c_str(), O_RDWR | O_CLOEXEC));
    struct stat its {};
    FUZZ_CHECK(file && fstat(file.get(), &its) == 0);
    bytes_ = static_cast<std::size_t>(its.st_size);
    memory_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    FUZZ_CHECK(memory_ != MAP_FAILED);
  }
  ~File() { munmap(memory_, bytes_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Writes a word somewhere: in a slot, in one of the first members, or anywhere.
  void lie(Input& input) {
    // Where members start, and their words: id, device, socket, bytes of the arena, count of those mapped, the first
    // one.
    static constexpr std::size_t kMembers = 4096, kMember = 1120, kFields[] = {0, 8, 16, 48, 80, 88, 96, 104};
    static_assert(kMember * Arenas::kMembersMax % sizeof(std::uint64_t) == 0);
    FUZZ_CHECK(kMember * Arenas::kMembersMax == Arenas::table_bytes());
    std::size_t at = 0;
    switch (input.below(4)) {
      case 0:
        at = 64 + input.below(kSlots * 8) * 8;
        break;
      case 1:
      case 2:
        at = kMembers + input.below(3) * kMember + kFields[input.below(std::size(kFields))];
        break;
      default:
        at = input.take<std::uint32_t>() % (bytes_ / 8) * 8;
    }
    std::uint64_t word = 0;
    std::memcpy(&word, memory_ + at, sizeof word);
    word = input.flag() ? input.near(word) : input.near(input.below(4));
    std::memcpy(memory_ + at, &word, sizeof word);
  }

 private:
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

/// Nothing where the file's start says something else than it did.
std::shared_ptr<HostRings> open_rings(const std::string& name) {
  try {
    return std::make_shared<HostRings>(std::make_shared<Gpu>(), HostRings::Settings{name, kSlots, kRing, 0});
  } catch (const std::system_error& error) {
    FUZZ_CHECK(error.code().value() == EPROTO);
    return nullptr;
  }
}

/// The rings of a segment, all of them, are there.
void use(const Segment& segment) {
  const proxy::RingMemories rings = segment.callers_rings();
  std::memset(rings.tx.data, 1, segment.ring_bytes());
  std::memset(rings.rx.data, 2, segment.ring_bytes());
}

/// What this context reaches of a member's arena is there.
void use(const HostRings& rings, const Arenas& arenas, const Arenas::Id& member, std::uint32_t slot) {
  const auto memory = arenas.find(member, slot);
  if (!memory) return;
  std::memset(memory->rings, 3, 2 * rings.room_bytes());
  std::memset(static_cast<void*>(memory->words), 4, sizeof *memory->words);
}

}  // namespace

FUZZ_TARGET(host_rings) {
  static const std::string name = "fuzz-" + std::to_string(getpid());
  const auto other = open_rings(name);
  other->arenas().enter(kSocketName, kAllMemory,
                        [](auto& asked, auto) { return std::vector<Arenas::Fetched>(asked.size()); });
  File file(name);
  for (std::size_t lies = input.below(8); lies > 0; --lies) file.lie(input);
  const auto rings = open_rings(name);
  if (!rings) return;
  rings->arenas().enter(kSocketName, kAllMemory, [&](const std::vector<Arenas::Asked>& asked, auto) {
    FUZZ_CHECK(asked.size() <= Arenas::kMembersMax);
    if (input.flag()) file.lie(input);  // while it waits
    std::vector<Arenas::Fetched> got(asked.size());
    for (Arenas::Fetched& each : got) {
      if (input.byte() < 0xc0 && other->arenas().own_id() != Arenas::kNobody) {
        each.arena.reset(dup(other->arenas().descriptor()));
      }
    }
    return got;
  });

  std::vector<std::shared_ptr<Segment>> kept;
  std::vector<HostRings::SlotLocator> locators(1);
  while (!input.empty()) {
    HostRings& side = input.flag() ? *rings : *other;
    HostRings::SlotLocator locator = locators[input.below(locators.size())];
    Arenas::Id id = input.flag() ? rings->arenas().own_id() : other->arenas().own_id();
    switch (input.below(8)) {
      case 0:
      case 1:
        if (auto taken = side.take(input.near(kRing), locator)) {
          FUZZ_CHECK(locator.slot < kSlots && locator.state == HostRings::SlotLocator::kOffered);
          for (const auto& each : kept) FUZZ_CHECK(each.get() != taken.get());
          use(*taken);
          kept.push_back(std::move(taken));
          locators.push_back(locator);
        }
        break;
      case 2:
      case 3: {
        if (input.flag()) locator.slot = input.take<std::uint32_t>();
        if (input.flag()) locator.ring_bytes = input.near(kRing);
        std::shared_ptr<Segment> joined;
        try {
          joined = side.join(locator);
        } catch (const std::system_error& error) {
          FUZZ_CHECK(error.code().value() == EPROTO);
          break;
        }
        use(*joined);
        FUZZ_CHECK(side.was_joined(locator));
        const auto on_device = side.on_device(locator, joined, id);
        if (on_device) use(*on_device);
        kept.push_back(std::move(joined));
        break;
      }
      case 4: {
        if (input.byte() < 0x20) id = input.take<Arenas::Id>();
        const std::uint32_t slot = input.byte() < 0xf0 ? input.below(kSlots + 2) : input.take<std::uint32_t>();
        const auto meeting = side.arenas().meeting_with(id, slot);
        FUZZ_CHECK(!side.arenas().why_not(id, slot).empty());
        use(side, side.arenas(), id, slot);
        if (!meeting) break;
        for (const Arenas::Id& whose : {meeting->own, meeting->others}) {
          FUZZ_CHECK(side.arenas().find(whose, slot));
          use(side, side.arenas(), whose, slot);
        }
        break;
      }
      case 5:
        if (!kept.empty()) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(input.below(kept.size())));
        break;
      default:
        file.lie(input);
    }
  }
}

}  // namespace gpusock::fuzz::of_host_rings
