#include "gpusock/tools/doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace gpusock::doctor {
namespace {

constexpr std::size_t kColumns = 80;

/// Breaks the text into lines of at most kColumns. All but the first begin at the column `indent`. No word is cut.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string result;
  std::size_t column = indent;
  for (std::string word; words >> word; column += word.size()) {
    if (column != indent && column + 1 + word.size() > kColumns) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column != indent) {
      result += ' ';
      ++column;
    }
    result += word;
  }
  return result;
}

}  // namespace

std::string_view to_string(Level level) {
  static constexpr std::string_view kNames[] = {"fine", "note", "fix"};
  return kNames[static_cast<int>(level)];
}

bool Report::well() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.level == Level::fix; });
}

std::string make_page(const Report& report) {
  std::string page = fmt::format("gpusock-doctor {}: programs of this build run kernels on {}\n\nWHAT IS HERE\n",
                                 GPUSOCK_VERSION, report.facts.gpu_build ? "GPUs" : "the CPU device");
  for (const Finding& finding : report.findings) {
    page += fmt::format("  {:<5} {:<11} {}\n", finding.level == Level::fix ? "FIX" : to_string(finding.level),
                        finding.topic, wrapped(finding.says, 20));
    if (!finding.command.empty()) page += fmt::format("{:<20}> {}\n", "", finding.command);
  }
  page += "\nWHICH LINK A PEER GETS\n";
  for (const LinkChoice& choice : report.links) {
    page += fmt::format("  {:<13} {}\n", choice.peer,
                        choice.rings.empty()
                            ? choice.link
                            : fmt::format("{:<5} {}", choice.link, wrapped("rings in " + choice.rings, 22)));
    if (!choice.words.empty()) page += fmt::format("{:<22}{}\n", "", wrapped("words in " + choice.words, 22));
    std::istringstream why(choice.why);
    for (std::string line; std::getline(why, line);) page += fmt::format("{:<22}{}\n", "", wrapped(line, 22));
    if (!choice.command.empty()) page += fmt::format("{:<22}> {}\n", "", choice.command);
  }
  const auto count = std::count_if(report.findings.begin(), report.findings.end(),
                                   [](const Finding& finding) { return finding.level == Level::fix; });
  page += report.well() ? "\nAll is well.\n" : fmt::format("\n{} thing(s) to fix.\n", count);
  return page;
}

}  // namespace gpusock::doctor
