// MSCCL's XML: what is read, and what is refused with its line.
#include "foreign/prove.hpp"
#include "foreign/read.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

namespace {

using namespace param_sync::foreign;
using gpusock::test::error_of;

/// An all-reduce of two ranks. Block 0 exchanges, block 1 adds what came.
const std::string kPair = R"(<!-- made by hand -->
<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="2">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>
      <step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="0" deps="1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="2">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

class Msccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!reads_xml()) GTEST_SKIP() << "this build has no pugixml";
  }
};

std::string with(const std::string& old_text, const std::string& new_text, std::string text = kPair) {
  const std::size_t at = text.find(old_text);
  EXPECT_NE(at, std::string::npos) << old_text;
  return text.replace(at, old_text.size(), new_text);
}
std::string problem(const std::string& text) {
  return error_of<Error>([&] { read_plan(text); });
}
std::string verdict(const std::string& text) {
  const Proof proof = prove(read_plan(text));
  return proof.is_proved ? "proved" : proof.why;
}

TEST_F(Msccl, EachFieldIsRead) {
  const Plan plan = read_plan(kPair);
  EXPECT_EQ(plan.format, "MSCCL");
  EXPECT_EQ(plan.name, "pair");
  EXPECT_EQ(plan.protocol, "Simple");
  EXPECT_EQ(plan.collective, Collective::all_reduce);
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.data_chunks, 2);
  EXPECT_TRUE(plan.runs_in_place);
  EXPECT_FALSE(plan.runs_out_of_place);
  EXPECT_EQ(plan.sizes[0].scratch, 2);
  ASSERT_EQ(plan.blocks.size(), 3U);
  EXPECT_EQ(plan.connections.size(), 2U);
  const std::vector<Step>& steps = plan.blocks[1].steps;
  ASSERT_EQ(steps.size(), 3U);  // the nop awaits; the reduction awaits, and adds
  EXPECT_EQ(steps[0].kind, Kind::await);
  EXPECT_EQ(steps[2].from, (std::vector<Place>{{0, Buffer::scratch, 0}, {0, Buffer::input, 0}}));
  EXPECT_EQ(steps[2].to, (std::vector<Place>{{0, Buffer::input, 0}}));
  EXPECT_EQ(verdict(kPair), "proved");
}

TEST_F(Msccl, EachTypeOfStepDoesWhatItShould) {
  // Rank 0 to 1 to 2 and back, each time by another type: the sum of all three, without and with the own copy.
  const auto chain = [](const std::string& up, const std::string& top, const std::string& down) {
    const auto step = [](int s, const std::string& type) {
      return "<step s='" + std::to_string(s) + "' type='" + type +
             "' srcbuf='i' srcoff='0' dstbuf='i' dstoff='0' cnt='1' depid='-1' deps='-1' hasdep='0'/>";
    };
    const std::string gpu = "<gpu id='R' i_chunks='1' o_chunks='0' s_chunks='0'>";
    return "<algo name='c' proto='LL' nchannels='2' nchunksperloop='1' ngpus='3' coll='allreduce' inplace='1'>" +
           with("R", "0", gpu) + "<tb id='0' send='1' recv='-1' chan='0'>" + step(0, "s") +
           "</tb><tb id='1' send='-1' recv='1' chan='1'>" + step(0, "r") + "</tb></gpu>" + with("R", "1", gpu) +
           "<tb id='0' send='2' recv='0' chan='0'>" + step(0, up) + "</tb><tb id='1' send='0' recv='2' chan='1'>" +
           step(0, down) + "</tb></gpu>" + with("R", "2", gpu) + "<tb id='0' send='1' recv='1' chan='-'>" +
           step(0, top) + "</tb></gpu></algo>";
  };
  const auto on_channels = [](std::string text) {  // rank 2 receives on channel 0 and sends on 1: two blocks
    return with("<tb id='0' send='1' recv='1' chan='-'>", "<tb id='0' send='-1' recv='1' chan='0'>", std::move(text));
  };
  const auto sends_back = [](std::string text) {
    return with(
        "</tb></gpu></algo>",
        "</tb><tb id='1' send='1' recv='-1' chan='1'><step s='0' type='s' srcbuf='i' srcoff='0' dstbuf='i' dstoff='0' "
        "cnt='1' depid='0' deps='0' hasdep='0'/></tb></gpu></algo>",
        with("type='rrc' srcbuf='i' srcoff='0' dstbuf='i' dstoff='0' cnt='1' depid='-1' deps='-1' hasdep='0'",
             "type='rrc' srcbuf='i' srcoff='0' dstbuf='i' dstoff='0' cnt='1' depid='-1' deps='-1' hasdep='1'",
             std::move(text)));
  };
  EXPECT_EQ(verdict(sends_back(on_channels(chain("rrs", "rrc", "rcs")))), "proved");
  EXPECT_NE(verdict(sends_back(on_channels(chain("rcs", "rrc", "rcs")))), "proved");   // loses rank 1's
  EXPECT_NE(verdict(sends_back(on_channels(chain("rrcs", "rrc", "rrs")))), "proved");  // adds rank 1's twice
  EXPECT_EQ(verdict(with("type=\"rrc\"", "type=\"rrcs\"")).substr(0, 8), "no step ");  // sends what no step receives
}

