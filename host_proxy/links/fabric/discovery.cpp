#include "host_proxy/links/fabric/discovery.hpp"

#include "host_proxy/base/signals.hpp"

#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace gpusock::proxy::fabric {
namespace {

struct Asked {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Discovery>> by_provider;
  std::mutex asking;  // libfabric is asked one question at a time
};
Asked& asked_here() {
  static auto* only = new Asked;  // never destroyed: its threads may outlive main
  return *only;
}

}  // namespace

std::shared_ptr<Discovery> Discovery::of(const std::string& wanted) {
  const std::lock_guard lock(asked_here().mutex);
  std::shared_ptr<Discovery>& known = asked_here().by_provider[wanted];
  if (known != nullptr && !known->failed()) return known;
  auto begun = std::make_shared<Discovery>();
  const SignalsBlocked blocked;  // also for threads that providers start from this one
  try {
    std::thread([begun, wanted] { ask_or_fail(begun, wanted); }).detach();
  } catch (const std::exception&) {
    ask(begun, wanted);  // no thread could be started
  }
  return known = begun;  // last: if there was no memory, the next call asks again
}

/// The same as ask(), for a thread of its own: no exception leaves it.
void Discovery::ask_or_fail(const std::shared_ptr<Discovery>& asked, const std::string& wanted) {
  try {
    ask(asked, wanted);
  } catch (const std::exception&) {
    asked->say_over();
  }
}

void Discovery::ask(const std::shared_ptr<Discovery>& asked, const std::string& wanted) {
  {
    const std::lock_guard lock(asked_here().asking);
    asked->providers_.emplace(wanted);
  }
  asked->say_over();
}

void Discovery::say_over() {
  over_.store(true, std::memory_order_release);
  over_.notify_all();
}

}  // namespace gpusock::proxy::fabric
