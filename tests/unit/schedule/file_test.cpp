// Schedules as files: what is written is read again, and what is no schedule is refused by name.
#include "topologies.hpp"

#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/file.hpp"
#include "param_sync/schedule/json_price.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

namespace {

using namespace param_sync::schedule;
using gpusock::test::error_of;
using Json = nlohmann::json;

constexpr const char* kPair =
    R"({"version": 1, "scheme": "pair", "nodes": 2, "chunks": 3, "result": "all_reduce", "ranks": [
  {"lanes": [[{"op": "recv_reduce", "chunk": 0, "count": 3, "from": 1}, {"op": "send", "chunk": 0, "count": 3, "to": 1}]]},
  {"lanes": [[{"op": "send", "chunk": 0, "count": 3, "to": 0}],
             [{"op": "recv", "chunk": 0, "count": 3, "from": 0, "channel": 0, "after": [[0, 0]]}]]}]})";

std::string file_problem(const std::string& text) {
  return error_of<Error>([&] { from_json(text); });
}

TEST(ScheduleFile, EveryFieldIsRead) {
  const Schedule schedule = from_json(kPair);
  EXPECT_EQ(schedule.scheme, "pair");
  EXPECT_EQ(schedule.chunks, 3);
  EXPECT_EQ(schedule.workers, 2);
  EXPECT_EQ(schedule.result, Result::all_reduce);
  ASSERT_EQ(schedule.nodes(), 2);
  EXPECT_EQ(schedule.ranks[0].lanes[0][0], (Op{Kind::recv_reduce, 0, 3, 1, kNobody, 0, {}}));
  EXPECT_EQ(schedule.ranks[1].lanes[1][0], (Op{Kind::recv, 0, 3, 0, kNobody, 0, {{0, 0}}}));
  EXPECT_EQ(check(schedule).depth, 2);
}

TEST(ScheduleFile, WhatIsWrittenIsReadAgain) {
  const Topology topology = schedule_test::random_topology(5, 6, 1);
  for (const std::string& scheme : scheme_names()) {
    Request request;
    request.nodes = 5;
    request.summation_nodes = 2;
    request.topology = &topology;
    Schedule schedule = generate(scheme, request);
    EXPECT_EQ(from_json(to_json(schedule)), schedule) << scheme;
    EXPECT_TRUE(Json::parse(to_json(schedule)).is_object());
  }
  Schedule odd = from_json(kPair);
  odd.scheme = "\"\\\n\x01 \xc3\xa9";
  odd.result = Result::broadcast;
  odd.root = 1;
  EXPECT_EQ(from_json(to_json(odd)), odd);
}

TEST(ScheduleFile, MoreFieldsAreIgnoredAndDefaultsHold) {
  Json json = Json::parse(kPair);
  json["author"] = "somebody";
  json["ranks"][0]["name"] = 7;
  json["ranks"][0]["lanes"][0][0]["buffer"] = Json::array({1, 2});
  json["ranks"][1]["lanes"][1][0].erase("channel");
  EXPECT_EQ(from_json(json.dump()), from_json(kPair));
}

TEST(ScheduleFile, BadFilesAreRefusedByField) {
  const auto expect = [](const char* pointer, const Json& value, const std::string& says) {
    Json json = Json::parse(kPair);
    json[Json::json_pointer(pointer)] = value;
    const std::string problem = file_problem(json.dump());
    EXPECT_NE(problem.find(says), std::string::npos) << problem;
  };
  expect("/version", 2, "the schedule, version: is 2, not 1");
  expect("/version", "1", "version: is \"1\", not a whole number");
  expect("/scheme", 3, "scheme: is 3, not a string");
  expect("/nodes", 3, "ranks: has 2 entries, but \"nodes\" is 3");
  expect("/nodes", 0, "nodes: is 0, not 1 to 1024");
  expect("/nodes", -1, "nodes: is -1, not 1 to 1024");
  expect("/nodes", 2.5, "nodes: is 2.5, not a whole number");
  expect("/nodes", std::uint64_t{1} << 63, "nodes: is 9223372036854775808, not 1 to 1024");
  expect("/chunks", 0, "chunks: is 0, not 1 to 1048576");
  expect("/chunks", 4294967297, "chunks: is 4294967297, not");
  expect("/result", "sum", "result: is \"sum\", which is none of \"all_reduce\", \"reduce_scatter\",");
  expect("/ranks", Json::object(), "ranks: is an object, not an array");
  expect("/ranks/1", 5, "ranks[1]: is 5, not an object");
  expect("/ranks/1/lanes", nullptr, "ranks[1].lanes: is null, not an array");
  expect("/ranks/1/lanes/0", "x", "ranks[1].lanes[0]: is \"x\", not an array");
  expect("/ranks/1/lanes/0/0", Json::array(), "ranks[1].lanes[0][0]: is an array, not an object");
  expect("/ranks/1/lanes/0/0/op", "sendrecv", "ranks[1].lanes[0][0].op: is \"sendrecv\", which is none of \"send\",");
  expect("/ranks/1/lanes/0/0/chunk", 3, "ranks[1].lanes[0][0].chunk: is 3, not 0 to 2");
  expect("/ranks/1/lanes/0/0/count", 4, "ranks[1].lanes[0][0].count: is 4, not 0 to 3");
  expect("/ranks/0/lanes/0/0/count", 0, "recv_reduce of 0 chunks: only send and recv can be without chunks");
  expect("/ranks/1/lanes/0/0/to", 2, "ranks[1].lanes[0][0].to: is 2, not 0 to 1");
  expect("/ranks/1/lanes/0/0/to", 1, "rank 1, lane 0, op 0: \"to\" is rank 1 itself");
  expect("/ranks/1/lanes/0/0/channel", true, "channel: is true, not a whole number");
  expect("/ranks/1/lanes/1/0/after", Json::array({0}), "after[0]: is 0, not an array");
  expect("/ranks/1/lanes/1/0/after", Json::array({Json::array({0})}), "after[0]: is no pair [lane, index]");
  expect("/ranks/1/lanes/1/0/after", Json::array({Json::array({2, 0})}), "\"after\" names lane 2, but");
  expect("/ranks/1/lanes/1/0/after", Json::array({Json::array({0, 1})}),
         "\"after\" names op 1 of lane 0, which has 1 ops");
  expect("/workers", 3, "workers: is 3, not 1 to 2");
  expect("/root", 2, "root: is 2, not 0 to 1");
}