TEST_F(Msccl, AttributesOfTheProtocolAndOfPlaces) {
  EXPECT_EQ(read_plan(kPair).slots, 2);
  EXPECT_EQ(read_plan(with("Simple", "LL128")).slots, 8);
  const Plan both = read_plan(with("inplace=\"1\"", "inplace=\"1\" outofplace=\"1\" maxBytes=\"4096\""));
  EXPECT_TRUE(both.runs_in_place && both.runs_out_of_place);
  EXPECT_EQ(both.bytes_max, 4096U);
  EXPECT_TRUE(read_plan(with("inplace=\"1\"", "inplace=\"0\"")).runs_out_of_place);
}

TEST_F(Msccl, AStepWithoutHasdepIsNeverAnnounced) {
  // Block 1 first waits for step 0, which has hasdep="0": step 1 announces it, too.
  EXPECT_EQ(verdict(kPair), "proved");
  EXPECT_EQ(
      verdict(with("hasdep=\"1\"", "hasdep=\"0\"")),
      "deadlock: rank 0, thread block 1, step 0 (nop) waits for step 0 of thread block 0 of rank 0, but no step there "
      "from 0 on has hasdep=\"1\"");
}

TEST_F(Msccl, PlantedFaultsAreRefuted) {
  EXPECT_NE(verdict(with("depid=\"0\" deps=\"1\"", "depid=\"-1\" deps=\"-1\"",
                         with("depid=\"0\" deps=\"0\"", "depid=\"-1\" deps=\"-1\"")))
                .find("race: rank 0, thread block"),
            std::string::npos);
  EXPECT_NE(
      verdict(with("type=\"re\"", "type=\"cpy\"")).find("result: output chunk 0 of rank 0 lacks chunk 0 of rank 0"),
      std::string::npos);
  EXPECT_NE(verdict(with("srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"2\"",
                         "srcoff=\"1\" dstbuf=\"i\" dstoff=\"0\" cnt=\"2\""))
                .find("bounds: rank 0, thread block 1, step 1 (re) uses 2 chunks from scratch chunk 1 of rank 0 on, "
                      "but there are 2"),
            std::string::npos);
  EXPECT_NE(verdict(with("<tb id=\"1\" send=\"-1\"", "<tb id=\"1\" send=\"1\"",
                         with("type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0\"",
                              "type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\"")))
                .find("channel: thread blocks 0 and 1 of rank 0 both use channel 0 from rank 0 to rank 1"),
            std::string::npos);
}

