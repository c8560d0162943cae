// MSCCL++'s JSON: what is read, and what is refused with its field.
#include "mscclpp_maker.hpp"

#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

namespace {

using namespace foreign_test;
using namespace param_sync::foreign;
using gpusock::test::error_of;

std::string problem(const Json& json) {
  return error_of<Error>([&] { read_plan(json.dump()); });
}
std::string verdict(const Json& json) {
  const Proof proof = prove(read_plan(json.dump()));
  if (!proof.is_proved) return proof.why;
  return proof.in_a_row.empty() ? "proved" : "one call is proved; " + proof.in_a_row;
}
TEST(Mscclpp, PutsGetsAndSignals) {
  const auto put = [](int rank) { return move("put", {own("o", rank)}, {remote(1, rank)}); };
  EXPECT_EQ(verdict(pair("allgather", 1, 2, 0, surrounded({put(0)}), surrounded({put(1)}))), "proved");
  const auto get = [](int rank) { return move("get", {remote(1, 1 - rank)}, {own("o", 1 - rank)}); };
  EXPECT_EQ(verdict(pair("allgather", 1, 2, 0, surrounded({get(0)}), surrounded({get(1)}))), "proved");
  EXPECT_EQ(verdict(pair("allgather", 1, 2, 0, {put(0), kNop, on_channel("signal"), on_channel("wait")},
                         {put(1), kNop, on_channel("signal"), on_channel("wait")}))
                .substr(0, 26),
            "one call is proved; race: ");
  EXPECT_EQ(verdict(pair("allgather", 1, 2, 0, {put(0)}, {put(1)})).substr(0, 35),
            "race: rank 1, thread block 0, opera");
  EXPECT_NE(verdict(pair("allgather", 1, 2, 0, surrounded({put(0)}), surrounded({})))
                .find("result: output chunk 1 of rank 0"),
            std::string::npos);
}

TEST(Mscclpp, ReductionsOfAllKinds) {
  const auto of_both = [](const char* name, bool sends) {
    // Each rank sums a chunk of its own input and the other's, and sends it if the operation does.
    std::vector<Json> by_rank[2];
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<Json> targets{own("i", rank)};
      if (sends) targets.push_back(remote(0, rank));
      by_rank[rank] = surrounded({move(name, {own("i", rank), remote(0, rank)}, targets)});
    }
    return pair("allreduce", 2, 2, 0, by_rank[0], by_rank[1]);
  };
  EXPECT_EQ(verdict(of_both("rres", true)), "proved");
  EXPECT_NE(verdict(of_both("rre", false)).find("lacks"), std::string::npos);
  const auto by_scratch = [](const char* name, bool sends) {
    std::vector<Json> by_rank[2];
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<Json> targets{own("i", rank)};
      if (sends) targets.push_back(remote(0, rank));
      by_rank[rank] = surrounded({move("put", {own("i", 1 - rank)}, {remote(2, 0)}), kNop, on_channel("signal"),
                                  on_channel("wait"), kNop, move(name, {own("i", rank), own("s", 0)}, targets)});
    }
    return pair("allreduce", 2, 0, 1, by_rank[0], by_rank[1]);
  };
  EXPECT_EQ(verdict(by_scratch("res", true)), "proved");
  EXPECT_NE(verdict(by_scratch("re", false)).find("lacks"), std::string::npos);
}

TEST(Mscclpp, Packets) {
  std::vector<Json> by_rank[2];
  for (int rank = 0; rank < 2; ++rank) {
    by_rank[rank] = {move("ppkt", {own("i", 1 - rank)}, {remote(2, 0)}),
                     move("respkt", {own("i", rank), own("s", 0)}, {own("i", rank), remote(2, 1)}),
                     move("upkt", {own("s", 1)}, {own("i", 1 - rank)})};
  }
  Json plan = pair("allreduce", 2, 2, 2, by_rank[0], by_rank[1]);
  plan["use_double_scratch_buffer"] = true;
  EXPECT_EQ(verdict(plan), "proved");
  plan["use_double_scratch_buffer"] = false;
  EXPECT_EQ(verdict(plan), "proved");  // each rank hears of the other's reads before it ends
  plan["gpus"][1]["threadblocks"][0]["ops"].erase(0);
  EXPECT_EQ(verdict(plan),
            "deadlock: rank 0, thread block 0, operation 1 (respkt) waits for the flags of scratch packet chunk 0 of "
            "rank 0; 1 "
            "more thread blocks wait");
  plan["gpus"][1]["threadblocks"][0]["ops"] = Json::array({move("copy", {own("i", 0)}, {own("s", 1)})});
  EXPECT_NE(error_of<Error>([&] {
              read_plan(plan.dump());
            }).find("both packets and plain data in the scratch memory of rank 1"),
            std::string::npos);
  plan["gpus"][1]["threadblocks"][0]["ops"] = Json::array({move("cpkt", {own("i", 0)}, {own("i", 1)})});
  EXPECT_NE(problem(plan).find("gpus[1].threadblocks[0].ops[0]: has packets that are not in scratch memory"),
            std::string::npos);
}

