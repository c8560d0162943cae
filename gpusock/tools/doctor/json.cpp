#include "gpusock/tools/doctor/report.hpp"

#include <nlohmann/json.hpp>

namespace gpusock::doctor {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

/// The state of the host rings that are named; null if none are named, or they do not exist.
ordered_json host_rings(const Facts& facts) {
  if (!facts.host_rings_there) return nullptr;
  const auto& look = *facts.host_rings_there;
  ordered_json members = ordered_json::array();
  for (const auto& member : look.members) {
    members.push_back({{"device", member.device}, {"arena_bytes", member.arena_bytes}, {"reaches", member.mapped}});
  }
  return {{"name", facts.host_rings},
          {"connections", look.connections},
          {"in_use", look.in_use},
          {"left_by_dead", look.left_by_dead},
          {"ring_bytes", look.room_bytes},
          {"has_users", look.has_users},
          {"fits", facts.host_ring_bytes() <= look.room_bytes},
          {"members", std::move(members)}};
}

}  // namespace

std::string make_json(const Report& report) {
  ordered_json findings = ordered_json::array(), links = ordered_json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"topic", finding.topic},
                        {"level", to_string(finding.level)},
                        {"says", finding.says},
                        {"command", or_null(finding.command)}});
  }
  for (const LinkChoice& choice : report.links) {
    links.push_back({{"peer", choice.peer},
                     {"link", choice.link},
                     {"rings", or_null(choice.rings)},
                     {"words", or_null(choice.words)},
                     {"why", or_null(choice.why)},
                     {"command", or_null(choice.command)}});
  }
  const ordered_json all{{"version", GPUSOCK_VERSION},
                         {"device", report.facts.gpu_build ? "cuda" : "cpu"},
                         {"well", report.well()},
                         {"gpus", report.facts.gpus},
                         {"rdma_nics", report.facts.rdma_nics},
                         {"host_rings", host_rings(report.facts)},
                         {"findings", std::move(findings)},
                         {"links", std::move(links)}};
  return all.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gpusock::doctor