TEST(ScheduleFile, MissingFieldsAreNamed) {
  for (const char* name : {"version", "scheme", "nodes", "chunks", "result", "ranks"}) {
    Json json = Json::parse(kPair);
    json.erase(name);
    EXPECT_EQ(file_problem(json.dump()), std::string("the schedule: \"") + name + "\" is missing");
  }
  for (const char* name : {"op", "chunk", "count", "to"}) {
    Json json = Json::parse(kPair);
    json["ranks"][1]["lanes"][0][0].erase(name);
    EXPECT_EQ(file_problem(json.dump()),
              std::string("the schedule, ranks[1].lanes[0][0]: \"") + name + "\" is missing");
  }
}

TEST(ScheduleFile, TextThatIsNoJsonIsRefused) {
  for (const char* text : {"", " ", "{", "[1, 2", "\xff\xfe", "{\"version\": 1e999}", "nul", "{\"a\": 1} x"}) {
    EXPECT_NE(file_problem(text).find("the schedule is no JSON"), std::string::npos) << text;
  }
  EXPECT_EQ(file_problem("[]"), "the schedule: is an array, not an object");
  EXPECT_NE(file_problem(std::string(20000, '[')), "");
}

/// Three characters can take 112 bytes.
TEST(ScheduleFile, TextsArePricedBeforeTheyAreParsed) {
  EXPECT_EQ(parsed_bytes(""), 0U);
  EXPECT_EQ(parsed_bytes("[{},{}]"), 32U + 2 * (64 + 48));
  EXPECT_EQ(parsed_bytes(R"({"a": 1, "b": [2]})"), 64U + 2 * 96 + 32 + 48);
  EXPECT_EQ(parsed_bytes(R"("[{\"\\,:[[")"), 48U);
  EXPECT_EQ(parsed_bytes(R"(["0123456789abcdef"])"), 32U + 48 + 48 + 17);
  EXPECT_EQ(parsed_bytes("\"\\"), 48U);  // ends in a string
  EXPECT_EQ(parsed_bytes("]]}},"), 0U);
  std::string text = "[";
  for (std::uint64_t objects = 0; objects < kParsedBytesMax / (64 + 48); ++objects) text += "{},";
  EXPECT_NE(file_problem(text + "]").find("the schedule has so many values that reading it would take 1"),
            std::string::npos);
}

/// Reading and checking end with Error, or not at all. Anything else fails the test.
bool holds(const std::string& text) {
  try {
    check(from_json(text));
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ScheduleFile, BytesAtRandomPlacesAreReadOrRefused) {
  std::mt19937 random(1);
  int right = 0;
  for (int run = 0; run < (schedule_test::kFew ? 300 : 1000); ++run) {
    std::string text = kPair;
    for (unsigned changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, "0123456789-\"{}[],:.e"[random() % 20]);
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    right += holds(text) ? 1 : 0;
  }
  EXPECT_GT(right, 0);  // spaces do not matter
  EXPECT_LT(right, 150);
}

TEST(ScheduleFile, ValuesOfAnyTypeAtAnyPlaceAreReadOrRefused) {
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         1,
                         2,
                         7,
                         1e300,
                         "",
                         "send",
                         Json::array(),
                         Json::object(),
                         Json::array({Json::array({0, 0})})};
  int changes = 0;
  const Json flat = Json::parse(kPair).flatten();
  for (const auto& [path, old] : flat.items()) {
    for (Json::json_pointer at(path); !at.empty(); at = at.parent_pointer()) {
      for (const Json& value : values) {
        Json json = Json::parse(kPair);
        json[at] = value;
        holds(json.dump());
        ++changes;
      }
    }
  }
  EXPECT_GT(changes, 500);
}

TEST(ScheduleFile, AFileThatCannotBeReadIsNamed) {
  for (const char* file : {"/nonexistent/schedule.json", "/"}) {
    try {
      read_text(file);
      ADD_FAILURE() << file;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("cannot read ") + file), std::string::npos) << error.what();
    }
  }
}

}  // namespace
