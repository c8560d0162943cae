// What Endpoint::parse takes, and how it refuses the rest.
#include "gpusock/endpoint.hpp"
#include "gpusock/error.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <type_traits>

namespace gpusock {
namespace {

TEST(EndpointTest, IsPlainDataForKernels) { EXPECT_TRUE(std::is_trivially_copyable_v<Endpoint>); }

TEST(EndpointTest, ParsesAddressesNamesAndLinks) {
  const Endpoint v4 = Endpoint::parse("192.0.2.7:7000,link=tcp");
  EXPECT_EQ(v4.family, 4);
  EXPECT_EQ(v4.port, 7000);
  EXPECT_EQ(v4.link, LinkKind::tcp);
  EXPECT_EQ(v4.host_port(), "192.0.2.7:7000");
  const Endpoint v6 = Endpoint::parse("[2001:db8::1]:65535,link=p2p");
  EXPECT_EQ(v6.family, 6);
  EXPECT_EQ(v6.link, LinkKind::p2p);
  EXPECT_EQ(v6.host_port(), "[2001:db8::1]:65535");
  EXPECT_TRUE(Endpoint::parse("localhost:1").is_loopback());
}

TEST(EndpointTest, ALinkThatThereIsNotCanBeShown) {
  EXPECT_EQ(to_string(LinkKind::verbs), "verbs");
  EXPECT_EQ(to_string(static_cast<LinkKind>(200)), "unknown");
}

TEST(EndpointTest, ParsesRingsAndTypesInAnyOrder) {
  const Endpoint plain = Endpoint::parse("127.0.0.1:1,link=p2p");
  EXPECT_EQ(plain.ring_bytes, 0u);
  EXPECT_EQ(plain.type, SocketType::stream);
  const Endpoint all = Endpoint::parse("127.0.0.1:1,ring=64K,type=seqpacket,link=p2p");
  EXPECT_EQ(all.ring_bytes, 64u << 10);
  EXPECT_EQ(all.type, SocketType::seqpacket);
  EXPECT_EQ(all.link, LinkKind::p2p);
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1,ring=4K").ring_bytes, 4096u);
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1,ring=8192").ring_bytes, 8192u);
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1,ring=64M,type=stream").ring_bytes, 64u << 20);
}

TEST(EndpointTest, PrintsAllOfIt) {
  EXPECT_EQ(Endpoint::parse("127.0.0.1:7,link=tcp").to_string(), "127.0.0.1:7,link=tcp");
  EXPECT_EQ(Endpoint::parse("[::1]:80,type=seqpacket,ring=65536,link=auto").to_string(),
            "[::1]:80,link=auto,ring=64K,type=seqpacket");
  EXPECT_EQ(Endpoint().to_string(), "none");
}

/// Every link, type and size of ring, with addresses of each kind: parse() makes the same of what to_string() prints,
/// also where the environment names another link.
TEST(EndpointTest, WhatItPrintsItParses) {
  for (const char* environment : {"", "tcp", "p2p"}) {
    setenv("GPUSOCK_LINK", environment, 1);
    for (const char* host :
         {"127.0.0.1:0", "0.0.0.0:7", "255.255.255.255:65535", "[::1]:80", "[fe80::1%1]:9", "[::ffff:192.0.2.7]:1"}) {
      for (const char* link : {"auto", "p2p", "tcp", "fabric", "verbs"}) {
        for (const char* type : {"stream", "seqpacket"}) {
          const std::string text = std::string(host) + ",link=" + link + ",type=" + type;
          Endpoint at = Endpoint::parse(text);
          EXPECT_EQ(at.host_port(), host);
          EXPECT_EQ(Endpoint::parse(at.to_string()), at) << text;
          for (std::uint32_t ring = kRingBytesMin; ring <= kRingBytesMax; ring *= 2) {
            at.ring_bytes = ring;
            EXPECT_EQ(Endpoint::parse(at.to_string()), at) << text << " with a ring of " << ring;
          }
        }
      }
    }
  }
  unsetenv("GPUSOCK_LINK");
}

TEST(EndpointTest, PrintsAndParsesFurtherAddresses) {
  const std::string text = "192.0.2.7:7,link=tcp,ring=64K,or=[2001:db8::1],or=192.0.2.8,or=[fe80::1%1]";
  const Endpoint all = Endpoint::parse(text);
  EXPECT_EQ(all.addresses(), 4);
  EXPECT_EQ(all.at_address(1).host_port(), "[2001:db8::1]:7");
  EXPECT_EQ(all.at_address(3).host_port(), "[fe80::1%1]:7");
  EXPECT_EQ(all.to_string(), text);
  EXPECT_EQ(Endpoint::parse(all.to_string()), all);
  std::ostringstream out;
  out << all << ' ' << static_cast<const ResolvedEndpoint&>(all);
  EXPECT_EQ(out.str(), text + " 192.0.2.7:7,link=tcp,ring=64K");
}

TEST(EndpointTest, IsBuiltOfItsParts) {
  const Endpoint at = Endpoint::of("127.0.0.1", 7000)
                          .with_link(LinkKind::fabric)
                          .with_ring_bytes(64 << 10)
                          .with_type(SocketType::seqpacket);
  EXPECT_EQ(at, Endpoint::parse("127.0.0.1:7000,link=fabric,ring=64K,type=seqpacket"));
  EXPECT_EQ(at.with_port(1).with_link(LinkKind::p2p).with_ring_bytes(0).with_type(SocketType::stream),
            Endpoint::parse("127.0.0.1:1,link=p2p"));
  EXPECT_EQ(Endpoint::of("::1", 9), Endpoint::parse("[::1]:9"));
  EXPECT_EQ(Endpoint::of("[::1]", 9), Endpoint::parse("[::1]:9"));
  EXPECT_TRUE(Endpoint::of("localhost", 9).is_loopback());
  EXPECT_THROW(Endpoint::of("", 9), Error);
  EXPECT_THROW(Endpoint::of("127.0.0.1,link=tcp", 9), Error) << "a host, not an endpoint";
}

TEST(EndpointTest, KnowsLoopback) {
  EXPECT_TRUE(Endpoint::parse("127.9.9.9:1").is_loopback());
  EXPECT_TRUE(Endpoint::parse("[::1]:1").is_loopback());
  EXPECT_TRUE(Endpoint::parse("[::ffff:127.0.0.1]:1").is_loopback());
  EXPECT_FALSE(Endpoint::parse("[::ffff:128.0.0.1]:1").is_loopback());
  EXPECT_FALSE(Endpoint::parse("[::127.0.0.1]:1").is_loopback());
  EXPECT_FALSE(Endpoint::parse("0.0.0.0:1").is_loopback());
  EXPECT_FALSE(Endpoint::parse("[::]:1").is_loopback());
  EXPECT_FALSE(Endpoint::parse("128.0.0.1:1").is_loopback());
}

TEST(EndpointTest, RefusesWhatItCannotUseAndSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "port is missing"},
      {"127.0.0.1", "port is missing"},
      {"127.0.0.1:", "not a port"},
      {"127.0.0.1:65536", "not a port"},
      {"127.0.0.1:-1", "not a port"},
      {"127.0.0.1:7 ", "not a port"},
      {"::1:80", "brackets"},
      {"[::1]", "'['"},
      {"[::1:80", "'['"},
      {":80", "host is missing"},
      {"127.0.0.1:1,link=rfc", "unknown link"},
      {"127.0.0.1:1,speed=1", "unknown option"},
      {"127.0.0.1:1,link=roce", "expected host:port"},
      {"127.0.0.1:1,", "unknown option"},
      {"127.0.0.1:7,link=", "endpoint '127.0.0.1:7,link=': unknown link ''"},
      {"127.0.0.1:7,link=tcp,link=p2p", "'link' is given twice"},
      {"127.0.0.1:7,ring=4K,ring=4K", "'ring' is given twice"},
      {"127.0.0.1:1,ring=", "power of two"},
      {"127.0.0.1:1,ring=2K", "power of two"},
      {"127.0.0.1:1,ring=128M", "power of two"},
      {"127.0.0.1:1,ring=5000", "power of two"},
      {"127.0.0.1:1,ring=64k", "power of two"},
      {"127.0.0.1:1,ring=-4K", "power of two"},
      {"127.0.0.1:1,or=", "'' is not an address"},
      {"127.0.0.1:1,or=localhost", "not an address"},
      {"127.0.0.1:1,or=::1", "not an address"},
      {"127.0.0.1:1,or=[127.0.0.1]", "not an address"},
      {"127.0.0.1:1,or=1.1.1.1,or=1.1.1.2,or=1.1.1.3,or=1.1.1.4", "more than four"},
      {"127.0.0.1:1,type=datagram", "unknown type"},
  };
  for (const auto& [text, why] : cases) {
    try {
      Endpoint::parse(text);
      ADD_FAILURE() << "took '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code().value(), EINVAL) << text;
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << text << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find(": Invalid argument"), std::string::npos) << error.what();
    }
  }
}

TEST(EndpointTest, TakesTheLinkOfTheEnvironmentWhereNoneIsNamed) {
  setenv("GPUSOCK_LINK", "p2p", 1);
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1").link, LinkKind::p2p);
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1,link=tcp").link, LinkKind::tcp);
  setenv("GPUSOCK_LINK", "carrier-pigeon", 1);
  EXPECT_THROW(Endpoint::parse("127.0.0.1:1"), Error);
  unsetenv("GPUSOCK_LINK");
  EXPECT_EQ(Endpoint::parse("127.0.0.1:1").link, LinkKind::automatic);
}

}  // namespace
}  // namespace gpusock
