// Lists of hosts, as Slurm writes them.
#include "param_sync/bootstrap/hostlist.hpp"

#include "gpusock/error.hpp"

#include <gtest/gtest.h>

namespace {

using Names = std::vector<std::string>;
using param_sync::bootstrap::expand_hosts;

TEST(HostList, PlainNamesStayInTheirOrder) {
  EXPECT_EQ(expand_hosts("login"), (Names{"login"}));
  EXPECT_EQ(expand_hosts("b,a,c-1.cluster"), (Names{"b", "a", "c-1.cluster"}));
}

TEST(HostList, RangesKeepTheWidthOfTheirFirstNumber) {
  EXPECT_EQ(expand_hosts("node[01-03,7]"), (Names{"node01", "node02", "node03", "node7"}));
  EXPECT_EQ(expand_hosts("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expand_hosts("n[098-101]"), (Names{"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(expand_hosts("n[0]"), (Names{"n0"}));
}

TEST(HostList, EntriesMixAndBracketsMayHaveSuffixes) {
  EXPECT_EQ(expand_hosts("login,n[1-2],m[3].local"), (Names{"login", "n1", "n2", "m3.local"}));
  EXPECT_EQ(expand_hosts("rack[0-1]node[1-2]"), (Names{"rack0node1", "rack0node2", "rack1node1", "rack1node2"}));
}

TEST(HostList, WhatCannotBeIsRefused) {
  for (const char* list :
       {"", "a,,b", "a,", "n[1-2", "n1-2]", "n[[1]]", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[-1]", "n[1,]", "n[0-65536]",
        "n[0-999]m[0-999]", "n[0-18446744073709551615]", "n[99999999999999999999]"}) {
    EXPECT_THROW(expand_hosts(list), gpusock::Error) << list;
  }
  EXPECT_EQ(expand_hosts("n[0-65535]").size(), param_sync::bootstrap::kHostsMax);
}

}  // namespace
