#pragma once
/// @file What libfabric's provider shm leaves of a process that was killed: 16 MiB files that nobody removes.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace gpusock {

/// The files of this process's endpoints.
inline std::vector<std::filesystem::path> shm_files_of(pid_t process) {
  std::vector<std::filesystem::path> found;
  const std::string prefix = std::to_string(process) + ':';
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", error)) {
    if (file.path().filename().string().starts_with(prefix)) found.push_back(file.path());
  }
  return found;
}

/// For a process that was killed and is gone.
inline void remove_shm_files_of(pid_t process) {
  std::error_code error;
  for (const auto& file : shm_files_of(process)) std::filesystem::remove(file, error);
}

}  // namespace gpusock
