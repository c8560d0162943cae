#include "checkpoint/checkpoint.hpp"

#include "checkpoint/safetensors.hpp"
#include "report/failure.hpp"

#include "gpusock/error.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace param_sync {
namespace {

// While a rank writes one, the others may have written the next two.
constexpr std::size_t kKept = 3;
constexpr const char* kOldSuffix = ".checkpoint";  // files in an earlier format end so

/// The names of settings in files, by RunSetting. The first entry is not used. first_step is not a setting of a run.
constexpr const char* kSettings[] = {"",      "version", "nodes",     "model",  "data",    "steps",
                                     "batch", "seed",    "optimizer", "scheme", "transfer"};
static_assert(std::size(kSettings) == static_cast<std::size_t>(RunSetting::first_step));
constexpr const char* kSync = "sync";  // only of trainings with --sync

/// Brings a file or a folder to the disk. Returns errno, or 0.
int synchronise(const std::string& name) {
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error;
}

std::streamsize bytes_of(std::span<const float> values) { return static_cast<std::streamsize>(values.size_bytes()); }

bool read_all(std::ifstream& file, std::vector<float>& values) {
  return static_cast<bool>(file.read(reinterpret_cast<char*>(values.data()), bytes_of(values)));
}

bool is_intact(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return safetensors::read_metadata(file).is_object();
}

bool has(const nlohmann::json& about, const char* name, std::uint64_t value) {
  const auto found = about.find(name);
  return found != about.end() && *found == std::to_string(value);
}

}  // namespace

CheckpointFiles::CheckpointFiles(std::string folder, int rank, const Layout& layout,
                                 std::span<const std::uint64_t> settings)
    : folder_(std::move(folder)), rank_(rank), layout_(layout), settings_(settings.begin(), settings.end()) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!error && ::access(folder_.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) throw gpusock::Error(error.value(), "cannot write checkpoints in " + folder_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != kOldSuffix) continue;
    throw gpusock::Error(EINVAL, "the checkpoint " + entry.path().string() +
                                     " is of an earlier version of param_sync: end that run with that version, or give "
                                     "another folder to begin anew");
  }
}

std::string CheckpointFiles::path(int rank, std::uint64_t step) const {
  return fmt::format("{}/rank-{}-step-{}{}", folder_, rank, step, kCheckpointSuffix);
}

/// Returns the steps of a rank's checkpoints, newest first.
std::vector<std::uint64_t> CheckpointFiles::steps_of(int rank) const {
  const std::string prefix = fmt::format("rank-{}-step-", rank);
  std::vector<std::uint64_t> steps;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kCheckpointSuffix)) continue;
    const char* const end = name.data() + name.size() - std::strlen(kCheckpointSuffix);
    std::uint64_t step = 0;
    const auto [stop, problem] = std::from_chars(name.data() + prefix.size(), end, step);
    if (problem == std::errc{} && stop == end && step > 0) steps.push_back(step);
  }
  if (error) throw gpusock::Error(error.value(), "cannot read checkpoints in " + folder_);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

/// Returns steps, newest first: those of this rank, or, if the folder also has other ranks' files, those of all ranks.
std::vector<std::uint64_t> CheckpointFiles::common_steps() const {
  std::vector<std::vector<std::uint64_t>> others;
  bool shared = false;
  for (int rank = 0; rank < layout_.nodes; ++rank) {
    if (rank == rank_) continue;
    others.push_back(steps_of(rank));
    shared = shared || !others.back().empty();
  }
  std::vector<std::uint64_t> common = steps_of(rank_);
  std::erase_if(common, [&](std::uint64_t step) {
    return shared && !std::all_of(others.begin(), others.end(), [&](const std::vector<std::uint64_t>& steps) {
             return std::find(steps.begin(), steps.end(), step) != steps.end();
           });
  });
  return common;
}

std::uint64_t CheckpointFiles::latest() const {
  const std::vector<std::uint64_t> common = common_steps();
  if (!common.empty()) return common.front();
  // The files that are here are of another run, or a rank was lost before its first one, or they have no common step.
  bool all_have_some = true;
  for (int rank = 0; rank < layout_.nodes; ++rank) {
    for (const std::uint64_t step : steps_of(rank)) {
      const std::string name = path(rank, step);
      std::ifstream file(name, std::ios::binary);
      const nlohmann::json about = safetensors::read_metadata(file);
      if (about.is_object()) require_settings(name, about);
    }
    all_have_some = all_have_some && !steps_of(rank).empty();
  }
  if (all_have_some) throw_none_is_whole(folder_);
  return 0;
}

