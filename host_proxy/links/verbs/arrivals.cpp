#include "host_proxy/links/verbs/arrivals.hpp"

#include <cerrno>

namespace gpusock::proxy::verbs {

int Arrivals::pass_on(std::uint64_t position) {
  if (word_ == nullptr || position == passed_on_) return 0;
  if (static_cast<std::int64_t>(position - passed_on_) < 0) return -EPROTO;
  if (const int error = rings_->platform().flush_card_writes(); error != 0) return error;  // V4; nothing where V3 holds
  passed_on_ = position;
  ringbuf::SystemAtomics::Ref<std::uint64_t>(*word_).store(position, ringbuf::kRelease);  // P1, pairs with C1
  return 1;
}

}  // namespace gpusock::proxy::verbs