TEST_F(Msccl, BadFilesAreRefusedWithTheirLine) {
  const auto expect = [](const std::string& old_text, const std::string& new_text, const std::string& says) {
    EXPECT_EQ(problem(with(old_text, new_text)), says);
  };
  expect("<algo", "<plan", "line 19: is no XML: Start-end tags mismatch");
  expect(" ngpus=\"2\"", "", "line 2: <algo> has no attribute \"ngpus\"");
  expect("ngpus=\"2\"", "ngpus=\"two\"", "line 2: <algo> has ngpus=\"two\", not a whole number from 1 to 1024");
  expect("ngpus=\"2\"", "ngpus=\"3\"", "line 2: <algo> has no <gpu id=\"2\">");
  expect("ngpus=\"2\"", "ngpus=\"1\"", "line 4: <tb> has send=\"1\", not a whole number from -1 to 0");
  expect("coll=\"allreduce\"", "coll=\"scan\"",
         "line 2: <algo> is not understood: the collective \"scan\" is none that we can prove");
  expect("coll=\"allreduce\" inplace=\"1\"", "coll=\"allgather\" inplace=\"2\"",
         "line 2: <algo> has inplace=\"2\", not a whole number from 0 to 1");
  expect("Simple", "Fast", "line 2: <algo> has proto=\"Fast\", not Simple, LL or LL128");
  expect("inplace=\"1\"", "inplace=\"0\" outofplace=\"0\"", "line 2: <algo> runs neither in place nor out of place");
  expect("inplace=\"1\"", "inplace=\"1\" maxBytes=\"-3\"", "line 2: <algo> has maxBytes=\"-3\", not a whole number");
  expect("<gpu id=\"1\"", "<gpu id=\"0\"", "line 13: <gpu> is the second one with id=\"0\"");
  expect("<tb id=\"1\"", "<tb id=\"2\"", "line 8: <tb> has id=\"2\", but is number 1 of its <gpu>");
  expect("send=\"1\"", "send=\"0\"", "line 4: <tb> has send=\"0\", which is its own <gpu>");
  expect("send=\"1\"", "send=\"-1\"", "line 5: <step> sends, but its <tb> has send=\"-1\"");
  expect("recv=\"1\"", "recv=\"-1\"", "line 6: <step> receives, but its <tb> has recv=\"-1\"");
  expect("step s=\"1\"", "step s=\"2\"", "line 6: <step> has s=\"2\", but is number 1 of its <tb>");
  expect("type=\"s\"", "type=\"send\"", "line 5: <step> has type=\"send\", which we do not know");
  expect("srcbuf=\"i\"", "srcbuf=\"x\"", "line 5: <step> has srcbuf=\"x\", not i, o or s");
  expect("cnt=\"2\"", "cnt=\"-2\"", "line 5: <step> has cnt=\"-2\", not a whole number from 0 to 65536");
  expect("cnt=\"2\"", "cnt=\"99999999999\"",
         "line 5: <step> has cnt=\"99999999999\", not a whole number from 0 to 65536");
  expect("depid=\"0\" deps=\"0\"", "depid=\"5\" deps=\"0\"",
         "line 9: <step> has depid=\"5\", but the <gpu> has 2 thread blocks");
  expect("depid=\"0\" deps=\"0\"", "depid=\"0\" deps=\"2\"",
         "line 9: <step> has deps=\"2\", but thread block 0 has 2 steps");
  EXPECT_EQ(problem("<gpu/>"), "line 1: <gpu> is the first element, not <algo>");
  EXPECT_EQ(problem(""), "is neither XML of MSCCL nor JSON of MSCCL++");
  EXPECT_EQ(problem("<"), "line 1: is no XML: Could not determine tag type");
  const std::string alltoall = with("allreduce", "alltoall", with("nchunksperloop=\"2\"", "nchunksperloop=\"3\""));
  EXPECT_EQ(problem(alltoall), "line 2: <algo> is not understood: 2 ranks cannot share 3 chunks evenly");
}

TEST_F(Msccl, LargeAndDeepFilesAreRefusedOrRead) {
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "<a>";
  EXPECT_NE(problem(deep), "");
  EXPECT_EQ(problem(std::string((std::size_t{64} << 20) + 1, '<')), "has more than 64 MiB");
  EXPECT_NE(problem(std::string(std::size_t{20} << 20, '<')).find("so many elements"), std::string::npos);
}

/// A text that is cut off, or has one changed byte, is refused or read, and what is read is proved, refuted or not
/// understood.
TEST_F(Msccl, EachPrefixAndEachChangedByteEnds) {
  const auto ends = [](const std::string& text) {
    try {
      prove(read_plan(text));
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()), "");
    }
  };
  for (std::size_t size = 0; size < kPair.size(); size += 7) ends(kPair.substr(0, size));
  for (std::size_t at = 0; at < kPair.size(); at += 3) {
    std::string text = kPair;
    text[at] = "9-\"<\0z"[at % 6];
    ends(text);
  }
}

}  // namespace
