#include "host_proxy/memory/device_copies.hpp"

namespace gpusock::proxy {

void DeviceCopies::collect() {
  std::erase_if(left_, [this](const Left& left) { return copier_->query(left.copy) != Copier::State::busy; });
}

}  // namespace gpusock::proxy
