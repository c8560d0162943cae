#include "data/idx.hpp"

#include "data/gzip_reader.hpp"

#include <algorithm>
#include <string>

namespace param_sync {
namespace {

constexpr std::uint64_t kBytesMax = GzipReader::kBytesMax;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::uint8_t kTypeUnsignedByte = 0x08;

[[noreturn]] void refuse_idx(const std::filesystem::path& file, const std::string& problem) {
  refuse_data(file, problem +
                        " Take it from the data set again (Debian: apt-get install --reinstall "
                        "dataset-fashion-mnist).");
}

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

void check_magic(const std::filesystem::path& file, const std::uint8_t* magic, std::size_t dimensions) {
  if (magic[0] != 0 || magic[1] != 0) refuse_idx(file, "not an IDX file (it does not begin with two zero bytes).");
  if (magic[2] != kTypeUnsignedByte) {
    refuse_idx(file, "holds elements of IDX type " + std::to_string(magic[2]) + ", expected 8 (unsigned bytes).");
  }
  if (magic[3] != dimensions) {
    refuse_idx(file, "has " + std::to_string(magic[3]) + " dimensions, expected " + std::to_string(dimensions) +
                         (dimensions == 1 ? " (labels)." : " (images)."));
  }
}

/// Reads the header, and returns the shape that it claims.
std::vector<std::uint32_t> read_shape(GzipReader& reader, const std::filesystem::path& file, std::size_t dimensions) {
  std::uint8_t header[4 + 3 * 4];
  const std::size_t header_bytes = 4 + dimensions * 4;
  const std::size_t header_read = reader.read(header, header_bytes);
  if (header_read >= 4) check_magic(file, header, dimensions);
  if (header_read < header_bytes) {
    refuse_idx(file, "ends within its header, after " + std::to_string(header_read) + " of " +
                         std::to_string(header_bytes) + " bytes.");
  }
  std::vector<std::uint32_t> shape;
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint32_t size = big_endian(header + 4 + i * 4);
    if (size == 0) refuse_idx(file, "dimension " + std::to_string(i) + " is zero.");
    if (size > kBytesMax / bytes) refuse_idx(file, "claims more than 1 GiB of data.");
    bytes *= size;
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

std::vector<std::uint32_t> read_idx_shape(const std::filesystem::path& file, std::size_t dimensions) {
  GzipReader reader(file);
  return read_shape(reader, file, dimensions);
}

IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions, std::size_t items_max) {
  GzipReader reader(file);
  IdxArray array;
  array.shape = read_shape(reader, file, dimensions);
  const bool reads_all = items_max == 0 || items_max >= array.items();
  const std::uint64_t claimed = array.item_bytes() * array.items();
  const std::uint64_t bytes = reads_all ? claimed : array.item_bytes() * items_max;
  // The header may claim any size: the array grows only as far as the file has bytes.
  while (array.bytes.size() < bytes) {
    const std::size_t before = array.bytes.size(), wanted = std::min<std::size_t>(bytes - before, kPieceBytes);
    array.bytes.resize(before + wanted);
    const std::size_t piece = reader.read(array.bytes.data() + before, wanted);
    if (piece < wanted) {
      refuse_idx(file, "ends after " + std::to_string(before + piece) + " of the " + std::to_string(claimed) +
                           " bytes it claims.");
    }
  }
  std::uint8_t extra = 0;
  if (reads_all && reader.read(&extra, 1) != 0)
    refuse_idx(file, "is longer than the " + std::to_string(claimed) + " bytes it claims.");
  return array;
}

}  // namespace param_sync
