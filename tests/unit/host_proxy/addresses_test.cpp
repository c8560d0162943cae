// Names with several addresses: which of them an endpoint keeps, and how connect and listen go through them.
#include "gpusock/error.hpp"
#include "host_proxy/net/connect_attempts.hpp"

#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netdb.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::addresses {
namespace {

/// A list as getaddrinfo makes it, of numeric addresses.
class AddressList {
 public:
  explicit AddressList(const std::vector<std::string>& addresses)
      : entries_(addresses.size()), names_(addresses.size()) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      fill(addresses[i], entries_[i], names_[i]);
      if (i != 0) entries_[i - 1].ai_next = &entries_[i];
    }
  }
  addrinfo* first() { return entries_.data(); }

 private:
  static void fill(const std::string& address, addrinfo& entry, sockaddr_storage& name) {
    const auto percent = address.find('%');
    auto* v4 = reinterpret_cast<sockaddr_in*>(&name);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&name);
    if (address.starts_with("unix")) {
      name.ss_family = AF_UNIX;
    } else if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
      name.ss_family = AF_INET;
    } else {
      EXPECT_EQ(inet_pton(AF_INET6, address.substr(0, percent).c_str(), &v6->sin6_addr), 1) << address;
      name.ss_family = AF_INET6;
      if (percent != std::string::npos)
        v6->sin6_scope_id = static_cast<std::uint32_t>(std::stoul(address.substr(percent + 1)));
    }
    entry.ai_family = name.ss_family;
    entry.ai_addr = reinterpret_cast<sockaddr*>(&name);
  }

  std::vector<addrinfo> entries_;
  std::vector<sockaddr_storage> names_;
};

AddressList* looked_up = nullptr;  // what the name many.test has; nullptr outside such a test

/// What parse() makes of a name with these addresses.
Endpoint parse_name_of(const std::vector<std::string>& addresses, const std::string& options = "") {
  AddressList list(addresses);
  looked_up = &list;
  const Endpoint endpoint = Endpoint::parse("many.test:7" + options);
  looked_up = nullptr;
  return endpoint;
}

std::vector<std::string> addresses_of(const Endpoint& endpoint) {
  std::vector<std::string> all;
  for (int index = 0; index < endpoint.addresses(); ++index) all.push_back(endpoint.at_address(index).host_port());
  return all;
}

using Texts = std::vector<std::string>;

TEST(NameTest, AllAddressesAreKeptInTheResolversOrder) {
  EXPECT_EQ(addresses_of(parse_name_of({"::1", "127.0.0.1"})), (Texts{"[::1]:7", "127.0.0.1:7"}));
  EXPECT_EQ(addresses_of(parse_name_of({"127.0.0.1", "::1"})), (Texts{"127.0.0.1:7", "[::1]:7"}));
  EXPECT_EQ(addresses_of(parse_name_of({"192.0.2.1"})), (Texts{"192.0.2.1:7"}));
}

TEST(NameTest, EachAddressIsKeptOnceAndOtherFamiliesAreSkipped) {
  EXPECT_EQ(addresses_of(parse_name_of({"unix", "127.0.0.1", "127.0.0.1", "unix", "::1", "127.0.0.1"})),
            (Texts{"127.0.0.1:7", "[::1]:7"}));
}

TEST(NameTest, LinkLocalAddressesKeepTheirInterfaces) {
  EXPECT_EQ(addresses_of(parse_name_of({"192.0.2.1", "fe80::1%3", "fe80::1%4"})),
            (Texts{"192.0.2.1:7", "[fe80::1%3]:7", "[fe80::1%4]:7"}));
}

TEST(NameTest, OfMoreThanFourTheOtherFamilyIsNotLost) {
  EXPECT_EQ(addresses_of(parse_name_of(
                {"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8::5", "192.0.2.1", "192.0.2.2"})),
            (Texts{"[2001:db8::1]:7", "[2001:db8::2]:7", "[2001:db8::3]:7", "192.0.2.1:7"}));
  EXPECT_EQ(addresses_of(parse_name_of({"192.0.2.1", "::1", "192.0.2.2", "192.0.2.3", "192.0.2.4"})),
            (Texts{"192.0.2.1:7", "[::1]:7", "192.0.2.2:7", "192.0.2.3:7"}));
}

