#include "gpusock/tools/doctor/report.hpp"

#include <nlohmann/json.hpp>

namespace gpusock::doctor {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

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
                         {"findings", std::move(findings)},
                         {"links", std::move(links)}};
  return all.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gpusock::doctor
