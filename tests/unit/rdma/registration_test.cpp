// How memory is given to the NIC: which calls are made for which kind of memory, in which order, and what is said
// where none works.
#include "rdma/registration.hpp"
#include "rdma/visibility.hpp"
#include "tests/unit/rdma/fake_cuda.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpusock::rdma {
namespace {

using fake::FakeCuda;

constexpr unsigned kWritten = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

class RegistrationTest : public testing::Test {
 protected:
  RegistrationTest() { fake::reset(); }
  ~RegistrationTest() override { EXPECT_EQ(fake::nic().regions, 0u); }

  ibv_context context_{};
  ibv_pd domain_{&context_, 0};
  std::string reason_;
};

TEST_F(RegistrationTest, WhatPeersWriteIsNeverRelaxedAndNobodyReads) {
  EXPECT_EQ(access_flags(Access::written_by_peers), kWritten);
  EXPECT_EQ(access_flags(Access::read_by_nic), unsigned{IBV_ACCESS_RELAXED_ORDERING});
}

TEST_F(RegistrationTest, HostMemoryIsRegisteredExactlyAndRevoked) {
  std::byte memory[256];
  {
    const Registration region = register_host(&domain_, memory, sizeof memory, Access::written_by_peers);
    EXPECT_EQ(region.path(), Path::host);
    EXPECT_EQ(fake::nic().calls, std::vector<std::string>{"reg_mr 256 " + std::to_string(kWritten)});
  }
  EXPECT_EQ(fake::nic().calls.back(), "dereg_mr");
}

TEST_F(RegistrationTest, TooLittleLockedMemorySaysWhatToDo) {
  fake::nic().registering_fails = ENOMEM;
  std::byte memory[64];
  try {
    register_host(&domain_, memory, sizeof memory, Access::read_by_nic);
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOMEM);
    EXPECT_NE(std::string(error.what()).find("ulimit -l"), std::string::npos) << error.what();
  }
}

TEST_F(RegistrationTest, GpuMemoryGoesByDmabufWhosePagesAreExported) {
  const CudaDriver driver = FakeCuda::driver();
  const std::uint64_t address = 0x7f0000000000 + 512;
  {
    const Registration region = register_gpu(&domain_, address, 8192, Access::written_by_peers, {&driver, true},
                                             reason_);
    ASSERT_TRUE(region);
    EXPECT_EQ(region.path(), Path::dmabuf);
    EXPECT_EQ(reason_, "");
    EXPECT_EQ(FakeCuda::calls, std::vector<std::string>{"export " + std::to_string(0x7f0000000000) + " 12288 1 0"});
    EXPECT_EQ(fake::nic().calls,
              std::vector<std::string>{"reg_dmabuf_mr offset 512 bytes 8192 iova " + std::to_string(address) +
                                       " access " + std::to_string(kWritten)});
    EXPECT_EQ(fcntl(FakeCuda::exported, F_GETFD), -1) << "the descriptor is left open";
  }
  EXPECT_EQ(fake::nic().calls.back(), "dereg_mr");
}

TEST_F(RegistrationTest, GpuMemoryThatCannotBeExportedGoesByPeermem) {
  const CudaDriver driver = FakeCuda::driver();
  FakeCuda::result = 801;
  const Registration region = register_gpu(&domain_, 4096, 4096, Access::read_by_nic, {&driver, true}, reason_);
  ASSERT_TRUE(region);
  EXPECT_EQ(region.path(), Path::peermem);
  EXPECT_NE(reason_.find("CUDA_ERROR_NOT_SUPPORTED"), std::string::npos) << reason_;
  EXPECT_EQ(fake::nic().calls.size(), 1u);
  EXPECT_EQ(fake::nic().calls[0].substr(0, 11), "reg_mr 4096");
}

TEST_F(RegistrationTest, ACardThatTakesNoDmabufGetsPeermem) {
  const CudaDriver driver = FakeCuda::driver();
  fake::nic().dmabuf_fails = EOPNOTSUPP;
  const Registration region = register_gpu(&domain_, 4096, 4096, Access::written_by_peers, {&driver, true}, reason_);
  ASSERT_TRUE(region);
  EXPECT_EQ(region.path(), Path::peermem);
  EXPECT_NE(reason_.find("ibv_reg_dmabuf_mr"), std::string::npos) << reason_;
  EXPECT_EQ(fcntl(FakeCuda::exported, F_GETFD), -1) << "the descriptor is left open";
}

