#include "param_sync/bootstrap/pmix_bootstrap.hpp"

#include "param_sync/bootstrap/local_address.hpp"

#include <fmt/format.h>

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#if GPUSOCK_HAS_PMIX
#include <pmix.h>
#endif

namespace param_sync::bootstrap {

#if GPUSOCK_HAS_PMIX
namespace {

constexpr const char* kKey = "gpusock.listens";

/// libpmix, loaded at run time, so that programs can run and be bundled without it.
class Library {
 public:
  Library() : handle_(dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL)) {}

  bool loaded() const { return handle_ != nullptr; }

  /// The second argument only gives the function's type. It is not called.
  template <class Function>
  Function* find(const char* name, Function*) const {
    auto* function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) throw gpusock::Error(ELIBBAD, fmt::format("libpmix.so.2 has no {}", name));
    return function;
  }

 private:
  void* handle_;  // never unloaded: its threads may still run
};

const Library& library() {
  static const Library instance;
  return instance;
}

#define GPUSOCK_PMIX(name) library().find(#name, static_cast<decltype(&(name))>(nullptr))

void check(pmix_status_t status, const std::string& what) {
  if (status == PMIX_SUCCESS) return;
  throw gpusock::Error(EIO, fmt::format("PMIx: {}: {}; set GPUSOCK_RANK and GPUSOCK_SIZE to do without it", what,
                                        GPUSOCK_PMIX(PMIx_Error_string)(status)));
}

/// A value that PMIx has allocated by malloc. The destructor frees it.
struct Value {
  pmix_value_t* value = nullptr;
  ~Value() {
    if (value == nullptr) return;
    if (value->type == PMIX_STRING) free(value->data.string);
    free(value);
  }
};

/// This process as a client of PMIx, from PMIx_Init to PMIx_Finalize.
class Session {
 public:
  Session() {
    check(GPUSOCK_PMIX(PMIx_Init)(&self_, nullptr, 0),
          "this process was started with PMIX_RANK, but there is no way to its launcher");
  }
  ~Session() { GPUSOCK_PMIX(PMIx_Finalize)(nullptr, 0); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }

  /// Returns a number that PMIx keeps for the job.
  int job_number(const char* key) const {
    Value got;
    const pmix_proc_t job = of_rank(PMIX_RANK_WILDCARD);
    check(GPUSOCK_PMIX(PMIx_Get)(&job, key, nullptr, 0, &got.value), fmt::format("the job has no {}", key));
    return static_cast<int>(got.value->data.uint32);
  }

  void publish(std::string text) const {
    pmix_value_t value;
    std::memset(&value, 0, sizeof value);
    value.type = PMIX_STRING;
    value.data.string = text.data();
    check(GPUSOCK_PMIX(PMIx_Put)(PMIX_GLOBAL, kKey, &value), "publishing this rank's address failed");
    check(GPUSOCK_PMIX(PMIx_Commit)(), "publishing this rank's address failed");
  }

  std::string published_by(int rank) const {
    Value got;
    const pmix_proc_t process = of_rank(static_cast<pmix_rank_t>(rank));
    check(GPUSOCK_PMIX(PMIx_Get)(&process, kKey, nullptr, 0, &got.value),
          fmt::format("rank {} has published no address", rank));
    return got.value->type == PMIX_STRING && got.value->data.string != nullptr ? got.value->data.string : "";
  }

  /// Calls `done` with `argument` once all processes have called meet() and their published texts are there.
  void meet(pmix_op_cbfunc_t done, void* argument) {
    std::memset(&collect_, 0, sizeof collect_);
    std::strncpy(collect_.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect_.value.type = PMIX_BOOL;
    collect_.value.data.flag = true;
    all_ = of_rank(PMIX_RANK_WILDCARD);
    check(GPUSOCK_PMIX(PMIx_Fence_nb)(&all_, 1, &collect_, 1, done, argument), "meeting the other ranks failed");
  }

 private:
  pmix_proc_t of_rank(pmix_rank_t rank) const {
    pmix_proc_t process;
    std::memcpy(process.nspace, self_.nspace, sizeof process.nspace);
    process.rank = rank;
    return process;
  }

  pmix_proc_t self_;
  pmix_proc_t all_;  // PMIx uses all_ and collect_ until the meeting ends
  pmix_info_t collect_;
};

/// The state of a wait for PMIx's callback. The waiter and the callback own it, since the callback may come after the
/// wait has ended.
struct FenceCompletion {
  std::mutex mutex;
  std::condition_variable changed;
  bool arrived = false;
  bool interrupted = false;
  pmix_status_t status = PMIX_SUCCESS;

