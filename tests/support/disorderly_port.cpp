#include "tests/support/disorderly_port.hpp"

#include "host_proxy/links/fabric/maker.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace gpusock::testing_support {
namespace {

using proxy::fabric::Completion;
using proxy::fabric::FabricWrite;

constexpr std::size_t kWritesMax = 32;

/// Takes one of the elements out, from anywhere.
template <class Element>
Element take_any(std::vector<Element>& from, std::uint64_t index) {
  Element taken = std::move(from[index]);
  from[index] = std::move(from.back());
  from.pop_back();
  return taken;
}

/// In a program that is linked with this, GPUSOCK_TEST_DISORDER=SEED makes every endpoint disorderly.
const bool from_environment = [] {
  const char* text = std::getenv("GPUSOCK_TEST_DISORDER");
  if (text == nullptr) return false;
  static std::atomic<std::uint64_t> seed{std::strtoull(text, nullptr, 0)};
  std::printf("fabric completions are disorderly: GPUSOCK_TEST_DISORDER=%s\n", text);
  proxy::fabric::decorate_ports(
      [](auto port) { return std::make_unique<DisorderlyPort>(std::move(port), seed.fetch_add(1)); });
  return true;
}();

}  // namespace

void DisorderlyPort::close() {
  writes_.clear();
  port_->close();
}

int DisorderlyPort::write(const FabricWrite& write) {
  if (writes_.size() == kWritesMax || choose(8) == 0) return -EAGAIN;
  writes_.push_back(write);
  return 0;
}

void DisorderlyPort::start_some(std::vector<Completion>& into) {
  for (std::uint64_t turns = choose(4); turns > 0 && !writes_.empty(); --turns) {
    const FabricWrite write = take_any(writes_, choose(writes_.size()));
    const int result = port_->write(write);
    if (result == -EAGAIN) {
      writes_.push_back(write);
      return;
    }
    if (result != 0) into.push_back({Completion::Kind::failed, write.token, 0, -result, "refused later"});
  }
}

bool DisorderlyPort::read(std::vector<Completion>& into) {
  const std::size_t before = into.size();
  start_some(into);
  port_->read(held_);
  for (std::uint64_t turns = choose(4); turns > 0 && !held_.empty(); --turns) {
    Completion completion = take_any(held_, choose(held_.size()));
    completion.data = (completion.data & 0xffffffffu) | random_() << 32;
    into.push_back(std::move(completion));
  }
  return into.size() != before;
}

}  // namespace gpusock::testing_support