TEST_F(RegistrationTest, WhereNothingWorksBothReasonsAreGiven) {
  EXPECT_FALSE(register_gpu(&domain_, 4096, 4096, Access::written_by_peers, {nullptr, false}, reason_));
  EXPECT_NE(reason_.find("no CUDA driver"), std::string::npos) << reason_;
  EXPECT_NE(reason_.find("modprobe nvidia_peermem"), std::string::npos) << reason_;
  EXPECT_TRUE(fake::nic().calls.empty());
}

TEST_F(RegistrationTest, AnOldDriverWithoutDmabufIsNamed) {
  CudaDriver driver = FakeCuda::driver();
  driver.get_handle_for_address_range = nullptr;
  fake::nic().registering_fails = EFAULT;
  EXPECT_FALSE(register_gpu(&domain_, 4096, 4096, Access::written_by_peers, {&driver, true}, reason_));
  EXPECT_NE(reason_.find("older than 11.7"), std::string::npos) << reason_;
  EXPECT_NE(reason_.find("peermem: ibv_reg_mr"), std::string::npos) << reason_;
}

TEST_F(RegistrationTest, ALibraryThatIsNotThereIsNoDriver) {
  CudaDriver driver;
  EXPECT_EQ(load_cuda_driver("libcuda-of-nobody.so.1", driver), nullptr);
}

TEST_F(RegistrationTest, PeermemIsLookedForInSysfs) {
  const std::filesystem::path sys = std::filesystem::path(testing::TempDir()) / ("sys" + std::to_string(getpid()));
  EXPECT_FALSE(peermem_is_loaded(sys));
  std::filesystem::create_directories(sys / "module/nvidia_peermem");
  EXPECT_TRUE(peermem_is_loaded(sys));
  std::filesystem::remove_all(sys);
}

TEST_F(RegistrationTest, MemoryIsKnownByAnotherAddressWhereThatIsAskedFor) {
  const CudaDriver driver = FakeCuda::driver();
  std::byte memory[256];
  const std::uint64_t name = 0x1234500000;
  const Registration host = register_host(&domain_, memory, sizeof memory, Access::written_by_peers, name);
  EXPECT_TRUE(host);
  const Registration gpu = register_gpu(&domain_, 8192, 4096, Access::written_by_peers, {&driver, false}, reason_,
                                        name);
  ASSERT_TRUE(gpu) << reason_;
  EXPECT_NE(fake::nic().calls.back().find("iova " + std::to_string(name)), std::string::npos)
      << fake::nic().calls.back();
  EXPECT_NE(FakeCuda::calls.back().find("export 8192 "), std::string::npos) << "not the memory's own address";
  fake::nic().naming_fails = EOPNOTSUPP;
  EXPECT_THROW(register_host(&domain_, memory, sizeof memory, Access::written_by_peers, name), std::system_error);
}

TEST_F(RegistrationTest, WhatItTakesUntilAGpuSeesWhatCardsWroteIsTheDriversWord) {
  const CudaDriver driver = FakeCuda::driver();
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::unsure) << "neither ordered nor flushed";
  FakeCuda::options = kFlushByHost;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::flushed);
  for (const int ordering : {kOrderingOwner, 200}) {  // and all devices
    FakeCuda::ordering = ordering;
    EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::in_order);
  }
  FakeCuda::options = 0;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::in_order);
  FakeCuda::host_page_tables = 1;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::unsure) << "two ways to its memory";
}

TEST_F(RegistrationTest, ADriverThatCannotBeAskedPromisesNothing) {
  CudaDriver driver = FakeCuda::driver();
  FakeCuda::ordering = 200;
  FakeCuda::options = kFlushByHost;
  FakeCuda::result = 1;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::unsure);
  FakeCuda::result = FakeCuda::ordering = 0;
  driver.flush_gpudirect_rdma_writes = nullptr;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::unsure) << "there is nothing to flush with";
  driver.device_get_attribute = nullptr;
  EXPECT_EQ(visibility_of_nic_writes(&driver, 0), NicWrites::unsure);
  EXPECT_EQ(visibility_of_nic_writes(nullptr, 0), NicWrites::unsure);
}

TEST_F(RegistrationTest, AFlushIsOneOfTheCurrentContextToItsOwner) {
  const CudaDriver driver = FakeCuda::driver();
  EXPECT_EQ(flush_writes_to_gpu(driver), 0);
  EXPECT_EQ(FakeCuda::calls, std::vector<std::string>{"flush 0 100"});
  FakeCuda::result = 1;
  EXPECT_EQ(flush_writes_to_gpu(driver), -EIO);
  EXPECT_EQ(flush_writes_to_gpu({}), -ENOSYS);
}

}  // namespace
}  // namespace gpusock::rdma
