#include "host_proxy/memory/staging_pool.hpp"

#include <algorithm>
#include <utility>

namespace gpusock::proxy {

StagingPool::StagingPool(std::shared_ptr<Platform> platform, std::unique_ptr<Copier> copier, Sizes sizes)
    : platform_(std::move(platform)),
      sizes_(sizes),
      memory_(static_cast<std::byte*>(platform_->allocate_shared(sizes.chunks * sizes.chunk_bytes))),
      copier_(std::move(copier)) {
  for (std::size_t i = 0; i < sizes.chunks; ++i) free_.push_back(memory_ + i * sizes.chunk_bytes);
}

StagingPool::~StagingPool() {
  copier_.reset();
  platform_->free_shared(memory_, sizes_.chunks * sizes_.chunk_bytes);
}

std::byte* StagingPool::take(Need need) {
  if (free_.empty()) collect();
  for (std::size_t asked = 0; need == Need::urgent && free_.empty() && asked < holders_.size(); ++asked) {
    next_holder_ = (next_holder_ + 1) % holders_.size();  // each in turn
    holders_[next_holder_]->give_up_one();
  }
  if (free_.empty()) return nullptr;
  std::byte* chunk = free_.back();
  free_.pop_back();
  return chunk;
}

std::size_t StagingPool::held() const {
  const auto ending = std::count_if(ending_.begin(), ending_.end(),
                                    [](const Ending& each) { return each.chunk != nullptr; });
  return sizes_.chunks - free_.size() - static_cast<std::size_t>(ending);
}

void StagingPool::collect() {
  std::erase_if(ending_, [this](const Ending& ending) {
    if (copier_->query(ending.copy) == Copier::State::busy) return false;
    if (ending.chunk != nullptr) give_back(ending.chunk);
    return true;
  });
}

}  // namespace gpusock::proxy
