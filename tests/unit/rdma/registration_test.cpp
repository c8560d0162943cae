// How memory is given to the card: which calls are made for which kind of memory, in which order, and what is said where none works.
#include "rdma/registration.hpp"
#include "rdma/visibility.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpusock::rdma {
namespace {

constexpr unsigned kWritten = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/// A CUDA driver that records.
struct FakeCuda {
  static inline std::vector<std::string> calls;
  static inline int result = 0;
  static inline int ordering = 0;
  static inline int options = 0;
  static inline int exported = -1;

  static CudaDriver driver() {
    calls.clear();
    result = 0;
    ordering = options = 0;
    exported = -1;
    CudaDriver driver;
    driver.get_handle_for_address_range = [](void* handle, std::uint64_t address, std::size_t bytes, int type, unsigned long long flags) {
      calls.push_back("export " + std::to_string(address) + " " + std::to_string(bytes) + " " + std::to_string(type) + " " + std::to_string(flags));
      exported = open("/dev/null", O_RDONLY | O_CLOEXEC);
      *static_cast<int*>(handle) = exported;
      if (result != 0) ::close(exported);
      return result;
    };
    driver.device_get_attribute = [](int* value, int attribute, int) {
      *value = attribute == kWritesOrdering ? ordering : attribute == kFlushWritesOptions ? options : 0;
      return result;
    };
    driver.flush_gpudirect_rdma_writes = [](int target, int scope) {
      calls.push_back("flush " + std::to_string(target) + " " + std::to_string(scope));
      return result;
    };
    driver.get_error_name = [](int, const char** name) {
      *name = "CUDA_ERROR_NOT_SUPPORTED";
      return 0;
    };
    return driver;
  }
};

class RegistrationTest : public testing::Test {
 protected:
  RegistrationTest() { fake::reset(); }
  ~RegistrationTest() override { EXPECT_EQ(fake::card().regions, 0u); }

  ibv_context context_{};
  ibv_pd domain_{&context_, 0};
  std::string reason_;
};

TEST_F(RegistrationTest, WhatPeersWriteIsNeverRelaxedAndNobodyReads) {
  EXPECT_EQ(access_flags(Access::written_by_peers), kWritten);
  EXPECT_EQ(access_flags(Access::read_by_card), unsigned{IBV_ACCESS_RELAXED_ORDERING});
}

TEST_F(RegistrationTest, HostMemoryIsRegisteredExactlyAndRevoked) {
  std::byte memory[256];
  {
    const Registration region = register_host(&domain_, memory, sizeof memory, Access::written_by_peers);
    EXPECT_EQ(region.path(), Path::host);
    EXPECT_EQ(fake::card().calls, std::vector<std::string>{"reg_mr 256 " + std::to_string(kWritten)});
  }
  EXPECT_EQ(fake::card().calls.back(), "dereg_mr");
}

TEST_F(RegistrationTest, TooLittleLockedMemorySaysWhatToDo) {
  fake::card().registering_fails = ENOMEM;
  std::byte memory[64];
  try {
    register_host(&domain_, memory, sizeof memory, Access::read_by_card);
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
    const Registration region = register_gpu(&domain_, address, 8192, Access::written_by_peers, {&driver, true}, reason_);
    ASSERT_TRUE(region);
    EXPECT_EQ(region.path(), Path::dmabuf);
    EXPECT_EQ(reason_, "");
    EXPECT_EQ(FakeCuda::calls, std::vector<std::string>{"export " + std::to_string(0x7f0000000000) + " 12288 1 0"});
    EXPECT_EQ(fake::card().calls, std::vector<std::string>{"reg_dmabuf_mr offset 512 bytes 8192 iova " + std::to_string(address) + " access " +
                                                            std::to_string(kWritten)});
    EXPECT_EQ(fcntl(FakeCuda::exported, F_GETFD), -1) << "the descriptor is left open";
  }
  EXPECT_EQ(fake::card().calls.back(), "dereg_mr");
}

TEST_F(RegistrationTest, GpuMemoryThatCannotBeExportedGoesByPeermem) {
  const CudaDriver driver = FakeCuda::driver();
  FakeCuda::result = 801;
  const Registration region = register_gpu(&domain_, 4096, 4096, Access::read_by_card, {&driver, true}, reason_);
  ASSERT_TRUE(region);
  EXPECT_EQ(region.path(), Path::peermem);
  EXPECT_NE(reason_.find("CUDA_ERROR_NOT_SUPPORTED"), std::string::npos) << reason_;
  EXPECT_EQ(fake::card().calls.size(), 1u);
  EXPECT_EQ(fake::card().calls[0].substr(0, 11), "reg_mr 4096");
}

TEST_F(RegistrationTest, ACardThatTakesNoDmabufGetsPeermem) {
  const CudaDriver driver = FakeCuda::driver();
  fake::card().dmabuf_fails = EOPNOTSUPP;
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
  EXPECT_TRUE(fake::card().calls.empty());
}

TEST_F(RegistrationTest, AnOldDriverWithoutDmabufIsNamed) {
  CudaDriver driver = FakeCuda::driver();
  driver.get_handle_for_address_range = nullptr;
  fake::card().registering_fails = EFAULT;
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

TEST_F(RegistrationTest, AGpuThatOrdersWritesForItselfNeedsNoFlush) {
  const CudaDriver driver = FakeCuda::driver();
  EXPECT_FALSE(gpu_sees_writes_in_order(driver, 0));  // None
  FakeCuda::ordering = kOrderingOwner;
  EXPECT_TRUE(gpu_sees_writes_in_order(driver, 0));
  FakeCuda::ordering = 200;  // all devices
  EXPECT_TRUE(gpu_sees_writes_in_order(driver, 0));
  FakeCuda::result = 1;
  EXPECT_FALSE(gpu_sees_writes_in_order(driver, 0));
  EXPECT_FALSE(gpu_sees_writes_in_order({}, 0));
}

TEST_F(RegistrationTest, FlushingIsOfferedOnlyWhereTheHostMay) {
  const CudaDriver driver = FakeCuda::driver();
  EXPECT_FALSE(host_can_flush_writes_to_gpu(driver, 0));
  FakeCuda::options = kFlushByHost;
  EXPECT_TRUE(host_can_flush_writes_to_gpu(driver, 0));
  EXPECT_EQ(flush_writes_to_gpu(driver), 0);
  EXPECT_EQ(FakeCuda::calls, std::vector<std::string>{"flush 0 100"});
  FakeCuda::result = 1;
  EXPECT_EQ(flush_writes_to_gpu(driver), -EIO);
  EXPECT_EQ(flush_writes_to_gpu({}), -ENOSYS);
}

}  // namespace
}  // namespace gpusock::rdma