TEST(Mscclpp, PortsMoveDataBesideTheBlock) {
  const auto plan = [](const char* put, const std::vector<Json>& after) {
    std::vector<Json> by_rank[2];
    for (int rank = 0; rank < 2; ++rank) {
      by_rank[rank] = {on_channel("signal", "port"), on_channel("wait", "port"), kNop,
                       move(put, {own("o", rank)}, {remote(1, rank)}, "port")};
      by_rank[rank].insert(by_rank[rank].end(), after.begin(), after.end());
      by_rank[rank].push_back(on_channel("wait", "port"));
    }
    return pair("allgather", 1, 2, 0, by_rank[0], by_rank[1], "port");
  };
  EXPECT_EQ(verdict(plan("pwsf", {})), "proved");
  EXPECT_EQ(verdict(plan("pws", {on_channel("flush", "port")})), "proved");
  EXPECT_EQ(verdict(plan("put", {on_channel("signal", "port"), on_channel("flush", "port")})), "proved");
  // Without a flush the caller may write the next input while the proxy reads this one.
  EXPECT_EQ(verdict(plan("pws", {})).substr(0, 26), "one call is proved; race: ");
}

TEST(Mscclpp, SwitchesReduceAndStoreAtAllRanks) {
  std::vector<Json> by_rank[2];
  for (int rank = 0; rank < 2; ++rank) {
    const Json place = {{"switch_channel_id", 0}, {"index", rank}, {"size", 1}};
    by_rank[rank] = surrounded({move("glres", {place}, {place}, "switch")});
  }
  Json plan = pair("allreduce", 2, 2, 0, by_rank[0], by_rank[1]);
  for (int rank = 0; rank < 2; ++rank) {
    Json& gpu = plan["gpus"][static_cast<std::size_t>(rank)];
    gpu["channels"].push_back(
        {{"channel_type", "switch"}, {"buffer_type", "i"}, {"rank_groups", {{{"size", 2}, {"ranks", {0, 1}}}}}});
    gpu["threadblocks"][0]["channels"].push_back({{"channel_type", "switch"}, {"channel_ids", {0}}});
  }
  EXPECT_EQ(verdict(plan), "proved");
  for (Json& operation : plan["gpus"][0]["threadblocks"][0]["ops"]) {
    if (operation["name"] == "signal") operation["name"] = "rlxsignal";
  }
  EXPECT_EQ(verdict(plan).substr(0, 20), "race: the caller of ");
  EXPECT_TRUE(prove(read_plan(plan.dump())).if_relaxed);
}

TEST(Mscclpp, PartsOfABlockGroupAreSlices) {
  Json plan = pair("allgather", 1, 2, 0, surrounded({move("put", {own("o", 0)}, {remote(1, 0)})}),
                   surrounded({move("put", {own("o", 1)}, {remote(1, 1)})}));
  plan["gpus"][0]["threadblocks"][0]["ops"][3]["tbg_info"] = {{"tb_id", 0}, {"tbg_size", 2}};
  EXPECT_EQ(read_plan(plan.dump()).slices, 2);
  EXPECT_NE(verdict(plan).find("result: output chunk 0 (slice 1 of 2) of rank 1"), std::string::npos) << verdict(plan);
  Json other = plan["gpus"][0]["threadblocks"][0]["ops"][3];
  other["tbg_info"]["tb_id"] = 1;
  plan["gpus"][0]["threadblocks"][0]["ops"].insert(plan["gpus"][0]["threadblocks"][0]["ops"].begin() + 4, other);
  EXPECT_EQ(verdict(plan), "proved");
}

TEST(Mscclpp, PipelinesReuseScratchMemory) {
  EXPECT_EQ(verdict(pipeline(2)), "proved");  // scratch memory has two slices of 32 MiB
  EXPECT_NE(verdict(pipeline(3)).find("race: "), std::string::npos);
  EXPECT_NE(verdict(pipeline(0))
                .find("deadlock: rank 0, thread block 0, operation 0 (sem_acquire, number 0 of a pipeline), "
                      "iteration 0 waits for semaphore 1 of rank 0"),
            std::string::npos);
}

TEST(Mscclpp, BarriersAndBounds) {
  const Json barrier = {{"name", "barrier"}, {"barrier_id", 0}, {"num_threadblocks", 2}};
  Json plan = pair("allreduce", 1, 1, 0, {barrier}, {});
  EXPECT_EQ(verdict(plan), "deadlock: rank 0, thread block 0, operation 0 (barrier) waits for barrier 0 of rank 0");
  plan = pair("allreduce", 1, 1, 1, {move("copy", {own("s", 1)}, {own("i", 0)})}, {});
  EXPECT_EQ(verdict(plan),
            "bounds: rank 0, thread block 0, operation 0 (copy) goes beyond the end of the buffer: scratch chunk "
            "1 of rank 0 is not there");
}

