#include "host_proxy/links/verbs/message.hpp"

#include "host_proxy/memory/segment.hpp"

#include <algorithm>
#include <cstring>

namespace gpusock::proxy::verbs {
namespace {

/// True if a word can lie at this address.
bool can_hold_word(std::uint64_t address) {
  return address % sizeof(std::uint64_t) == 0 && address + sizeof(std::uint64_t) >= address;
}

/// True if the peer has no word for its kernels, or gives a possible address of one.
bool has_possible_kernels_word(const PeerMemory& memory) {
  const bool says_nothing = memory.kernels_word_address == 0 && memory.kernels_word_bias == 0 &&
                            memory.kernels_word_key == 0;
  return memory.has_kernels_word == 0 ? says_nothing
                                      : memory.has_kernels_word == 1 && can_hold_word(memory.kernels_word_address);
}

}  // namespace

Message make_message(const rdma::QueuePairAddress& pair, const PeerMemory& memory) {
  Message message;
  message.pair_number = pair.number;
  message.psn = pair.psn;
  message.lid = pair.lid;
  message.mtu = static_cast<std::uint8_t>(pair.mtu);
  message.ethernet = pair.ethernet ? 1 : 0;
  std::copy_n(pair.gid.raw, message.gid.size(), message.gid.begin());
  message.memory = memory;
  return message;
}

std::optional<Peer> parse_message(std::span<const std::byte> bytes, std::uint64_t ring_bytes, std::string& reason) {
  constexpr std::uint32_t k24Bits = 0xffffff;
  Message message;
  if (bytes.size() != sizeof message) {
    reason = "the peer's message has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(sizeof message);
    return std::nullopt;
  }
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.version != Message::kVersion) {
    reason = "the peer speaks version " + std::to_string(message.version) + " of the verbs link, this side " +
             std::to_string(Message::kVersion);
    return std::nullopt;
  }
  const bool no_gid = std::all_of(message.gid.begin(), message.gid.end(), [](std::uint8_t byte) { return byte == 0; });
  const bool multicast = message.gid[0] == 0xff;
  if (message.pair_number == 0 || message.pair_number > k24Bits || message.psn > k24Bits || message.mtu < IBV_MTU_256 ||
      message.mtu > IBV_MTU_4096 || message.ethernet > 1 || no_gid || multicast) {
    reason = "the peer's queue pair has no possible address";
    return std::nullopt;
  }
  const PeerMemory& memory = message.memory;
  if (!is_ring_size(memory.ring_bytes) || (ring_bytes != 0 && memory.ring_bytes != ring_bytes) ||
      memory.ring_address + memory.ring_bytes < memory.ring_address ||
      memory.words_address % sizeof(std::uint64_t) != 0 || memory.words_address + kWordsBytes < memory.words_address) {
    reason = "the peer's ring has another size than agreed, or is not aligned";
    return std::nullopt;
  }
  if (!has_possible_kernels_word(memory)) {
    reason = "the peer's word for its kernels has no possible address";
    return std::nullopt;
  }
  Peer peer;
  peer.pair = {message.pair_number,  message.psn, {}, message.lid, static_cast<ibv_mtu>(message.mtu),
               message.ethernet != 0};
  std::copy(message.gid.begin(), message.gid.end(), peer.pair.gid.raw);
  peer.memory = memory;
  return peer;
}

}  // namespace gpusock::proxy::verbs
