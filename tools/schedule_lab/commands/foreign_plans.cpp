#include "commands/foreign_plans.hpp"

#include "commands/arguments.hpp"

#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "traces/plan_tasks.hpp"
#include "param_sync/schedule/file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

namespace param_sync::commands {
namespace {

constexpr std::size_t kFilesMax = 10'000;

/// A file, and what was found out about it.
struct Finding {
  std::string path;
  std::string shown;  ///< the path, without the folder that the user gave
  foreign::Plan plan;
  foreign::Proof proof;
  std::string not_understood;  ///< why there is no proof; empty if there is one
  double seconds = 0;

  const char* verdict() const {
    if (!not_understood.empty()) return "not understood";
    return proof.is_proved ? "proved" : "refuted";
  }
  std::string why() const { return not_understood.empty() ? proof.why : not_understood; }
};

/// The text without characters that could control a terminal.
std::string plain(std::string text) {
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
  std::replace_if(text.begin(), text.end(), is_control, '?');
  return text;
}

std::vector<Finding> find_files(const std::string& paths) {
  namespace fs = std::filesystem;
  std::vector<Finding> files;
  for (const std::string& path : gpusock::program::split(paths)) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (path != "-" && !fs::exists(path, error)) throw Misuse(fmt::format("--plans {}: there is no such file", path));
      files.push_back({path, path == "-" ? "standard input" : path, {}, {}, "", 0});
      continue;
    }
    std::vector<Finding> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      const std::string ending = entry.path().extension().string();
      if (!entry.is_regular_file() || (ending != ".xml" && ending != ".json")) continue;
      found.push_back({entry.path().string(), entry.path().lexically_relative(path).string(), {}, {}, "", 0});
      if (found.size() > kFilesMax) throw Misuse(fmt::format("--plans {}: has more than {} files", path, kFilesMax));
    }
    std::sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) { return a.path < b.path; });
    if (found.empty()) throw Misuse(fmt::format("--plans {}: has no .xml and no .json files", path));
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

/// Reads the file, and finds out what is to be found out. Returns its text.
std::string examine(Finding& file) {
  const auto begin = std::chrono::steady_clock::now();
  std::string text;
  try {
    text = schedule::read_text(file.path);
    file.plan = foreign::read_plan(text);
    file.proof = foreign::prove(file.plan);
  } catch (const std::exception& error) {
    file.not_understood = plain(error.what());
  }
  file.proof.why = plain(file.proof.why);
  file.proof.in_a_row = plain(file.proof.in_a_row);
  file.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return text;
}

/// The plan with as many iterations of its pipelines as the data need. Throws Error if it is not right with them.
foreign::Plan with_iterations(const foreign::Plan& plan, const std::string& text, const traces::Load& load) {
  const int iterations = traces::iterations_for(plan, load);
  if (iterations == 0) return plan;
  foreign::Plan read = foreign::read_plan(text, iterations);
  const foreign::Proof proof = foreign::prove(read);
  if (!proof.is_proved) throw schedule::Error(fmt::format("with {} iterations for a chunk: {}", iterations, proof.why));
  return read;
}

/// Makes the traces of a file. Throws Misuse if the size is none for the plan, and Error if it cannot be a trace.
std::vector<TraceFile> traces_of(const Finding& file, const std::string& text, const PlanOptions& options) {
  const std::string shown = plain(file.shown);
  if (!file.not_understood.empty() || !file.proof.is_proved)
    throw schedule::Error(
        fmt::format("{}: {}: {}. Only plans that are proved are written", shown, file.verdict(), file.why()));
  if (file.proof.bytes_max != 0 && options.size_bytes > file.proof.bytes_max) {
    throw Misuse(fmt::format("--size {}: {} is proved for up to {} bytes only", options.size_bytes, shown,
                             file.proof.bytes_max));
  }
  try {
    return make_traces(
        [&](const traces::Load& load) { return traces::tasks_of(with_iterations(file.plan, text, load), load); },
        options.size_bytes, options.traces);
  } catch (const schedule::Error& error) {
    throw schedule::Error(fmt::format("{}: {}", shown, plain(error.what())));
  }
}

/// The largest data for which a plan is proved.
std::string up_to(std::uint64_t bytes) { return bytes == 0 ? "any" : "to " + in_units(bytes); }