TEST(Mscclpp, BadFilesAreRefusedByField) {
  const Json good = pair("allgather", 1, 2, 0, surrounded({move("put", {own("o", 0)}, {remote(1, 0)})}),
                         surrounded({}));
  const auto expect = [&good](const char* pointer, const Json& value, const std::string& says) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    const std::string found = problem(json);
    EXPECT_NE(found.find(says), std::string::npos) << found;
  };
  expect("/collective", "scan", "the plan: the collective \"scan\" is none that we can prove");
  expect("/inplace", 1, "the plan, inplace: is 1, not true or false");
  expect("/gpus", Json::array(), "the plan, gpus: has 0 entries, not 1 to 1024");
  expect("/gpus/1/id", 0, "gpus[1].id: is 0, not 1");
  expect("/gpus/1/output_chunks", 4, "gpus[1]: has 4 chunks of data, but rank 0 has 2");
  expect("/gpus/0/output_chunks", 3, "gpus[0]: 2 ranks cannot share 3 chunks evenly");
  expect("/gpus/0/channels/0/channel_type", "wire",
         "channel_type: is \"wire\", not \"memory\", \"port\" or \"switch\"");
  expect("/gpus/0/channels/0/connected_to/0", 0, "connected_to[0]: is the rank itself");
  expect("/gpus/0/remote_buffers/0/type", "x", "type: is \"x\", not \"i\", \"o\" or \"s\"");
  expect("/gpus/0/threadblocks/0/id", 1, "threadblocks[0].id: is 1, not 0");
  expect("/gpus/0/threadblocks/0/channels/0/channel_ids/0", 1, "channel_ids[0]: is 1, not 0");
  expect("/gpus/0/threadblocks/0/remote_buffer_refs/0/remote_buffer_ids/0", 3,
         "remote_buffer_ids[0]: is 3, not 0 to 2");
  expect("/gpus/0/threadblocks/0/ops/0/name", "jump", "ops[0].name: is \"jump\", which we do not know");
  expect("/gpus/0/threadblocks/0/ops/0/channel_ids/0", 1, "ops[0].channel_ids[0]: is 1, not 0");
  expect("/gpus/0/threadblocks/0/ops/3/dst_buff/0/buffer_id", 3, "dst_buff[0].buffer_id: is 3, not 0 to 2");
  expect("/gpus/0/threadblocks/0/ops/3/dst_buff/0/size", 2, "ops[3]: has sources and targets of different sizes");
  expect("/gpus/0/threadblocks/0/ops/3/dst_buff", Json::array(), "dst_buff: is empty");
  expect("/gpus/0/threadblocks/0/ops/3/src_buff/0", remote(1, 0),
         "uses another rank's buffer, which this operation cannot");
  expect("/gpus/0/threadblocks/0/ops/3/tbg_info", {{"tb_id", 2}, {"tbg_size", 2}}, "tb_id: is 2, not 0 to 1");
  expect("/gpus/0/threadblocks/0/ops/3/name", "pws", "needs a port channel");
  expect("/gpus/0/threadblocks/0/ops/0", {{"name", "sem_acquire"}, {"semaphore_ids", {1}}},
         "is none of the semaphores of the rank");
  Json old = good;
  old["gpus"][0].erase("input_chunks");
  EXPECT_NE(problem(old).find("gpus[0]: \"input_chunks\" is missing"), std::string::npos) << problem(old);
}

TEST(Mscclpp, OlderFormatsAreNamed) {
  Json released = pair("allgather", 1, 2, 0, surrounded({}), surrounded({}));
  Json draft = released;
  Json& gpu = released["gpus"][0];
  gpu["inputChunks"] = gpu["input_chunks"];
  gpu.erase("input_chunks");
  EXPECT_NE(problem(released).find("gpus[0]: has \"inputChunks\": this is the format of MSCCL++ 0.5 to 0.7"),
            std::string::npos)
      << problem(released);
  Json& channel = draft["gpus"][0]["channels"][0];
  channel["type"] = channel["channel_type"];
  channel.erase("channel_type");
  EXPECT_NE(problem(draft).find("gpus[0].channels[0]: has \"type\": this is a draft of MSCCL++ 0.8's format"),
            std::string::npos)
      << problem(draft);
}

TEST(Mscclpp, EachPrefixAndEachChangedByteEnds) {
  const std::string good = pipeline(2).dump();
  const auto ends = [](const std::string& text) {
    try {
      prove(read_plan(text));
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  };
  for (std::size_t size = 0; size < good.size(); size += 5) ends(good.substr(0, size));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string text = good;
    text[at] = "9-\"{0[e"[at % 7];
    ends(text);
  }
}

}  // namespace
