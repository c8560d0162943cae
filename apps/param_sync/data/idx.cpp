#include "data/idx.hpp"

#include "gpusock/gpusock.hpp"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <string>

namespace param_sync {
namespace {

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::uint8_t kTypeUnsignedByte = 0x08;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& problem) {
  throw gpusock::Error(EINVAL, file.string() + ": " + problem +
                                   " Take the file from the data set again (Debian: apt-get install --reinstall "
                                   "dataset-fashion-mnist), or name another folder with --data");
}

/// A gzip or plain file; zlib reads both.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : path_(file), file_(gzopen(file.c_str(), "rb"), &gzclose) {
    if (!file_) {
      throw gpusock::Error(
          errno != 0 ? errno : ENOMEM,
          "cannot open " + file.string() + ": let this user read it, or name another folder with --data");
    }
    gzbuffer(file_.get(), 1 << 17);
  }

  /// Reads up to `bytes_max` bytes; fewer only at the end of the file.
  std::size_t read(std::uint8_t* to, std::size_t bytes_max) {
    const int count = gzread(file_.get(), to, static_cast<unsigned>(bytes_max));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (count < 0 || (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)) {
      refuse(path_, std::string("cannot be decompressed (") + message + ").");
    }
    if (code == Z_BUF_ERROR) refuse(path_, "the compressed data ends early.");
    return static_cast<std::size_t>(count);
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

void check_magic(const std::filesystem::path& file, const std::uint8_t* magic, std::size_t dimensions) {
  if (magic[0] != 0 || magic[1] != 0) refuse(file, "not an IDX file (it does not begin with two zero bytes).");
  if (magic[2] != kTypeUnsignedByte) {
    refuse(file, "holds elements of IDX type " + std::to_string(magic[2]) + ", expected 8 (unsigned bytes).");
  }
  if (magic[3] != dimensions) {
    refuse(file, "has " + std::to_string(magic[3]) + " dimensions, expected " + std::to_string(dimensions) +
                     (dimensions == 1 ? " (labels)." : " (images)."));
  }
}

/// Reads the header, and returns the shape that it claims.
std::vector<std::uint32_t> read_shape(Reader& reader, const std::filesystem::path& file, std::size_t dimensions) {
  std::uint8_t header[4 + 3 * 4];
  const std::size_t header_bytes = 4 + dimensions * 4;
  const std::size_t header_read = reader.read(header, header_bytes);
  if (header_read >= 4) check_magic(file, header, dimensions);
  if (header_read < header_bytes) {
    refuse(file, "ends within its header, after " + std::to_string(header_read) + " of " +
                     std::to_string(header_bytes) + " bytes.");
  }
  std::vector<std::uint32_t> shape;
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint32_t size = big_endian(header + 4 + i * 4);
    if (size == 0) refuse(file, "dimension " + std::to_string(i) + " is zero.");
    if (size > kBytesMax / bytes) refuse(file, "claims more than 1 GiB of data.");
    bytes *= size;
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

std::vector<std::uint32_t> read_idx_shape(const std::filesystem::path& file, std::size_t dimensions) {
  Reader reader(file);
  return read_shape(reader, file, dimensions);
}

IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions) {
  Reader reader(file);
  IdxArray array;
  array.shape = read_shape(reader, file, dimensions);
  std::uint64_t bytes = 1;
  for (const std::uint32_t size : array.shape) bytes *= size;
  // The header may claim any size: the array grows only as far as the file has bytes.
  while (array.bytes.size() < bytes) {
    const std::size_t before = array.bytes.size(), wanted = std::min<std::size_t>(bytes - before, kPieceBytes);
    array.bytes.resize(before + wanted);
    const std::size_t piece = reader.read(array.bytes.data() + before, wanted);
    if (piece < wanted) {
      refuse(file,
             "ends after " + std::to_string(before + piece) + " of the " + std::to_string(bytes) + " bytes it claims.");
    }
  }
  std::uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) refuse(file, "is longer than the " + std::to_string(bytes) + " bytes it claims.");
  return array;
}

}  // namespace param_sync
