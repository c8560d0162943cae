// Options that cannot be are refused when the context is made, by name.
#include <gpusock/gpusock.hpp>
#include "host_proxy/memory/host_rings.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gpusock {
namespace {

void expect_refused(const std::function<void(Options&)>& change, const std::string& named) {
  Options options;
  change(options);
  try {
    Context context(options);
    ADD_FAILURE() << named << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code().value(), EINVAL);
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
  }
}

TEST(OptionsTest, RefusesWhatCannotBe) {
  expect_refused([](Options& options) { options.sockets_max = 0; }, "sockets_max");
  expect_refused([](Options& options) { options.sockets_max = 4097; }, "sockets_max");
  expect_refused([](Options& options) { options.ring_bytes = 5000; }, "ring_bytes");
  expect_refused([](Options& options) { options.ring_bytes = 2048; }, "ring_bytes");
  expect_refused([](Options& options) { options.ring_bytes = std::uint64_t{128} << 20; }, "ring_bytes");
  expect_refused([](Options& options) { options.handshake_timeout_ns = 0; }, "handshake_timeout_ns");
  for (const char* bad : {"", "somewhere", "3-1", "65535"}) {
    expect_refused([bad](Options& options) { options.processors = bad; }, "GPUSOCK_PROCESSORS");
  }
}

TEST(OptionsTest, ReadsTheEnvironment) {
  setenv("GPUSOCK_GPU", "3", 1);
  setenv("GPUSOCK_SECRET", "swordfish", 1);
  setenv("GPUSOCK_RING", "device", 1);
  setenv("GPUSOCK_WORDS", "host", 1);
  const Options options = Options::from_env();
  EXPECT_EQ(options.gpu, 3);
  EXPECT_EQ(options.secret, "swordfish");
  EXPECT_EQ(options.ring, RingPlacement::device);
  EXPECT_EQ(options.words, RingPlacement::host);
  unsetenv("GPUSOCK_WORDS");
  EXPECT_TRUE(options.gpudirect);
  setenv("GPUSOCK_GPUDIRECT", "off", 1);
  EXPECT_FALSE(Options::from_env().gpudirect);
  setenv("GPUSOCK_GPUDIRECT", "auto", 1);
  EXPECT_TRUE(Options::from_env().gpudirect);
  setenv("GPUSOCK_GPUDIRECT", "on", 1);
  EXPECT_THROW(Options::from_env(), Error);
  unsetenv("GPUSOCK_GPUDIRECT");
  unsetenv("GPUSOCK_HOST_RINGS");
  EXPECT_EQ(Options::from_env().host_rings, "auto");
  EXPECT_EQ(Options().host_rings, proxy::HostRings::kAutomatic);
  setenv("GPUSOCK_HOST_RINGS", "auto,connections=8", 1);
  EXPECT_EQ(Options::from_env().host_rings, "auto");
  EXPECT_EQ(Options::from_env().host_connections_max, 8u);
  setenv("GPUSOCK_HOST_RINGS", "job-7", 1);
  EXPECT_EQ(Options::from_env().host_rings, "job-7");
  EXPECT_EQ(Options::from_env().host_connections_max, proxy::HostRings::kConnectionsDefault);
  setenv("GPUSOCK_HOST_RINGS", "job-7,connections=100", 1);
  EXPECT_EQ(Options::from_env().host_rings, "job-7");
  EXPECT_EQ(Options::from_env().host_connections_max, 100u);
  setenv("GPUSOCK_HOST_RINGS", "off", 1);
  EXPECT_EQ(Options::from_env().host_rings, "");
  unsetenv("GPUSOCK_HOST_RINGS");
  setenv("GPUSOCK_RING", "attic", 1);
  EXPECT_THROW(Options::from_env(), Error);
  unsetenv("GPUSOCK_RING");
  for (const char* bad : {"-1", "x", "1x", " "}) {
    setenv("GPUSOCK_GPU", bad, 1);
    EXPECT_THROW(Options::from_env(), Error) << bad;
  }
  unsetenv("GPUSOCK_GPU");
  setenv("GPUSOCK_OBSERVE", "/dev", 1);
  EXPECT_EQ(Options::from_env().observe, "/dev");
  setenv("GPUSOCK_OBSERVE", "off", 1);
  EXPECT_EQ(Options::from_env().observe, "");
  for (const char* bad : {"some/folder", "/dev/null", "/dev/null/there is none"}) {
    setenv("GPUSOCK_OBSERVE", bad, 1);
    EXPECT_THROW(Options::from_env(), Error) << bad;
  }
  unsetenv("GPUSOCK_OBSERVE");
  setenv("GPUSOCK_PROCESSORS", "any", 1);
  EXPECT_EQ(Options::from_env().processors, "any");
  setenv("GPUSOCK_PROCESSORS", "some", 1);
  EXPECT_THROW(Options::from_env(), Error);
  unsetenv("GPUSOCK_PROCESSORS");
  EXPECT_EQ(Options::from_env().spin, std::nullopt);
  setenv("GPUSOCK_SPIN", "off", 1);
  EXPECT_EQ(Options::from_env().spin, false);
  setenv("GPUSOCK_SPIN", "on", 1);
  EXPECT_EQ(Options::from_env().spin, true);
  unsetenv("GPUSOCK_SPIN");
  unsetenv("GPUSOCK_SECRET");
  EXPECT_EQ(Options::from_env().gpu, 0);
}

