#pragma once
/// @file The scheme by which each layer is exchanged. It depends only on --scheme, --prices, --credits, the model, the
/// batch and the number of nodes, so all nodes choose alike. When they connect, they compare their choices for each
/// layer.

#include "settings/config.hpp"
#include "layout/layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync {

/// Words that --scheme takes besides the names of schemes, alone and in lists.
inline constexpr const char* kHybridScheme = "hybrid";
inline constexpr const char* kAutoScheme = "auto";

struct LayerScheme {
  std::string scheme;
  std::string why;  ///< the reason, if the program chose it; empty if the user named it
};

/// Returns a scheme for each layer, from the first to the last. `hybrid` is sfb for a layer in which the busiest node
/// of sfb sends no more bytes in a step than that of ps:even, else ps:even. `auto` is the cheapest scheme by the cost
/// model (cost/) at the prices of `config`. Throws gpusock::Error (EINVAL) if a schedule cannot be made.
std::vector<LayerScheme> choose_schemes(const Config& config, const Layout& layout);

/// Returns one number that stands for the schemes of all layers. Nodes compare it.
std::uint64_t code_of(const std::vector<LayerScheme>& schemes);

/// Describes the first layer in which two codes differ: "layer 128 x 64 has ring there, ps here". Empty if none does.
/// Codes of more than eight layers do not tell which layer it is: "they differ in some layer".
std::string describe_difference(std::uint64_t theirs, std::uint64_t ours, const Layout& layout);

/// The schemes that a layer may have, without hybrid and auto.
const std::vector<std::string>& training_schemes();

/// Says what is wrong with the text of --scheme for a model of these layers; empty if nothing is.
std::string scheme_problem(const std::string& text, const std::vector<AnyLayer>& layers);

/// The parts of --scheme: one, or one for each layer.
std::vector<std::string> scheme_parts(const std::string& text);

/// True if --prices decide the scheme of a layer.
bool chooses_by_prices(const std::string& scheme);

/// Returns the prices as --prices takes them.
std::string prices_text(const ExchangePrices& prices);

/// True if `is_such` holds for each part of --scheme.
bool all_parts(const std::string& text, bool (*is_such)(const std::string&));

}  // namespace param_sync
