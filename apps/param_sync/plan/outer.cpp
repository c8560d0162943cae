#include "plan/outer.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>
#include <string>

namespace param_sync {

Sgd outer_of(std::string_view text) {
  constexpr std::string_view kNesterov = "nesterov";
  Sgd outer{.learning_rate = -1, .momentum = 0, .scale = 1};  // adds what is pushed
  if (text.empty()) return outer;
  outer = {.learning_rate = 0.7f, .momentum = 0.9f, .scale = -1, .nesterov = true};  // a change goes down the slope
  if (text == kNesterov) return outer;
  if (text.starts_with("nesterov:")) {
    const char* const end = text.data() + text.size();
    const auto rate = std::from_chars(text.data() + kNesterov.size() + 1, end, outer.learning_rate);
    if (rate.ec == std::errc() && rate.ptr != end && *rate.ptr == ',') {
      const auto momentum = std::from_chars(rate.ptr + 1, end, outer.momentum);
      const bool in_range = outer.learning_rate > 0 && outer.learning_rate <= 10 && outer.momentum >= 0 &&
                            outer.momentum < 1;
      if (momentum.ec == std::errc() && momentum.ptr == end && in_range) return outer;
    }
  }
  throw gpusock::Error::with_cause(EINVAL, "'" + std::string(text) +
                                               "' is neither nesterov nor nesterov:LR,MOMENTUM, as nesterov:0.7,0.9 "
                                               "(LR up to 10, MOMENTUM less than 1)");
}

}  // namespace param_sync