/// Every variable that from_env() reads, with values near the allowed ones. GPUSOCK_SECRET is missing: it may be any
/// text.
TEST(OptionsTest, RefusesEveryWrongVariableByName) {
  const std::pair<const char*, std::vector<const char*>> wrong[] = {
      {"GPUSOCK_GPU", {"first", "-1", "0x1", "1 ", "99999999999"}},
      {"GPUSOCK_LINK", {"pigeon", "TCP", " tcp", "tcp,p2p"}},
      {"GPUSOCK_FABRIC_PROVIDER", {"two names", "tcp,shm", "^tcp", "tcp\n", "/usr/lib"}},
      {"GPUSOCK_RING", {"attic", "Host", "device "}},
      {"GPUSOCK_WORDS", {"attic", "Host", "gpu"}},
      {"GPUSOCK_GPUDIRECT", {"maybe", "on", "1"}},
      {"GPUSOCK_HOST_RINGS",
       {"a/b", "a b", ",connections=1", "a,", "a,connections=", "a,connections=0", "a,connections=4097",
        "a,connections=1x", "a,slots=1", "off,connections=1", "OFF", "Auto", "AUTO,connections=1"}},
      {"GPUSOCK_OBSERVE", {"somewhere", "./x", "OFF"}},
      {"GPUSOCK_PROCESSORS", {"some", "3-1", "0-", "-1", "0,,1", "0,", "0 1", "65535"}},
      {"GPUSOCK_SPIN", {"yes", "ON", "1"}},
      {"GPUSOCK_LOG", {"foo", "WARN", "warning", "err", "critical", "3"}},
  };
  for (const auto& [name, values] : wrong) {
    for (const char* value : values) {
      setenv(name, value, 1);
      try {
        Options::from_env();
        ADD_FAILURE() << name << "='" << value << "' was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code().value(), EINVAL);
        EXPECT_NE(std::string(error.what()).find(std::string(name) + "='" + value + "'"), std::string::npos)
            << error.what();
      }
    }
    setenv(name, "", 1);
    EXPECT_NO_THROW(Options::from_env()) << name << " is empty: as if it were not set";
    unsetenv(name);
  }
}

TEST(OptionsTest, DeviceBuffersRefuseToCopyPastTheirEnd) {
  Context context;
  DeviceBuffer<int> buffer(context, 4);
  std::vector<int> five(5), two{1, 2};
  EXPECT_THROW(buffer.copy_in(five), Error);
  EXPECT_THROW(buffer.copy_out(std::span<int>(five).first(2), 3), Error);
  EXPECT_THROW(buffer.copy_in(two, ~std::size_t{0}), Error);
  buffer.copy_in(two, 2);
  std::vector<int> all(4, -1);
  buffer.copy_out(all);
  EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 2}));
}

TEST(OptionsTest, ALaunchBeyondTheDevicesLimitsIsRefused) {
  Context context;
  const auto nothing = +[] {};
  EXPECT_THROW(launch(context, {.grid = 1, .block = 2048}, nothing), Error);
  EXPECT_THROW(launch(context, {.grid = 0, .block = 1}, nothing), Error);
}

}  // namespace
}  // namespace gpusock
