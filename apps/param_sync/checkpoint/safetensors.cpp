#include "checkpoint/safetensors.hpp"

#include "gpusock/error.hpp"
#include "program/run.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <utility>

namespace param_sync::safetensors {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t kHeaderBytesMax = 1 << 20;  // our headers need some 400 for each layer
constexpr const char* kMetadata = "__metadata__";
constexpr std::string_view kBeforeCrc = R"("crc32":")";
constexpr const char* kNoCrc = "00000000";

unsigned long crc_of(const void* data, std::size_t bytes, unsigned long before) {
  return crc32_z(before, static_cast<const Bytef*>(data), bytes);
}

/// Replaces the eight digits of the header's CRC-32 by `digits`. Returns the old ones, or nothing if it has none.
std::string exchange_crc(std::string& header, const std::string& digits) {
  const std::size_t found = header.find(kBeforeCrc), at = found + kBeforeCrc.size();
  if (found == std::string::npos || at + digits.size() > header.size()) return "";
  std::string before = header.substr(at, digits.size());
  header.replace(at, digits.size(), digits);
  return before;
}

}  // namespace

/// What a header says of the tensors.
static json tensors_of(const Layout& layout, std::span<const Numbers> numbers) {
  json header = json::object();
  std::uint64_t end = 0;
  const auto add = [&](const std::string& name, const TensorShape& tensor) {
    const std::uint64_t begin = std::exchange(end, end + tensor.floats() * sizeof(float));
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  };
  for (const Numbers& one : numbers) {
    for (int i = 0; i < layout.size(); ++i) {
      for (const TensorShape& tensor : layout[i].tensors()) {
        add(fmt::format("{}layers.{}.{}", one.prefix, i, tensor.name), tensor);
      }
    }
  }
  return header;
}

std::string start_of(const Layout& layout, std::span<const Numbers> numbers, json about) {
  about["crc32"] = kNoCrc;
  json header = tensors_of(layout, numbers);
  header[kMetadata] = std::move(about);  // comes first: names are sorted
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the tensors
  const std::uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  unsigned long crc = crc_of(text.data(), text.size(), 0);
  for (const Numbers& one : numbers) crc = crc_of(one.values.data(), one.values.size_bytes(), crc);
  exchange_crc(text, fmt::format("{:08x}", crc));
  return text;
}

/// Returns the header of a file, and leaves the file at its first tensor; no JSON object if it is not as it was
/// written.
static json read_header(std::ifstream& file) {
  std::uint64_t length = 0;
  if (!file.read(reinterpret_cast<char*>(&length), sizeof length) || length > kHeaderBytesMax) return nullptr;
  std::string header(sizeof length + length, '\0');
  if (!file.seekg(0) || !file.read(header.data(), static_cast<std::streamsize>(header.size()))) return nullptr;
  const std::string told = exchange_crc(header, kNoCrc);
  unsigned long crc = crc_of(header.data(), header.size(), 0);
  std::array<char, 64 << 10> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    crc = crc_of(part.data(), static_cast<std::size_t>(file.gcount()), crc);
  }
  if (file.bad() || told != fmt::format("{:08x}", crc)) return nullptr;
  file.clear();
  file.seekg(static_cast<std::streamoff>(header.size()));
  return json::parse(header.begin() + sizeof length, header.end(), nullptr, false);
}

json read_metadata(std::ifstream& file) {
  json header = read_header(file);
  return header.is_object() ? std::move(header[kMetadata]) : json();
}

std::vector<float> read_weights(const std::string& name, const Layout& layout) {
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file) throw gpusock::Error(errno != 0 ? errno : EIO, "cannot read the weights " + name);
  const json header = read_header(file);
  if (!header.is_object()) {
    throw gpusock::Error(EBADMSG, "the weights " + name +
                                      " are damaged, or were not written by param_sync --save-weights or --checkpoint");
  }
  std::vector<float> weights(layout.parameters());
  const Numbers numbers{"", weights};
  const json wanted = tensors_of(layout, {&numbers, 1});
  std::uint64_t tensors = 0;
  for (const auto& [tensor, about] : header.items()) tensors += tensor.starts_with("layers.") ? 1 : 0;
  for (const auto& [tensor, about] : wanted.items()) {
    if (tensors == wanted.size() && header.contains(tensor) && header[tensor] == about) continue;
    throw gpusock::Error(
        EINVAL,
        "the weights " + name +
            " are of a model with other layers: give the --model, --hidden, --batch-norm and --data of its training");
  }
  const auto bytes = static_cast<std::streamsize>(weights.size() * sizeof(float));
  if (!file.read(reinterpret_cast<char*>(weights.data()), bytes)) {
    throw gpusock::Error(EIO, "cannot read the weights " + name);
  }
  return weights;
}

void write_weights(const std::string& file, const Layout& layout, const std::vector<float>& weights) {
  const Numbers numbers{"", weights};
  gpusock::program::write_file(
      file, start_of(layout, {&numbers, 1}, json::object())
                .append(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)));
}

}  // namespace param_sync::safetensors
