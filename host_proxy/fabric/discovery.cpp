#include "host_proxy/fabric/discovery.hpp"

#include <pthread.h>
#include <signal.h>

#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace gpusock::proxy::fabric {
namespace {

struct Asked {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Discovery>> by_provider;
  std::mutex asking;  // one question at a time
};
Asked& asked_here() {
  static auto* only = new Asked;  // its threads may outlive main
  return *only;
}

}  // namespace

std::shared_ptr<Discovery> Discovery::of(const std::string& wanted) {
  const std::lock_guard lock(asked_here().mutex);
  std::shared_ptr<Discovery>& known = asked_here().by_provider[wanted];
  if (known != nullptr) return known;
  known = std::make_shared<Discovery>();
  // Signals are the program's business: none is delivered on this thread, or on those that providers start from it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([known, wanted] { ask(known, wanted); }).detach();
  } catch (const std::system_error&) {  // no thread to be had
    ask(known, wanted);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return known;
}

void Discovery::ask(const std::shared_ptr<Discovery>& asked, const std::string& wanted) {
  {
    const std::lock_guard lock(asked_here().asking);
    asked->providers_.emplace(wanted);
  }
  asked->over_.store(true, std::memory_order_release);
  asked->over_.notify_all();
}

}  // namespace gpusock::proxy::fabric
