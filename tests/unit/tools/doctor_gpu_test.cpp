// What gpusock-doctor says of GPUs: the driver, what the build needs, peers, and processes that share one.
#include "tests/unit/tools/doctor_machine.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gpusock::doctor_test {
namespace {

TEST(Doctor, AGpuWithoutADriverIsFoundOnTheBus) {
  Machine machine;
  machine.add_gpu_on_bus();
  expect_mend(machine.examine(), "driver is not loaded", "nvidia-driver");
}

TEST(Doctor, ADriverWithoutItsLibraryIsFound) {
  Machine machine;
  machine.add_gpu();
  machine.cuda = {};
  expect_mend(machine.examine(), "libcuda.so.1", "--gpus all");
}

TEST(Doctor, ADriverThatDoesNotStartIsFoundWithItsError) {
  Machine machine;
  machine.add_gpu();
  machine.cuda = {true, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 12040, {}};
  expect_mend(machine.examine(), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "nvidia-smi");
  machine.cuda.error.clear();
  expect_mend(machine.examine(), "shows no GPU", "nvidia-smi");
}

TEST(Doctor, AnOldDriverIsFoundWithItsVersion) {
  Machine machine;
  machine.add_gpu();
  machine.sources.built_for = "cuda";
  EXPECT_EQ(find(machine.examine(), "driver").says, "driver 550.54.15 for CUDA 12.4");
  EXPECT_TRUE(machine.examine().well()) << to_mend(machine.examine());
  machine.cuda.version = 12020;
  expect_mend(machine.examine(), "driver 550.54.15 for CUDA 12.2: programs need CUDA 12.4", "550");
}

TEST(Doctor, ABuildThatDoesNotFitTheMachineIsFound) {
  Machine machine;
  machine.sources.built_for = "cuda";
  const Report without = machine.examine();
  expect_mend(without, "there is no NVIDIA GPU", "./run build host");
  for (const LinkChoice& choice : without.links) EXPECT_EQ(choice.link, "none");
  machine.sources.built_for = "cpu";
  machine.add_gpu();
  expect_mend(machine.examine(), "build is for the CPU device", "./run build cuda");
}

TEST(Doctor, AGpuThatProgramsCannotUseIsFound) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  machine.cuda.gpus[0].capability_major = 7;
  machine.cuda.gpus[0].capability_minor = 5;
  expect_mend(machine.examine(), "older than sm_80", "GPUSOCK_CUDA_ARCHITECTURES=75");
  machine.cuda.gpus[0] = good_gpu();
  machine.cuda.gpus[0].same_address = false;
  expect_mend(machine.examine(), "host addresses", "GPUSOCK_GPU");
}

TEST(Doctor, AGpuThatTheShapeDoesNotHaveIsToBeMended) {
  Machine machine;
  machine.environment["GPUSOCK_GPU"] = "7";
  EXPECT_TRUE(machine.examine().well()) << "the CPU device by itself has no GPUs";
  for (const char* shape : {"gpu", "gpus-apart"}) {
    machine.environment["GPUSOCK_CPU_SHAPE"] = shape;
    machine.environment["GPUSOCK_GPU"] = "2";
    expect_mend(machine.examine(), "GPUSOCK_GPU=2, but the GPUs of this shape are 0 to 1", "export GPUSOCK_GPU=0");
    machine.environment["GPUSOCK_GPU"] = "1";
    EXPECT_TRUE(machine.examine().well());
  }
}

