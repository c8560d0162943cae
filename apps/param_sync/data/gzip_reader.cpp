#include "data/gzip_reader.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cerrno>

namespace param_sync {

void refuse_data(const std::filesystem::path& file, const std::string& problem) {
  throw gpusock::Error(EINVAL, file.string() + ": " + problem + " Mend the file, or name other data with --data");
}

GzipReader::GzipReader(const std::filesystem::path& file) : path_(file), file_(gzopen(file.c_str(), "rb"), &gzclose) {
  if (!file_) {
    throw gpusock::Error(errno != 0 ? errno : ENOMEM,
                         "cannot open " + file.string() + ": let this user read it, or name other data with --data");
  }
  gzbuffer(file_.get(), 1 << 17);
}

std::size_t GzipReader::read(void* to, std::size_t bytes_max) {
  const int count = gzread(file_.get(), to, static_cast<unsigned>(bytes_max));
  int code = Z_OK;
  const char* message = gzerror(file_.get(), &code);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)) {
    refuse_data(path_, std::string("cannot be decompressed (") + message + ").");
  }
  if (code == Z_BUF_ERROR) refuse_data(path_, "the compressed data ends early.");
  return static_cast<std::size_t>(count);
}

std::string GzipReader::read_all() {
  constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
  std::string all;
  for (;;) {
    const std::size_t before = all.size(), wanted = std::max(before, kFirstBytes);
    if (before > kBytesMax) refuse_data(path_, "holds more than 1 GiB of data.");
    all.resize(before + wanted);
    const std::size_t piece = read(all.data() + before, wanted);
    all.resize(before + piece);
    if (piece < wanted) return all;
  }
}

}  // namespace param_sync
