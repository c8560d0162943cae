#pragma once
/// @file A model's numbers in a safetensors file (https://github.com/huggingface/safetensors), which PyTorch and others
/// read: eight bytes with the header's length, then a JSON header with each tensor's type, shape and place and with
/// strings in `__metadata__`, then the tensors. Its string "crc32" is the CRC-32 of the file in which it has eight
/// zeros.

#include "layout/layout.hpp"

#include <nlohmann/json.hpp>

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace param_sync::safetensors {

/// One number for each parameter of a model. Those of layer 0 are PREFIXlayers.0.weight and PREFIXlayers.0.bias.
struct Numbers {
  const char* prefix;
  std::span<const float> values;
};

/// What a file has before `numbers`, which follow it in this order. `about`: its strings, by their names.
std::string start_of(const Layout& layout, std::span<const Numbers> numbers, nlohmann::json about);

/// The strings of a file that is as start_of() and its writer made it, by their names; else no JSON object. The file is
/// then at its first tensor. A CRC proves no origin: what the strings say is still to be compared.
nlohmann::json read_metadata(std::ifstream& file);

/// Throws gpusock::Error.
void write_weights(const std::string& file, const Layout& layout, const std::vector<float>& weights);

}  // namespace param_sync::safetensors
