#include "mscclpp_maker.hpp"

namespace foreign_test {

Json on_channel(const char* name, const char* type) {
  return {{"name", name}, {"channel_ids", {0}}, {"channel_type", type}};
}
Json own(const char* type, int index, int size) { return {{"type", type}, {"index", index}, {"size", size}}; }
Json remote(int id, int index, int size) { return {{"buffer_id", id}, {"index", index}, {"size", size}}; }
Json move(const char* name, const std::vector<Json>& sources, const std::vector<Json>& targets, const char* type) {
  return {{"name", name}, {"src_buff", sources}, {"dst_buff", targets}, {"channel_type", type}, {"channel_ids", {0}}};
}

Json pair(const char* collective, int input, int output, int scratch, const std::vector<Json>& first,
          const std::vector<Json>& second, const char* type) {
  Json plan = {{"name", "pair"}, {"collective", collective}, {"protocol", "Simple"}, {"inplace", true}};
  for (int rank = 0; rank < 2; ++rank) {
    Json remote_buffers = Json::array();
    for (const char* buffer : {"i", "o", "s"}) {
      remote_buffers.push_back({{"rank", 1 - rank}, {"type", buffer}, {"access_channel_types", {type}}});
    }
    Json block = {{"id", 0}, {"ops", rank == 0 ? first : second}};
    block["channels"] = Json::array({{{"channel_type", type}, {"channel_ids", {0}}}});
    block["remote_buffer_refs"] = Json::array({{{"access_channel_type", type}, {"remote_buffer_ids", {0, 1, 2}}}});
    Json gpu = {{"id", rank}, {"input_chunks", input}, {"output_chunks", output}, {"scratch_chunks", scratch}};
    gpu["channels"] = Json::array({{{"channel_type", type}, {"connected_to", {1 - rank}}}});
    gpu["remote_buffers"] = remote_buffers;
    gpu["semaphores"] = Json::array({{{"init_value", 0}}});
    gpu["threadblocks"] = Json::array({block});
    plan["gpus"].push_back(gpu);
  }
  return plan;
}

std::vector<Json> surrounded(const std::vector<Json>& operations) {
  std::vector<Json> all{on_channel("rlxsignal"), on_channel("rlxwait"), kNop};
  all.insert(all.end(), operations.begin(), operations.end());
  for (const Json& each : {kNop, on_channel("signal"), on_channel("wait")}) all.push_back(each);
  return all;
}

Json pipeline(int slices_ahead) {
  Json plan = {{"name", "p"},
               {"collective", "allreduce"},
               {"protocol", "Simple"},
               {"inplace", false},
               {"reuse_resources", true}};
  const auto loop = [](const Json& operations) {
    return Json{
        {"name", "pipeline"}, {"iter_context", {{"unit_size", 1 << 25}, {"num_chunks", 1}}}, {"ops", operations}};
  };
  const auto semaphore = [](const char* name, int id) { return Json{{"name", name}, {"semaphore_ids", {id}}}; };
  Json gpu = {{"id", 0}, {"input_chunks", 1}, {"output_chunks", 1}, {"scratch_chunks", 1}, {"channels", Json::array()}};
  gpu["semaphores"] = {{{"init_value", 0}}, {{"init_value", slices_ahead}}};
  gpu["threadblocks"] = {{{"id", 0},
                          {"ops",
                           {loop({semaphore("sem_acquire", 1), kNop, move("copy", {own("i", 0)}, {own("s", 0)}), kNop,
                                  semaphore("sem_release", 0)})}}},
                         {{"id", 1},
                          {"ops",
                           {loop({semaphore("sem_acquire", 0), kNop, move("copy", {own("s", 0)}, {own("o", 0)}), kNop,
                                  semaphore("sem_release", 1)})}}}};
  plan["gpus"] = Json::array({gpu});
  return plan;
}

}  // namespace foreign_test