TEST(NameTest, ItsTextHasAllItsAddresses) {
  const Endpoint both = parse_name_of({"::1", "127.0.0.1"}, ",link=tcp,ring=64K");
  EXPECT_EQ(both.to_string(), "[::1]:7,link=tcp,ring=64K,or=127.0.0.1");
  EXPECT_EQ(Endpoint::parse(both.to_string()), both);
  EXPECT_EQ(both.at_address(1), Endpoint::parse("127.0.0.1:7,link=tcp,ring=64K"));
}

TEST(NameTest, AFamilyThatThereIsNotEndsTheList) {
  Endpoint told = parse_name_of({"::1", "127.0.0.1", "192.0.2.1"});
  told.further[0].family = 9;
  EXPECT_EQ(told.addresses(), 1);
  told.family = 5;
  EXPECT_EQ(told.addresses(), 0);
}

// --- connecting

/// Refuses each connection at once, with the next of these errors.
class RefusingNetwork final : public proxy::Network {
 public:
  explicit RefusingNetwork(std::vector<int> errors) : errors_(std::move(errors)) {}
  std::unique_ptr<proxy::Acceptor> listen(const Endpoint&, int, int&) override { return nullptr; }
  std::unique_ptr<proxy::ByteStream> connect(const Endpoint&, int& error) override {
    error = errors_.at(tries++);
    return nullptr;
  }
  void poll() override {}
  std::size_t tries = 0;

 private:
  std::vector<int> errors_;
};

TEST(ConnectAttemptsTest, TheMostTellingErrorIsTheOneTold) {
  const struct {
    int first, second, told;
    std::size_t tries;
  } cases[] = {
      {ECONNREFUSED, ENETUNREACH, ECONNREFUSED, 2},
      {ENETUNREACH, ECONNREFUSED, ECONNREFUSED, 2},
      {ENETUNREACH, EHOSTUNREACH, EHOSTUNREACH, 2},
      {ETIMEDOUT, EAFNOSUPPORT, ETIMEDOUT, 2},
      {ETIMEDOUT, ECONNREFUSED, ECONNREFUSED, 2},
      {EADDRNOTAVAIL, EACCES, EACCES, 2},
      {ECONNREFUSED, EMFILE, EMFILE, 2},
      {EMFILE, ECONNREFUSED, EMFILE, 1},
      {ENOMEM, ECONNREFUSED, ENOMEM, 1},
  };
  const Endpoint two = parse_name_of({"::1", "127.0.0.1"});
  for (const auto& each : cases) {
    RefusingNetwork network({each.first, each.second});
    proxy::ConnectAttempts attempts(two);
    EXPECT_EQ(attempts.start_next(network), nullptr);
    EXPECT_EQ(attempts.error(), each.told) << strerror(each.first) << ", then " << strerror(each.second);
    EXPECT_EQ(network.tries, each.tries);
  }
}

Options small_context() {
  Options options;
  options.sockets_max = 64;
  return options;
}

