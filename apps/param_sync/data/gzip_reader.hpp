#pragma once
/// @file Reads files that may be compressed.

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace param_sync {

/// A gzip or plain file; zlib reads both.
class GzipReader {
 public:
  static constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30;  ///< more is refused by those who read

  /// Throws gpusock::Error if the file cannot be opened.
  explicit GzipReader(const std::filesystem::path& file);

  /// Reads up to `bytes_max` bytes; fewer only at the end of the file. Throws gpusock::Error (EINVAL) if the file
  /// cannot be decompressed, or ends early.
  std::size_t read(void* to, std::size_t bytes_max);
  /// Reads what is left. Throws gpusock::Error (EINVAL), also if that is more than kBytesMax.
  std::string read_all();

 private:
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

/// Throws gpusock::Error (EINVAL), which names the file. `problem` ends with a full stop.
[[noreturn]] void refuse_data(const std::filesystem::path& file, const std::string& problem);

}  // namespace param_sync
