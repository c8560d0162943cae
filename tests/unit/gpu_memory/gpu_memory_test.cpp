// Ring memory on a GPU: what the copy engines bring there and back, and whether the driver gives it to NICs.
#include "gpusock/context/device.hpp"
#include "host_proxy/memory/segment.hpp"
#include "rdma/registration.hpp"
#include "rdma/visibility.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

namespace gpusock {
namespace {

constexpr std::uint64_t kRing = 1 << 20;
constexpr int kDmaBufSupported = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED

class GpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = detail::make_device(options_);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    platform_ = device_->platform();
    rings_ = std::make_unique<proxy::Segment>(platform_, kRing, RingPlacement::device);
  }

  void finish(proxy::Copier& copier, proxy::Copier::Copy copy) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    auto state = proxy::Copier::State::busy;
    while ((state = copier.query(copy)) == proxy::Copier::State::busy) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the copy does not end";
    }
    ASSERT_EQ(state, proxy::Copier::State::done);
  }

  Options options_ = Options::from_env();
  std::unique_ptr<detail::Device> device_;
  std::shared_ptr<proxy::Platform> platform_;
  std::unique_ptr<proxy::Segment> rings_;
};

TEST_F(GpuMemory, CopiesBringRingBytesThereAndBackAcrossTheRingsEnd) {
  constexpr std::size_t kBytes = 64 << 10;
  auto* host = static_cast<std::byte*>(platform_->allocate_shared(2 * kBytes));
  for (std::size_t i = 0; i < kBytes; ++i) host[i] = static_cast<std::byte>((i * 0x9E3779B97F4A7C15u) >> 56);
  const ringbuf::RingSpans around = rings_->proxy_rings().tx.spans(kRing - 1000, kBytes);
  {
    const auto copier = platform_->make_copier();
    finish(*copier, copier->to_device(around, host));
    finish(*copier, copier->to_host(host + kBytes, around));
  }
  EXPECT_EQ(std::memcmp(host, host + kBytes, kBytes), 0);
  platform_->free_shared(host, 2 * kBytes);
}

TEST_F(GpuMemory, RingsAreExportedAsADmaBufWhereTheDriverSaysThatItCan) {
  const rdma::CudaDriver* driver = rdma::cuda_driver();
  ASSERT_NE(driver, nullptr) << "a GPU without a driver";
  int supported = 0;
  ASSERT_EQ(driver->device_get_attribute(&supported, kDmaBufSupported, options_.gpu), 0);
  std::string reason;
  const auto address = reinterpret_cast<std::uint64_t>(rings_->proxy_rings().rx.data);
  const rdma::DmaBuf exported = rdma::export_dmabuf(address, 2 * kRing, driver, reason);
  const std::string result = exported.descriptor >= 0 ? "exported" : reason;
  RecordProperty("dmabuf_supported", supported);
  RecordProperty("dmabuf_export", result);
  RecordProperty("peermem_loaded", rdma::peermem_is_loaded() ? 1 : 0);
  std::cout << "dma-buf of ring memory: the driver says " << (supported != 0 ? "yes" : "no") << "; " << result << '\n';
  EXPECT_EQ(exported.descriptor >= 0, supported != 0) << reason;
  if (exported.descriptor < 0) return;
  EXPECT_GE(lseek(exported.descriptor, 0, SEEK_END), static_cast<off_t>(exported.offset + 2 * kRing));
  close(exported.descriptor);
}

TEST_F(GpuMemory, WhatItTakesToSeeWhatCardsWroteIsAskedOfTheDriverAndCanBeDone) {
  constexpr const char* kNames[] = {"in order", "flushed", "unsure"};
  const rdma::NicWrites writes = rdma::visibility_of_nic_writes(rdma::cuda_driver(), options_.gpu);
  const char* name = kNames[static_cast<int>(writes)];
  RecordProperty("card_writes", name);
  std::cout << "what NICs write into ring memory: " << name << '\n';
  EXPECT_EQ(platform_->shows_nic_writes(), writes != rdma::NicWrites::unsure);
  if (writes == rdma::NicWrites::unsure) return;
  std::thread([&] { EXPECT_EQ(platform_->flush_nic_writes(), 0); }).join();  // any thread may run the proxy's step
}

}  // namespace
}  // namespace gpusock
