// What a command line's mistakes are called, and what --help says.
#include "program/arguments.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpusock::program {
namespace {

struct Parsed {
  std::optional<int> status;
  std::string out, error;
};

Parsed parse(Arguments& arguments, std::vector<std::string> words) {
  words.insert(words.begin(), "a_program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Parsed parsed;
  parsed.status = arguments.parse(static_cast<int>(words.size()), argv.data());
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.error = testing::internal::GetCapturedStderr();
  return parsed;
}

/// A server's arguments.
struct Server {
  std::string where, mode = "safe";
  unsigned blocks = 8;
  double seconds = 0.5;
  std::uint64_t body_bytes = 1 << 20, ring_bytes = 0;
  std::vector<std::uint64_t> sizes{100, 4 << 10};
  Arguments arguments{"Serves."};

  Server() {
    arguments.positional("ENDPOINT", where, "where");
    arguments.number("--blocks", blocks, "blocks", 1, 256);
    arguments.number("--seconds", seconds, "seconds", 0.1, 10.0);
    arguments.bytes("--body-max", body_bytes, "body", 1, 1 << 30);
    arguments.bytes("--ring", ring_bytes, "ring", 1, 1 << 30);
    arguments.bytes("--sizes", sizes, "sizes", 1, 1 << 30);
    arguments.choice("--mode", mode, {"fast", "safe"}, "mode");
  }
};

/// What is said of these words, up to the hint at --help.
std::string complaint(const std::vector<std::string>& words) {
  Server server;
  const Parsed parsed = parse(server.arguments, words);
  EXPECT_EQ(parsed.status, kMisuse);
  return parsed.error.substr(0, parsed.error.find('\n'));
}

TEST(Arguments, AreTaken) {
  Server server;
  const Parsed parsed = parse(server.arguments,
                              {"--body-max", "2K", "here:1", "--sizes", "1,2M", "--blocks=3", "--seconds", "0.25"});
  EXPECT_EQ(parsed.status, std::nullopt) << parsed.error;
  EXPECT_EQ(server.where, "here:1");
  EXPECT_EQ(server.blocks, 3u);
  EXPECT_EQ(server.seconds, 0.25);
  EXPECT_EQ(server.body_bytes, 2048u);
  EXPECT_EQ(server.sizes, (std::vector<std::uint64_t>{1, 2 << 20}));
}

TEST(Arguments, JsonGoesToAFileOrToStandardOutput) {
  for (const auto& [words, file] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{}, ""},
                                                                     {{"--json"}, "-"},
                                                                     {{"--json", "-"}, "-"},
                                                                     {{"--json", "x.json"}, "x.json"},
                                                                     {{"--json", "--once"}, "-"}}) {
    std::string json = "";
    bool once = false;
    Arguments arguments{"Prints."};
    arguments.json(json, "figures");
    arguments.flag("--once", once, "once");
    EXPECT_EQ(parse(arguments, words).status, std::nullopt);
    EXPECT_EQ(json, file);
  }
}

TEST(Arguments, AnUnknownOptionIsNamedBeforeWhatIsMissing) {
  EXPECT_EQ(complaint({"--bloks"}), "there is no option --bloks");
  EXPECT_EQ(complaint({"--bloks", "3", "here:1"}), "there is no option --bloks")
      << "whose value took the endpoint's place";
  EXPECT_EQ(complaint({"here:1", "-x"}), "there is no option -x");
  EXPECT_EQ(complaint({}), "ENDPOINT is required");
  EXPECT_EQ(complaint({"--blocks", "3"}), "ENDPOINT is required");
}

TEST(Arguments, WhatIsTooMuchIsNamedInItsOrder) {
  EXPECT_EQ(complaint({"here:1", "a", "b", "c"}), "too many arguments: a b c");
  EXPECT_EQ(complaint({"here:1", "a"}), "one argument too many: a");
}

