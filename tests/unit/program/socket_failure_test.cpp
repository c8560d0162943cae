// What users are told to do where a socket cannot be opened.
#include "program/socket_failure.hpp"

#include "gpusock/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace gpusock::program {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string listening(int error, const char* at) { return remedy(Attempt::listening, error, Endpoint::parse(at)); }
std::string connecting(int error, const char* to) { return remedy(Attempt::connecting, error, Endpoint::parse(to)); }

TEST(Errors, EndWithTheWordsOfTheirErrnoAndItsName) {
  EXPECT_STREQ(gpusock::Error(ECONNREFUSED, "asking").what(), "asking: Connection refused (ECONNREFUSED)");
  EXPECT_STREQ(gpusock::Error::with_cause(ECONNREFUSED, "nobody is there").what(), "nobody is there");
  EXPECT_EQ(gpusock::describe_errno(4242), "Unknown error 4242");
}

TEST(SocketFailure, IsToldWithItsPlaceItsReasonAndWhatToDo) {
  const SocketFailure failure("listening on here:7000", Attempt::listening, EADDRINUSE,
                              Endpoint::parse("127.0.0.1:7000"));
  EXPECT_STREQ(failure.what(),
               "listening on here:7000: Address already in use (EADDRINUSE): another process listens there; choose "
               "another port, or "
               "0 for any free "
               "one (`ss -ltnp` shows who has it)");
  EXPECT_STREQ(SocketFailure("x", Attempt::listening, ENOMEM, {}).what(), "x: Cannot allocate memory (ENOMEM)")
      << "which says all";
}

TEST(SocketFailure, APermissionThatLacksIsNamed) {
  unsetenv("GPUSOCK_SECRET");
  EXPECT_THAT(listening(EACCES, "127.0.0.1:80"), HasSubstr("below 1024"));
  EXPECT_THAT(listening(EACCES, "0.0.0.0:80,link=tcp"), HasSubstr("below 1024"));
  setenv("GPUSOCK_LOG", "off", 1);
  EXPECT_THAT(listening(EACCES, "0.0.0.0:80"), HasSubstr("GPUSOCK_SECRET")) << "which is looked at first";
  EXPECT_THAT(listening(EACCES, "0.0.0.0:7000"), HasSubstr("GPUSOCK_SECRET"));
  unsetenv("GPUSOCK_LOG");
  setenv("GPUSOCK_SECRET", "swordfish", 1);
  EXPECT_THAT(listening(EACCES, "0.0.0.0:80"), HasSubstr("below 1024"));
  unsetenv("GPUSOCK_SECRET");
  EXPECT_THAT(connecting(EACCES, "127.0.0.1:7000"), HasSubstr("secrets differ"));
  EXPECT_EQ(connecting(EACCES, "127.0.0.1:7000,link=tcp"), "");
}

TEST(SocketFailure, AnAddressThatIsNotHereIsNamed) {
  EXPECT_THAT(listening(EADDRNOTAVAIL, "192.0.2.1:0"), HasSubstr("`ip addr`"));
  EXPECT_THAT(listening(EAFNOSUPPORT, "[::1]:0"), HasSubstr("no IPv6 here"));
}

TEST(SocketFailure, WhyAPeerIsNotReachedDependsOnTheLink) {
  EXPECT_THAT(connecting(ECONNREFUSED, "127.0.0.1:7000"), HasSubstr("start the server"));
  EXPECT_THAT(connecting(ETIMEDOUT, "127.0.0.1:7000"), HasSubstr("link=tcp"));
  EXPECT_THAT(connecting(ETIMEDOUT, "127.0.0.1:7000,link=tcp"), Not(HasSubstr("link=tcp")));
  EXPECT_THAT(connecting(ENETUNREACH, "192.0.2.1:7000"), HasSubstr("`ip route get 192.0.2.1`"));
  EXPECT_THAT(connecting(EHOSTUNREACH, "[2001:db8::1]:7000,link=tcp"), HasSubstr("`ip route get 2001:db8::1`"));
  EXPECT_THAT(connecting(EHOSTUNREACH, "192.0.2.1:7000,link=p2p"), HasSubstr("link=p2p reaches"));
  EXPECT_THAT(connecting(EHOSTUNREACH, "127.0.0.1:7000,link=p2p"), HasSubstr("the same GPUSOCK_HOST_RINGS=NAME"));
  EXPECT_THAT(connecting(ENODEV, "192.0.2.1:7000,link=verbs"), HasSubstr("no device for link=verbs"));
  EXPECT_THAT(connecting(ENODEV, "192.0.2.1:7000,link=verbs"), HasSubstr("leave out link=verbs"));
  EXPECT_THAT(connecting(EINVAL, "127.0.0.1:0"), HasSubstr("not 0"));
}

TEST(SocketFailure, AConnectionWithoutRoomNamesTheLimits) {
  EXPECT_THAT(connecting(ENOBUFS, "127.0.0.1:7000"), HasSubstr("ulimit -n"));
  EXPECT_THAT(listening(ENOBUFS, "127.0.0.1:7000"), HasSubstr("ulimit -n"));
  EXPECT_THAT(connecting(ENOBUFS, "127.0.0.1:7000,link=p2p"), HasSubstr("GPUSOCK_HOST_RINGS=NAME,connections=N"));
  EXPECT_THAT(connecting(ENOBUFS, "127.0.0.1:7000,link=tcp"), Not(HasSubstr("GPUSOCK_HOST_RINGS")));
}

TEST(SocketFailure, ALoopbackInterfaceThatIsDownIsNamed) {
  EXPECT_THAT(connecting(ENETUNREACH, "127.0.0.1:7000"), HasSubstr("`ip link set lo up`"));
}

TEST(SocketFailure, AProviderThatIsNotThereIsNamed) {
  unsetenv("GPUSOCK_FABRIC_PROVIDER");
  EXPECT_THAT(connecting(ENODEV, "127.0.0.1:7000,link=fabric"), HasSubstr("GPUSOCK_FABRIC_PROVIDER may name"));
  setenv("GPUSOCK_FABRIC_PROVIDER", "tpc", 1);
  EXPECT_THAT(connecting(ENODEV, "127.0.0.1:7000,link=fabric"),
              HasSubstr("GPUSOCK_FABRIC_PROVIDER=tpc names no provider"));
  unsetenv("GPUSOCK_FABRIC_PROVIDER");
}

// The library refuses these itself, and its log says why and what to do.
TEST(SocketFailure, WhatTheLogHasSaidIsNotSaidAgain) {
  unsetenv("GPUSOCK_SECRET");
  EXPECT_EQ(listening(EACCES, "0.0.0.0:7000"), "");
  EXPECT_EQ(listening(EPROTONOSUPPORT, "127.0.0.1:7000,link=p2p"), "");
  setenv("GPUSOCK_LOG", "off", 1);
  EXPECT_THAT(listening(EPROTONOSUPPORT, "127.0.0.1:7000,link=p2p"), HasSubstr("gpusock-doctor"));
  unsetenv("GPUSOCK_LOG");
}

}  // namespace
}  // namespace gpusock::program