TEST(Doctor, WhatIsNearTheGpuIsSaid) {
  Machine machine;
  machine.add_gpu();
  EXPECT_EQ(find(machine.examine(), "affinity").says, "") << "a machine that does not say";
  machine.write("sys/bus/pci/devices/0000:17:00.0/numa_node", "1\n");
  machine.write("sys/bus/pci/devices/0000:17:00.0/local_cpulist", "16-31\n");
  EXPECT_EQ(find(machine.examine(), "affinity").says, "GPU 0 is on NUMA node 1, as are processors 16-31");
  machine.add_nic();
  machine.write("sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
  const Finding far = find(machine.examine(), "affinity");
  EXPECT_EQ(far.level, Level::note);
  EXPECT_NE(far.says.find("farther: mlx5_0 (node 0)"), std::string::npos) << far.says;
  machine.write("sys/class/infiniband/mlx5_1/device/numa_node", "1\n");
  const Finding near = find(machine.examine(), "affinity");
  EXPECT_EQ(near.level, Level::fine);
  EXPECT_NE(near.says.find("processors 16-31 and mlx5_1; farther: mlx5_0 (node 0)"), std::string::npos) << near.says;
}

TEST(Doctor, SaysWhetherProcessesTakeTurnsOnAGpu) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::note);
  EXPECT_EQ(find(machine.examine(), "mps").command, "nvidia-cuda-mps-control -d");
  machine.write("tmp/nvidia-mps/control", "");
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::fine);
  machine.environment["CUDA_MPS_PIPE_DIRECTORY"] = "/run/mps";
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::note) << "the daemon's folder is another one";
  machine.write("run/mps/control", "");
  EXPECT_EQ(find(machine.examine(), "mps").level, Level::fine);
  machine.environment["CUDA_MPS_PIPE_DIRECTORY"] = "";
  machine.examine();
}

TEST(Doctor, WhatCudaReadsAndKernelsThatWaitDoNotBearIsSaid) {
  Machine machine;
  machine.environment["CUDA_LAUNCH_BLOCKING"] = "1";
  machine.environment["CUDA_MODULE_LOADING"] = "LAZY";
  machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
  EXPECT_EQ(find(machine.examine(), "environment").says, "") << "the CPU device does not read them";
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  expect_mend(machine.examine(), "CUDA_LAUNCH_BLOCKING='1' makes programs wait for the end of each kernel",
              "unset CUDA_LAUNCH_BLOCKING");
  machine.environment["CUDA_LAUNCH_BLOCKING"] = "0";
  EXPECT_TRUE(machine.examine().well());
  EXPECT_EQ(find(machine.examine(), "environment").command, "export CUDA_MODULE_LOADING=EAGER");
  machine.environment["CUDA_MODULE_LOADING"] = "EAGER";
  EXPECT_EQ(find(machine.examine(), "environment").command, "unset CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_NE(find(machine.examine(), "environment").says.find("='1': a process may use so many streams"),
            std::string::npos);
  for (const char* const none : {"0", "-1", "33", "many", "8 or so"}) {
    machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = none;
    const auto found = find(machine.examine(), "environment");
    EXPECT_NE(found.says.find(std::string("='") + none + "' is no number from 1 to 32"), std::string::npos)
        << found.says;
    EXPECT_EQ(found.command, "unset CUDA_DEVICE_MAX_CONNECTIONS");
  }
  machine.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "32";
  EXPECT_EQ(find(machine.examine(), "environment").says, "");
}

TEST(Doctor, WhichGpusReachEachOthersMemoryIsSaid) {
  Machine machine;
  machine.sources.built_for = "cuda";
  machine.add_gpu();
  EXPECT_EQ(words_of_page(machine.examine()).find("each other's memory"), std::string::npos);
  machine.cuda.gpus.push_back(good_gpu());
  EXPECT_NE(words_of_page(machine.examine()).find("GPUs 0 and 1 do not reach each other's memory"), std::string::npos);
  machine.cuda.gpus[0].peers = {1};
  EXPECT_NE(words_of_page(machine.examine()).find("GPUs 0 and 1 do not reach each other's memory"), std::string::npos);
  machine.cuda.gpus[1].peers = {0};
  const Report report = machine.examine();
  EXPECT_NE(words_of_page(report).find("the GPUs reach each other's memory"), std::string::npos);
  EXPECT_EQ(link(report, "same process").words,
            "device memory between kernels of GPUs that reach each other (else pinned host memory)");
}

}  // namespace
}  // namespace gpusock::doctor_test