TEST(Arguments, AWrongValueIsNamedWithItsRange) {
  EXPECT_EQ(complaint({"here:1", "--blocks", "0"}), "--blocks: Value 0 not in range 1 to 256");
  EXPECT_EQ(complaint({"here:1", "--body-max", "2G"}), "--body-max: Value 2147483648 not in range 1 to 1073741824");
  for (const char* nothing : {"nan", "NaN", "-nan"}) {
    EXPECT_EQ(complaint({"here:1", "--seconds", nothing}),
              "--seconds: Value " + std::string(nothing) + " is not a number");
  }
  EXPECT_EQ(complaint({"here:1", "--seconds", "inf"}).substr(0, 31), "--seconds: Value inf not in ran");
  EXPECT_EQ(complaint({"here:1", "--sizes", "1,0"}), "--sizes: Value 0 not in range 1 to 1073741824");
}

TEST(Arguments, HelpShowsDefaultsAsTheyWouldBeGiven) {
  Server server;
  const Parsed parsed = parse(server.arguments, {"--help"});
  EXPECT_EQ(parsed.status, kSuccess);
  const auto shows = [&](const std::string& text) { return parsed.out.find(text) != std::string::npos; };
  EXPECT_TRUE(shows("  --blocks N ") && shows(" blocks (1 to 256; default 8)\n")) << parsed.out;
  EXPECT_TRUE(shows("  --seconds N ") && shows(" seconds (0.1 to 10; default 0.5)\n")) << parsed.out;
  EXPECT_TRUE(shows("  --body-max BYTES ") && shows(" body (1 to 1G; default 1M)\n")) << parsed.out;
  EXPECT_TRUE(shows(" sizes (1 to 1G; default 100,4K)\n")) << parsed.out;
  EXPECT_TRUE(shows(" mode (one of fast, safe; default safe)\n")) << parsed.out;
  EXPECT_TRUE(shows("Exit status: ")) << parsed.out;
  EXPECT_TRUE(shows(" ring (1 to 1G)\n")) << "what the library chooses has no default to show\n" << parsed.out;
}

TEST(Arguments, VersionNamesTheProgramAndItsPackage) {
  Server server;
  const Parsed parsed = parse(server.arguments, {"--version"});
  EXPECT_EQ(parsed.status, kSuccess);
  EXPECT_TRUE(parsed.out.find(" (gpusock) ") != std::string::npos) << parsed.out;
}

TEST(Lists, APartAfterTheLastCommaIsEmpty) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split(""), Parts{});
  EXPECT_EQ(split("a,b"), (Parts{"a", "b"}));
  EXPECT_EQ(split(",a,,b,"), (Parts{"", "a", "", "b", ""}));
}

TEST(Memory, TooMuchIsRefusedByTheNamesOfTheOptions) {
  EXPECT_EQ(problem_of_memory(std::uint64_t{4} << 30, "--a x --b"), "");
  EXPECT_EQ(problem_of_memory((std::uint64_t{4} << 30) + 1, "--a x --b").find("--a x --b: together they take 4096 MiB"),
            0u);
}

TEST(Commands, OneThatThereIsNotIsNamedWithThoseThatThereAre) {
  const auto complaint_about = [](const std::vector<std::string>& words) {
    Arguments arguments("Has commands.");
    std::string file;
    arguments.command("send", "Sends.").positional("FILE", file, "what");
    arguments.command("receive", "Receives.");
    const Parsed parsed = parse(arguments, words);
    EXPECT_EQ(parsed.status, kMisuse);
    return parsed.error.substr(0, parsed.error.find('\n'));
  };
  EXPECT_EQ(complaint_about({"sent", "x"}), "there is no command sent; there are: send, receive");
  EXPECT_EQ(complaint_about({"--quick"}), "there is no option --quick");
  EXPECT_EQ(complaint_about({"send", "--quick"}), "there is no option --quick");
  EXPECT_EQ(complaint_about({"send", "x", "y"}), "one argument too many: y");
  EXPECT_EQ(complaint_about({"send"}), "FILE is required");
}

}  // namespace
}  // namespace gpusock::program
