#include "checkpoint/checkpoint.hpp"

#include "param_sync/wire/hash.hpp"
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

constexpr char kMagic[8] = {'g', 'p', 's', 'c', 'h', 'e', 'c', 'k'};
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kKept = 2;
constexpr const char* kSuffix = ".checkpoint";

/// The start of a file, followed by the settings, the weights and the velocities. In the machine's byte order.
struct Header {
  char magic[8];
  std::uint64_t version, rank, step, settings, parameters;
  std::uint64_t hash;  ///< FNV-1a of everything before and after this word
};

std::uint64_t hash_of(const Header& header, std::span<const std::uint64_t> settings, const Checkpoint& checkpoint) {
  std::uint64_t hash = fnv1a(&header, offsetof(Header, hash));
  hash = fnv1a(settings.data(), settings.size_bytes(), hash);
  hash = fnv1a(checkpoint.weights.data(), checkpoint.weights.size() * sizeof(float), hash);
  return fnv1a(checkpoint.velocity.data(), checkpoint.velocity.size() * sizeof(float), hash);
}

/// Brings what was written to the disk, unless writing has failed (`error`), and closes the file in any case. Returns
/// the first error, or 0.
int finish(int descriptor, int error) {
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

int write_all(int descriptor, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return 0;
}

template <class T>
bool read_all(std::ifstream& file, T* to, std::size_t count) {
  return static_cast<bool>(file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count * sizeof(T))));
}

/// Reads a file's header and compares its hash with the rest of the file. True if they agree: then the header can be
/// trusted, and the file is positioned after it. Every version of the format has the hash at the same place.
bool read_intact(std::ifstream& file, Header& header) {
  if (!read_all(file, &header, 1) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return false;
  std::uint64_t hash = fnv1a(&header, offsetof(Header, hash));
  std::vector<char> part(std::size_t{64} << 10);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    hash = fnv1a(part.data(), static_cast<std::size_t>(file.gcount()), hash);
  }
  if (file.bad() || hash != header.hash) return false;
  file.clear();
  file.seekg(sizeof header);
  return static_cast<bool>(file);
}

bool is_intact(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  Header header{};
  return file && read_intact(file, header);
}

}  // namespace

CheckpointFiles::CheckpointFiles(std::string folder, int rank, int nodes, std::span<const std::uint64_t> settings)
    : folder_(std::move(folder)), rank_(rank), nodes_(nodes), settings_(settings.begin(), settings.end()) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!error && ::access(folder_.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) throw gpusock::Error(error.value(), "cannot write checkpoints in " + folder_);
}

std::string CheckpointFiles::path(int rank, std::uint64_t step) const {
  return fmt::format("{}/rank-{}-step-{}{}", folder_, rank, step, kSuffix);
}

/// Newest first.
std::vector<std::uint64_t> CheckpointFiles::steps_of(int rank) const {
  const std::string prefix = fmt::format("rank-{}-step-", rank);
  std::vector<std::uint64_t> steps;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    const char* const end = name.data() + name.size() - std::strlen(kSuffix);
    std::uint64_t step = 0;
    const auto [stop, problem] = std::from_chars(name.data() + prefix.size(), end, step);
    if (problem == std::errc{} && stop == end && step > 0) steps.push_back(step);
  }
  if (error) throw gpusock::Error(error.value(), "cannot read checkpoints in " + folder_);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

/// Newest first: those of this rank, and, where the folder has other ranks' files as well, of all ranks.
std::vector<std::uint64_t> CheckpointFiles::common_steps() const {
  std::vector<std::vector<std::uint64_t>> others;
  bool shared = false;
  for (int rank = 0; rank < nodes_; ++rank) {
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
  // The run begins anew and overwrites the files that are here: they must not belong to another run.
  for (int rank = 0; rank < nodes_; ++rank) {
    for (const std::uint64_t step : steps_of(rank)) {
      const std::string name = path(rank, step);
      std::ifstream file(name, std::ios::binary);
      Header header{};
      if (file && read_intact(file, header)) require_settings(name, file, header.version, header.settings);
    }
  }
  return 0;
}

/// Of a file that is intact. Reads its settings.
void CheckpointFiles::require_settings(const std::string& name, std::ifstream& file, std::uint64_t version,
                                       std::uint64_t count) const {
  if (version != kVersion || count != settings_.size()) {
    throw gpusock::Error(EINVAL, fmt::format("the checkpoint {} has version {}, with {} settings; this program reads "
                                             "version {}, with {}",
                                             name, version, count, kVersion, settings_.size()));
  }
  std::vector<std::uint64_t> settings(settings_.size());
  if (!read_all(file, settings.data(), settings.size())) throw_damaged(name, 0);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (settings[i] == settings_[i]) continue;
    throw gpusock::Error(EINVAL, "the checkpoint " + name + " is of a run with another " +
                                     field_name(static_cast<HelloField>(i)) +
                                     ": give the same arguments as then, or another folder to begin anew");
  }
}