class Addresses : public testing::TestWithParam<LinkKind> {
 protected:
  /// A name with these addresses, the port of the server, and the link of this test.
  Endpoint name_of(const std::vector<std::string>& addresses) const {
    Endpoint name = parse_name_of(addresses);
    name.link = GetParam();
    name.port = port_;
    return name;
  }
  void serve(const std::string& address) {
    port_ = 0;
    listener_ = server_.net().listen(this_thread(), name_of({address}), 4, patience());
    ASSERT_GE(listener_, 0);
    Endpoint at;
    ASSERT_EQ(server_.net().getsockname(listener_, at), 0);
    port_ = at.port;
  }
  void expect_server_at(const Endpoint& name, const std::string& address) {
    const Net client = client_.net();
    const Socket visitor = client.connect(this_thread(), name, patience());
    ASSERT_GE(visitor, 0) << strerror(-visitor);
    Endpoint peer = name;
    EXPECT_EQ(client.getpeername(visitor, peer), 0);
    EXPECT_EQ(addresses_of(peer), (Texts{address + ":" + std::to_string(port_)}));
    const Socket accepted = server_.net().accept(this_thread(), listener_, patience());
    ASSERT_GE(accepted, 0);
    char byte = 'x';
    EXPECT_EQ(client.send(this_thread(), visitor, &byte, 1, kWaitAll, patience()), 1);
    EXPECT_EQ(server_.net().recv(this_thread(), accepted, &byte, 1, kWaitAll, patience()), 1);
    client.close(this_thread(), visitor);
    server_.net().close(this_thread(), accepted);
  }

  Context server_{small_context()}, client_{small_context()};
  Socket listener_ = -1;
  std::uint16_t port_ = 0;
};

TEST_P(Addresses, AServerAtALaterAddressIsReached) {
  serve("127.0.0.1");
  expect_server_at(name_of({"::1", "127.0.0.1"}), "127.0.0.1");  // refused, or no IPv6 here
  expect_server_at(name_of({"127.0.0.2", "127.0.0.1"}), "127.0.0.1");
  expect_server_at(name_of({"127.0.0.2", "::1", "127.0.0.3", "127.0.0.1"}), "127.0.0.1");
}

TEST_P(Addresses, AServerAtTheFirstAddressIsTaken) {
  serve("127.0.0.2");
  expect_server_at(name_of({"127.0.0.2", "127.0.0.1"}), "127.0.0.2");
}

TEST_P(Addresses, WhereNoneHasAServerTheConnectionIsRefused) {
  serve("127.0.0.1");
  EXPECT_EQ(client_.net().connect(this_thread(), name_of({"127.0.0.2", "127.0.0.3"}), patience()), -ECONNREFUSED);
  EXPECT_EQ(client_.net().connect(this_thread(), name_of({"127.0.0.2", "::1"}), patience()), -ECONNREFUSED);
}

// --- listening

TEST_P(Addresses, AServerListensAtTheFirstAddressOfThisHost) {
  Endpoint name = parse_name_of({"192.0.2.1", "127.0.0.1", "127.0.0.2"});
  name.port = 0;
  name.link = LinkKind::tcp;
  const Net net = server_.net();
  const Socket listener = net.listen(this_thread(), name, 4, patience());
  ASSERT_GE(listener, 0) << strerror(-listener);
  Endpoint at;
  EXPECT_EQ(net.getsockname(listener, at), 0);
  EXPECT_EQ(addresses_of(at), (Texts{"127.0.0.1:" + std::to_string(at.port)}));
}

TEST_P(Addresses, ABusyAddressIsNotPassedOver) {
  serve("127.0.0.1");
  EXPECT_EQ(client_.net().listen(this_thread(), name_of({"127.0.0.1", "127.0.0.2"}), 4, patience()), -EADDRINUSE);
}

INSTANTIATE_TEST_SUITE_P(Links, Addresses, testing::Values(LinkKind::tcp, LinkKind::automatic),
                         [](const auto& link) { return std::string(to_string(link.param)); });

}  // namespace

addrinfo* addresses_of_many_test() { return looked_up == nullptr ? nullptr : looked_up->first(); }

}  // namespace gpusock::addresses

// In place of the system's, linked with --wrap: the name many.test has the addresses of the test that is running.
extern "C" {
int __real_getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list);
void __real_freeaddrinfo(addrinfo* list);

int __wrap_getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list) {
  addrinfo* const own = gpusock::addresses::addresses_of_many_test();
  if (own == nullptr || std::string(node) != "many.test") return __real_getaddrinfo(node, service, hints, list);
  *list = own;
  return 0;
}

void __wrap_freeaddrinfo(addrinfo* list) {
  if (list != gpusock::addresses::addresses_of_many_test()) __real_freeaddrinfo(list);
}
}