  static void complete(pmix_status_t status, void* argument) {
    const std::unique_ptr<std::shared_ptr<FenceCompletion>> held(
        static_cast<std::shared_ptr<FenceCompletion>*>(argument));
    std::lock_guard lock((*held)->mutex);
    (*held)->status = status;
    (*held)->arrived = true;
    (*held)->changed.notify_all();
  }
};

class PmixBootstrap : public Bootstrap {
 public:
  explicit PmixBootstrap(std::uint64_t timeout_ns) : timeout_(timeout_ns) {
    rank_ = session_.rank();
    size_ = session_.job_number(PMIX_JOB_SIZE);
    if (size_ > kRanksMax)
      throw gpusock::Error(EINVAL, fmt::format("{} processes: there are 1 to {} ranks", size_, kRanksMax));
    one_host_ = session_.job_number(PMIX_LOCAL_SIZE) == size_;
  }

  gpusock::Endpoint where_to_listen() override {
    gpusock::Endpoint at = gpusock::Endpoint::parse("127.0.0.1:0");
    address_ = at;
    if (one_host_) return at;
    if (gpusock::Options::from_env().secret.empty()) {
      throw gpusock::Error(EACCES,
                           "ranks on several hosts need a secret: set GPUSOCK_SECRET to the same text for all of them "
                           "(mpirun -x GPUSOCK_SECRET)");
    }
    address_ = local_address();
    at = {};
    at.family = address_.family;
    return at;
  }

  std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint& mine) override {
    address_.port = mine.port;
    session_.publish(address_.host_port());
    auto held = std::make_unique<std::shared_ptr<FenceCompletion>>(arrival_);
    session_.meet(&FenceCompletion::complete, held.get());
    static_cast<void>(held.release());  // complete() owns it now
    await();
    std::vector<gpusock::Endpoint> all;
    all.reserve(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) all.push_back(gpusock::Endpoint::parse(session_.published_by(rank)));
    return all;
  }

  void interrupt() noexcept override {
    std::lock_guard lock(arrival_->mutex);
    arrival_->interrupted = true;
    arrival_->changed.notify_all();
  }

 private:
  void await() {
    std::unique_lock lock(arrival_->mutex);
    const bool woken = arrival_->changed.wait_for(lock, timeout_,
                                                  [&] { return arrival_->arrived || arrival_->interrupted; });
    if (arrival_->interrupted) throw gpusock::Error(ECANCELED, "meeting the other ranks of the PMIx job");
    if (!woken) throw gpusock::Error(ETIMEDOUT, "not all ranks of the PMIx job came in time");
    check(arrival_->status, "meeting the other ranks failed");
  }

  std::chrono::nanoseconds timeout_;
  std::shared_ptr<FenceCompletion> arrival_ = std::make_shared<FenceCompletion>();
  Session session_;
  bool one_host_ = false;
  gpusock::Endpoint address_;
};

}  // namespace

bool pmix_is_there() { return library().loaded(); }

std::unique_ptr<Bootstrap> make_pmix_bootstrap(std::uint64_t timeout_ns) {
  return std::make_unique<PmixBootstrap>(timeout_ns);
}

#else

bool pmix_is_there() { return false; }

std::unique_ptr<Bootstrap> make_pmix_bootstrap(std::uint64_t) {
  throw gpusock::Error(ENOTSUP, "the library was built without PMIx (GPUSOCK_WITH_PMIX)");
}

#endif

}  // namespace param_sync::bootstrap
