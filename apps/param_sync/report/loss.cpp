#include "report/loss.hpp"

#include <nlohmann/json.hpp>

namespace param_sync {

nlohmann::json to_json(const Loss& loss) {
  nlohmann::json json{{"cause", loss.cause}};
  if (loss.step_progress) json["step_progress"] = to_json(*loss.step_progress);
  return json;
}

Loss loss_from(const nlohmann::json& json) {
  Loss loss{json.at("cause").get<Loss::Cause>()};
  if (json.contains("step_progress")) loss.step_progress = step_progress_from(json.at("step_progress"));
  return loss;
}

void Losses::add(const Loss& loss) {
  if (cause_ == Loss::Cause::unknown) cause_ = loss.cause;
  if (loss.step_progress) step_progress_.push_back(*loss.step_progress);
}

}  // namespace param_sync
