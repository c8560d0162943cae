#include "gpusock/tools/top/table.hpp"

#include <nlohmann/json.hpp>

namespace gpusock::top {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json address_json(const Endpoint& endpoint) {
  return endpoint.family == 0 ? ordered_json(nullptr) : ordered_json(endpoint.host_port());
}

ordered_json tcp_json(const proxy::TcpInfo& tcp) {
  if (tcp.known == 0) return nullptr;
  return {{"round_trip_us", tcp.round_trip_us},
          {"round_trip_var_us", tcp.round_trip_var_us},
          {"retransmit_timeout_us", tcp.retransmit_timeout_us},
          {"congestion_window", tcp.congestion_window},
          {"segment_bytes", tcp.segment_bytes},
          {"unacknowledged", tcp.unacknowledged},
          {"retransmits", tcp.retransmits}};
}

ordered_json places_json(const RingPlaces& places) {
  if (places.bytes == RingPlacement::automatic) return nullptr;
  return {{"bytes", to_string(places.bytes)},
          {"tx_committed", to_string(places.tx_committed)},
          {"tx_consumed", to_string(places.tx_consumed)},
          {"rx_committed", to_string(places.rx_committed)},
          {"rx_consumed", to_string(places.rx_consumed)},
          {"status", to_string(places.status)}};
}

ordered_json socket_json(const SocketView& socket) {
  const SocketInfo& info = socket.info;
  return {{"handle", info.handle < 0 ? ordered_json(nullptr) : ordered_json(info.handle)},
          {"state", to_string(info.state)},
          {"error", info.error},
          {"link", to_string(info.link)},
          {"link_reason", info.link_reason},
          {"local", address_json(info.local)},
          {"peer", address_json(info.peer)},
          {"peer_ended", info.peer_ended},
          {"peer_read_shut_down", info.peer_read_shut_down},
          {"tx_bytes", info.tx_bytes},
          {"rx_bytes", info.rx_bytes},
          {"tx_bytes_per_s", or_null(socket.tx_bytes_per_s)},
          {"rx_bytes_per_s", or_null(socket.rx_bytes_per_s)},
          {"tx_ring_fill", info.tx_ring_fill},
          {"rx_ring_fill", info.rx_ring_fill},
          {"ring_bytes", info.ring_bytes},
          {"ring_places", places_json(info.places)},
          {"tx_stalled_ns", socket.tx_stalled_ns},
          {"rx_stalled_ns", socket.rx_stalled_ns},
          {"age_ns", info.age_ns},
          {"pending", info.pending},
          {"backlog", info.backlog},
          {"block", info.block < 0 ? ordered_json(nullptr) : ordered_json(info.block)},
          {"tcp", tcp_json(socket.tcp)}};
}

ordered_json context_json(const ContextView& context) {
  const page::Snapshot& snapshot = context.snapshot;
  ordered_json sockets = ordered_json::array();
  for (const SocketView& socket : context.sockets) sockets.push_back(socket_json(socket));
  ordered_json json = {{"pid", context.pid},
                       {"context", context.number},
                       {"program", context.program},
                       {"user", context.user},
                       {"started_unix_ns", context.started_unix_ns},
                       {"stalled", context.stalled},
                       {"silent_ns", context.silent_ns},
                       {"proxy_steps", snapshot.proxy_steps},
                       {"proxy_wakeups", snapshot.proxy_wakeups},
                       {"proxy_steps_per_s", or_null(context.steps_per_s)},
                       {"proxy_wakeups_per_s", or_null(context.wakeups_per_s)},
                       {"connections", snapshot.connections},
                       {"sockets_total", snapshot.sockets}};
  for (int kind = 1; kind < kLinkKinds; ++kind) {
    const std::string link(to_string(static_cast<LinkKind>(kind)));
    json[link + "_tx_bytes"] = snapshot.tx_bytes[kind];
    json[link + "_rx_bytes"] = snapshot.rx_bytes[kind];
  }
  json["sockets"] = std::move(sockets);
  return json;
}

}  // namespace

std::string make_json(const Look& look, std::uint64_t unix_ns, bool several_lines) {
  ordered_json contexts = ordered_json::array();
  for (const ContextView& context : look.contexts) contexts.push_back(context_json(context));
  const ordered_json all{{"unix_ns", unix_ns},
                         {"unreadable_pages", look.rubbish},
                         {"other_users_pages", look.others},
                         {"contexts", std::move(contexts)}};
  return all.dump(several_lines ? 2 : -1) + "\n";
}

}  // namespace gpusock::top
