#pragma once
/// @file A model's numbers in a safetensors file (https://github.com/huggingface/safetensors), which PyTorch and others
/// read: eight bytes with the header's length, then a JSON header, then the tensors. The header has the type, shape and
/// offsets of each tensor, and strings in `__metadata__`. The string "crc32" is the CRC-32 of the file while that
/// string is eight zeros.

#include "layout/layout.hpp"

#include <nlohmann/json.hpp>

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace param_sync::safetensors {

/// One number for each parameter of a model. Layer 0 has the tensors PREFIXlayers.0.weight and PREFIXlayers.0.bias.
struct Numbers {
  const char* prefix;
  std::span<const float> values;
};

/// Returns what a file has before `numbers`, which follow in this order. `about`: the strings, by their names.
std::string start_of(const Layout& layout, std::span<const Numbers> numbers, nlohmann::json about);

/// Returns the strings of a file, by their names, and leaves the file at its first tensor. If the file is not as it was
/// written, returns no JSON object. The CRC does not prove who wrote the file: compare what the strings say.
nlohmann::json read_metadata(std::ifstream& file);

/// Returns the weights of a file that write_weights() has written, or of a checkpoint. Throws gpusock::Error, which
/// says what is wrong with the file: also if its layers are not those of `layout`.
std::vector<float> read_weights(const std::string& file, const Layout& layout);

/// Throws gpusock::Error.
void write_weights(const std::string& file, const Layout& layout, const std::vector<float>& weights);

}  // namespace param_sync::safetensors