/// Names the newest step before `step` that can be gone on from, if there is one.
void CheckpointFiles::throw_damaged(const std::string& name, std::uint64_t step) const {
  const auto all_have = [&](std::uint64_t older) {
    for (int rank = 0; rank < nodes_; ++rank) {
      const std::string file = path(rank, older);
      if ((rank == rank_ || ::access(file.c_str(), F_OK) == 0) && !is_intact(file)) return false;
    }
    return true;
  };
  for (const std::uint64_t older : common_steps()) {
    if (older >= step || !all_have(older)) continue;
    throw gpusock::Error(
        EBADMSG, fmt::format("the checkpoint {} is damaged; go on from an older step with --resume {}", name, older));
  }
  throw gpusock::Error(EBADMSG, fmt::format("the checkpoint {} is damaged, and there is no older one that all ranks "
                                            "have; to begin anew, remove the files in {}",
                                            name, folder_));
}

Checkpoint CheckpointFiles::read(std::uint64_t step, std::size_t parameters) const {
  const std::string name = path(rank_, step);
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) throw gpusock::Error(errno != 0 ? errno : EIO, "cannot read the checkpoint " + name);
  Header header{};
  if (!read_intact(file, header)) throw_damaged(name, step);
  require_settings(name, file, header.version, header.settings);
  if (header.rank != static_cast<std::uint64_t>(rank_) || header.step != step) {
    throw gpusock::Error(EINVAL, fmt::format("the checkpoint {} is rank {}'s of step {}: give it its name back", name,
                                             header.rank, header.step));
  }
  Checkpoint checkpoint{step, std::vector<float>(parameters), std::vector<float>(parameters)};
  const bool whole = header.parameters == parameters && read_all(file, checkpoint.weights.data(), parameters) &&
                     read_all(file, checkpoint.velocity.data(), parameters) && file.peek() == EOF;
  if (!whole) throw_damaged(name, step);
  return checkpoint;
}

void CheckpointFiles::write(const Checkpoint& checkpoint) const {
  Header header{
      {}, kVersion, static_cast<std::uint64_t>(rank_), checkpoint.step, settings_.size(), checkpoint.weights.size(), 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.hash = hash_of(header, settings_, checkpoint);
  const std::string name = path(rank_, checkpoint.step), unfinished = name + ".unfinished";
  const auto require = [&](int error) {
    if (error == 0) return;
    ::unlink(unfinished.c_str());
    throw gpusock::Error(error, "cannot write the checkpoint " + name);
  };
  const int descriptor = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(descriptor < 0 ? errno : 0);
  int error = write_all(descriptor, &header, sizeof header);
  if (error == 0) error = write_all(descriptor, settings_.data(), settings_.size() * sizeof(std::uint64_t));
  for (const auto* values : {&checkpoint.weights, &checkpoint.velocity}) {
    if (error == 0) error = write_all(descriptor, values->data(), values->size() * sizeof(float));
  }
  require(finish(descriptor, error));
  require(std::rename(unfinished.c_str(), name.c_str()) != 0 ? errno : 0);
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // so that the new name lasts, too
  require(folder < 0 ? errno : finish(folder, 0));
  const std::vector<std::uint64_t> steps = steps_of(rank_);
  for (std::size_t i = kKept; i < steps.size(); ++i) ::unlink(path(rank_, steps[i]).c_str());
}

}  // namespace param_sync
