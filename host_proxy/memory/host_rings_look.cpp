// Looks at a file of host rings without being one of its users.
#include "plain_types/error.hpp"
#include "host_proxy/memory/host_rings_layout.hpp"

#include <cstring>

namespace gpusock::proxy {

std::optional<HostRings::Look> HostRings::look_at(const std::string& path) {
  using namespace host_rings;
  const auto file = NamedFileLook::at(path);
  if (!file) return {};
  Head head;
  const auto start = file->read(0, sizeof head);
  if (start.size() == sizeof head) std::memcpy(&head, start.data(), sizeof head);
  if (!head.is_of(file->bytes())) {
    throw Error(EPROTO, "reading " + path + ": it is of another version of gpusock");
  }
  Look look;
  look.connections = static_cast<std::uint32_t>(head.connections);
  look.room_bytes = head.room_bytes;
  look.has_users = file->has_users();
  const auto slots = file->read(kSlotsAt, look.connections * kSlotBytes);
  for (std::uint32_t number = 0; (number + 1) * kSlotBytes <= slots.size(); ++number) {
    Slot its;
    std::memcpy(&its, slots.data() + number * kSlotBytes, sizeof its);
    if (file->is_locked(maker_lock(number)) || file->is_locked(peer_lock(number))) {
      ++look.in_use;
    } else if (its.maker_uses != 0 || its.peer_uses != 0) {
      ++look.left_by_dead;
    }
  }
  look.members = Arenas::list(file->read(members_at(look.connections), Arenas::table_bytes()), [&](std::size_t number) {
    return file->is_locked(arenas_lock(look.connections) + Arenas::lock_of(number));
  });
  return look;
}

}  // namespace gpusock::proxy
