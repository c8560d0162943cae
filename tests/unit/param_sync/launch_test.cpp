// Who a launcher says this process is.
#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/error.hpp"

#include <gtest/gtest.h>

#include <map>

namespace {

using param_sync::bootstrap::Launch;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch(const Variables& variables, bool with_pmix = false) {
  return param_sync::bootstrap::read_launch(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      with_pmix);
}

/// Refused with a message that holds `words`.
void expect_refused(const Variables& variables, const std::string& words, bool with_pmix = false) {
  try {
    launch(variables, with_pmix);
    ADD_FAILURE() << "taken, instead of: " << words;
  } catch (const gpusock::Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kOurs{{"GPUSOCK_RANK", "1"}, {"GPUSOCK_SIZE", "2"}};
const Variables kMpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
const Variables kTorch{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
const Variables kSlurm{
    {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "n[07-08]"}, {"SLURM_JOB_ID", "21"}};

TEST(Launch, WithoutALauncherThereIsNone) {
  EXPECT_FALSE(launch({}));
  EXPECT_FALSE(launch({{"GPUSOCK_SECRET", "x"}, {"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", "somewhere"}}));
}

TEST(Launch, OursHasAListOfPeersOrAPlaceToMeet) {
  const auto listed = launch(with(kOurs, {{"GPUSOCK_PEERS", "a:1,b:2"}}));
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->rank, 1);
  EXPECT_EQ(listed->size, 2);
  EXPECT_EQ(listed->peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(launch(with(kOurs, {{"GPUSOCK_RENDEZVOUS", "a:1"}}))->rendezvous, "a:1");
}

TEST(Launch, TorchrunsNodesMeetAtItsMaster) {
  const auto found = launch(kTorch);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->rendezvous, "node7:29500");
  EXPECT_EQ(launch(with(kTorch, {{"MASTER_ADDR", "fd00::1"}}))->rendezvous, "[fd00::1]:29500");
}

TEST(Launch, APortThatTorchrunKeepsForItselfIsNotTaken) {
  EXPECT_EQ(launch(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->rendezvous, "node7:29501");
  EXPECT_EQ(launch(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->rendezvous, "node7:29500");
}

TEST(Launch, SlurmsTasksMeetOnTheFirstHostOfTheStep) {
  const auto found = launch(kSlurm);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->rendezvous, "n07:20021");
  EXPECT_EQ(launch(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[08-09]"}}))->rendezvous, "n08:20021");
}

TEST(Launch, SlurmsStepsHavePortsOfTheirOwn) {
  EXPECT_NE(launch(with(kSlurm, {{"SLURM_STEP_ID", "0"}}))->rendezvous,
            launch(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))->rendezvous);
}

TEST(Launch, SlurmsTasksOnOneHostMeetOnLoopback) {
  EXPECT_EQ(launch(with(kSlurm, {{"SLURM_JOB_NODELIST", "n7"}}))->rendezvous, "127.0.0.1:20021");
}

TEST(Launch, ASlurmAllocationIsNoTask) {
  EXPECT_FALSE(launch({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "n[1-4]"}}));
}

TEST(Launch, WhatSlurmHasStartedMayBeALauncherItself) {
  EXPECT_EQ(launch(with(kSlurm, kTorch))->source, "RANK");
  EXPECT_EQ(launch(with(kSlurm, with(kOurs, {{"GPUSOCK_PEERS", "a:1,b:1"}})))->rank, 1);
}

TEST(Launch, PmixIsAskedWhereItIsThere) {
  const Variables pmix{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "job"}};
  EXPECT_TRUE(launch(with(kMpi, pmix), true)->pmix);
  EXPECT_TRUE(launch(pmix, true)->pmix);
  EXPECT_FALSE(launch(pmix, false));
  EXPECT_FALSE(launch({{"PMIX_RANK", "0"}}, true));
  expect_refused(with(kMpi, pmix),
                 "OMPI_COMM_WORLD_RANK says that this is one of 3 ranks, but nothing where the others are");
}

TEST(Launch, ANamedPlaceGoesBeforePmix) {
  const Variables pmix{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "job"}};
  const auto found = launch(with(with(kMpi, pmix), {{"GPUSOCK_RENDEZVOUS", "a:1"}}), true);
  EXPECT_FALSE(found->pmix);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->rendezvous, "a:1");
}

TEST(Launch, OneNodeNeedsNoOthers) {
  const auto found = launch({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size, 1);
  EXPECT_TRUE(found->rendezvous.empty());
}

TEST(Launch, HalfSetVariablesAreNamed) {
  expect_refused({{"GPUSOCK_RANK", "0"}}, "GPUSOCK_RANK is set, but not GPUSOCK_SIZE");
  expect_refused({{"GPUSOCK_SIZE", "2"}}, "GPUSOCK_SIZE is set, but not GPUSOCK_RANK");
  expect_refused({{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE");
  expect_refused({{"RANK", "0"}}, "RANK is set, but not WORLD_SIZE");
  expect_refused({{"SLURM_PROCID", "0"}}, "SLURM_PROCID is set, but not SLURM_NTASKS");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "MASTER_ADDR is set, but not MASTER_PORT");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}, "MASTER_PORT is set, but not MASTER_ADDR");
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, "nothing where the others are");
  expect_refused(kOurs, "nothing where the others are");
  expect_refused({{"GPUSOCK_PEERS", "a:1,b:1"}}, "nothing says which rank this is");
}

TEST(Launch, ContradictionsAreNamed) {
  expect_refused({{"GPUSOCK_RANK", "2"}, {"GPUSOCK_SIZE", "2"}},
                 "GPUSOCK_RANK=2 contradicts GPUSOCK_SIZE=2: ranks are 0 to 1");
  expect_refused(with(kOurs, {{"GPUSOCK_PEERS", "a:1,b:1,c:1"}}), "lists 3 addresses, but there are 2 ranks");
  expect_refused(with(kOurs, {{"GPUSOCK_PEERS", "a:1,b:1"}, {"GPUSOCK_RENDEZVOUS", "a:1"}}), "both set");
  expect_refused(with(kMpi, kTorch), "OMPI_COMM_WORLD_RANK says rank 2 of 3, but RANK says rank 1 of 4");
  expect_refused(with(kSlurm, {{"SLURM_JOB_NUM_NODES", "3"}}),
                 "SLURM_JOB_NODELIST names 2 hosts, which contradicts SLURM_JOB_NUM_NODES=3");
}

TEST(Launch, TheLastPortServesTorchOrThisProgramButNotBoth) {
  const Variables last = with(kTorch, {{"MASTER_PORT", "65535"}});
  EXPECT_EQ(launch(last)->rendezvous, "node7:65535");
  expect_refused(
      with(last, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
      "MASTER_PORT=65535 is torchrun's own, and there is no next port for the ranks to meet at: take a lower one");
}

TEST(Launch, NumbersThatAreNoneAreNamed) {
  expect_refused({{"RANK", "x"}, {"WORLD_SIZE", "2"}}, "RANK=x is no number");
  expect_refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1 is no number");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=0: there are 1 to 64 ranks");
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "65"}}, "WORLD_SIZE=65: there are 1 to 64 ranks");
  expect_refused(with(kTorch, {{"MASTER_PORT", "70000"}}), "MASTER_PORT=70000 is no number from 0 to 65535");
}

}  // namespace