void throw_none_is_whole(const std::string& folder) {
  throw gpusock::Error::with_cause(
      ENOENT, "no checkpoint in " + folder + " has the files of all ranks: to begin anew, remove the files");
}

void CheckpointFiles::require_settings(const std::string& name, const nlohmann::json& about) const {
  for (std::size_t i = 1; i < std::size(kSettings); ++i) {
    if (has(about, kSettings[i], settings_[i])) continue;
    throw gpusock::Error(EINVAL, "the checkpoint " + name + " is of a run with another " +
                                     field_name(static_cast<RunSetting>(i)) +
                                     ": give the same arguments as then, or another folder to begin anew");
  }
  const std::uint64_t sync = settings_[static_cast<std::size_t>(RunSetting::sync)];
  if (about.contains(kSync) ? has(about, kSync, sync) : sync == 0) return;
  throw gpusock::Error(EINVAL, "the checkpoint " + name + " is of a run with another " + field_name(RunSetting::sync) +
                                   ": give the same arguments as then, or another folder to begin anew");
}

/// The error names the newest step before `step` from which the run can go on, if there is one.
void CheckpointFiles::throw_damaged(const std::string& name, std::uint64_t step) const {
  const auto all_have = [&](std::uint64_t older) {
    for (int rank = 0; rank < layout_.nodes; ++rank) {
      const std::string file = path(rank, older);
      if ((rank == rank_ || ::access(file.c_str(), F_OK) == 0) && !is_intact(file)) return false;
    }
    return true;
  };
  for (const std::uint64_t older : common_steps()) {
    if (older >= step || !all_have(older)) continue;
    throw gpusock::Error(
        EBADMSG,
        fmt::format("the checkpoint {} is damaged, or no checkpoint; go on from an older step with --resume {}", name,
                    older));
  }
  throw gpusock::Error(EBADMSG, fmt::format("the checkpoint {} is damaged, or no checkpoint, and there is no older one "
                                            "that all ranks have; to begin anew, remove the files in {}",
                                            name, folder_));
}

Checkpoint CheckpointFiles::read(std::uint64_t step) const {
  const std::string name = path(rank_, step);
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) throw gpusock::Error(errno != 0 ? errno : EIO, "cannot read the checkpoint " + name);
  const nlohmann::json about = safetensors::read_metadata(file);
  if (!about.is_object()) throw_damaged(name, step);
  require_settings(name, about);
  if (!has(about, "rank", static_cast<std::uint64_t>(rank_)) || !has(about, "step", step)) {
    throw gpusock::Error(EINVAL,
                         "the checkpoint " + name + " is another rank's, or of another step: give it its name back");
  }
  Checkpoint checkpoint{step, std::vector<float>(layout_.parameters()), std::vector<float>(layout_.parameters())};
  const bool whole = read_all(file, checkpoint.weights) && read_all(file, checkpoint.states) && file.peek() == EOF;
  if (!whole) throw_damaged(name, step);
  return checkpoint;
}

void CheckpointFiles::write(const Checkpoint& checkpoint) const {
  nlohmann::json about = {{"rank", std::to_string(rank_)}, {"step", std::to_string(checkpoint.step)}};
  for (std::size_t i = 1; i < std::size(kSettings); ++i) about[kSettings[i]] = std::to_string(settings_[i]);
  const std::uint64_t sync = settings_[static_cast<std::size_t>(RunSetting::sync)];
  if (sync != 0) about[kSync] = std::to_string(sync);
  const safetensors::Numbers tensors[] = {{"", checkpoint.weights}, {"velocity.", checkpoint.states}};
  const std::string name = path(rank_, checkpoint.step), unfinished = name + ".unfinished";
  const auto require = [&](int error) {
    if (error == 0) return;
    ::unlink(unfinished.c_str());
    throw gpusock::Error(error, "cannot write the checkpoint " + name);
  };
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary);
  file << safetensors::start_of(layout_, tensors, std::move(about));
  for (const auto& [prefix, values] : tensors)
    file.write(reinterpret_cast<const char*>(values.data()), bytes_of(values));
  file.close();
  require(file ? 0 : errno != 0 ? errno : EIO);
  require(synchronise(unfinished));
  require(std::rename(unfinished.c_str(), name.c_str()) != 0 ? errno : 0);
  require(synchronise(folder_));  // so that the new name is on the disk, too
  const std::vector<std::uint64_t> steps = steps_of(rank_);
  for (std::size_t i = kKept; i < steps.size(); ++i) ::unlink(path(rank_, steps[i]).c_str());
}

}  // namespace param_sync