std::string row(const Finding& file, std::size_t width) {
  const bool is_read = file.plan.ranks > 0;
  const auto or_dash = [is_read](auto value) { return is_read ? fmt::format("{}", value) : "-"; };
  std::string in_a_row = "-";
  if (file.proof.is_proved) in_a_row = file.proof.in_a_row.empty() ? "proved" : "refuted";
  std::string text = fmt::format("{:<{}}  {:<13}  {:>5}  {:>6}  {:<14}  {:>10}  {:<14}  {:>7.3f}\n", plain(file.shown),
                                 width, or_dash(to_string(file.plan.collective)), or_dash(file.plan.ranks),
                                 or_dash(file.plan.blocks.size()), file.verdict(),
                                 file.proof.is_proved ? up_to(file.proof.bytes_max) : "-", in_a_row, file.seconds);
  if (!file.why().empty()) text += fmt::format("    {}\n", file.why());
  if (file.proof.if_relaxed) text += "    It would be proved if relaxed signals ordered memory accesses.\n";
  if (!file.proof.in_a_row.empty()) text += fmt::format("    calls in a row: {}\n", file.proof.in_a_row);
  return text;
}

nlohmann::ordered_json as_json(const Finding& file) {
  nlohmann::ordered_json json = {{"file", file.shown}, {"verdict", file.verdict()}};
  json["why"] = file.why();
  if (file.plan.ranks > 0) {
    json["format"] = file.plan.format;
    json["name"] = schedule::printable(file.plan.name);
    json["collective"] = to_string(file.plan.collective);
    json["protocol"] = schedule::printable(file.plan.protocol);
    json["ranks"] = file.plan.ranks;
    json["thread_blocks"] = file.plan.blocks.size();
  }
  if (file.proof.is_proved) {
    json["bytes_max"] = file.proof.bytes_max;
    json["steps"] = file.proof.steps;
    json["accesses"] = file.proof.cells;
    json["calls_in_a_row"] = file.proof.in_a_row.empty() ? "proved" : "refuted";
    json["calls_in_a_row_why"] = file.proof.in_a_row;
  }
  if (file.proof.if_relaxed) json["proved_if_relaxed_signals_order"] = true;
  json["seconds"] = file.seconds;
  return json;
}

}  // namespace

int prove_foreign_plans(const PlanOptions& options) {
  const std::string& json_file = options.json_file;
  std::vector<Finding> files = find_files(options.paths);
  if (options.traces.given() && files.size() > 1)
    throw Misuse(fmt::format("--goal and --chakra write one plan, but --plans names {} files", files.size()));
  std::size_t width = 4;
  for (const Finding& file : files) width = std::max(width, file.shown.size());
  const bool has_table = json_file != "-" && options.traces.goal_file != "-";
  std::string title = fmt::format("{:<{}}  {:<13}  {:>5}  {:>6}  {:<14}  {:>10}  {:<14}  {:>7}\n", "file", width,
                                  "collective", "ranks", "blocks", "one call", "bytes", "calls in a row", "seconds");
  std::vector<TraceFile> traces;
  std::size_t proved = 0, refuted = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (Finding& file : files) {
    const std::string text = examine(file);
    if (options.traces.given()) traces = traces_of(file, text, options);
    if (has_table) gpusock::program::print(std::exchange(title, "") + row(file, width));
    list.push_back(as_json(file));
    const bool is_understood = file.not_understood.empty();
    proved += is_understood && file.proof.is_proved ? 1 : 0;
    refuted += is_understood && !file.proof.is_proved ? 1 : 0;
    file.plan = {};  // the next one may be large
  }
  const std::size_t rest = files.size() - proved - refuted;
  if (has_table) {
    gpusock::program::print(
        fmt::format("{} plans: {} proved, {} refuted, {} not understood\n", files.size(), proved, refuted, rest));
  }
  if (!json_file.empty()) {
    const nlohmann::ordered_json json = {
        {"plans", files.size()}, {"proved", proved}, {"refuted", refuted}, {"not_understood", rest}, {"files", list}};
    gpusock::program::write_file(json_file,
                                 json.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  write_traces(traces);
  return proved == files.size() ? gpusock::program::kSuccess : gpusock::program::kFailure;
}

}  // namespace param_sync::commands
