#include "rdma/device.hpp"

#include "rdma/error.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

namespace gpusock::rdma {
namespace {

/// Maximum number of entries of a completion queue: the requests of 511 queue pairs with 64 each.
constexpr std::uint32_t kQueueEntries = 32767;

ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  int error = list == nullptr ? errno : ENODEV;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (name != ibv_get_device_name(list[i])) continue;
    context = ibv_open_device(list[i]);
    error = errno;
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (context == nullptr) fail(error, "opening RDMA device " + name + " (may this user open /dev/infiniband/uverbs*?)");
  return context;
}

}  // namespace

Device::Device(const PortId& port_id, const sockaddr& local)
    : context_(open_device(port_id.device)),
      port_(describe_port(context_.get(), port_id, local)),
      domain_(ibv_alloc_pd(context_.get())) {
  if (domain_ == nullptr) fail(errno, "making a protection domain on RDMA device " + port_id.device);
  ibv_device_attr facts{};
  if (const int error = ibv_query_device(context_.get(), &facts); error != 0)
    fail(error, "asking RDMA device " + port_id.device);
  send_requests_max_ = static_cast<std::uint32_t>(facts.max_qp_wr);
  completions_.emplace(context_.get(), std::min(kQueueEntries, static_cast<std::uint32_t>(facts.max_cqe)));
}

Device::~Device() = default;

}  // namespace gpusock::rdma
