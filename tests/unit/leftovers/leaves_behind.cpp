// Tests that leave something behind. Each of them must fail.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace {

/// A file in /dev/shm that is removed when the program ends.
class SharedFile {
 public:
  void make(const std::string& name) {
    path_ = "/dev/shm/" + name;
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    close(file);
  }
  ~SharedFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }

 private:
  std::string path_;
};
SharedFile shared_file;

void leave_thread(const char* name) {
  std::thread thread([] { pause(); });
  pthread_setname_np(thread.native_handle(), name);
  thread.detach();
}

void load_libfabric() { ASSERT_NE(dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror(); }

TEST(LeavesBehind, Thread) { leave_thread("planted"); }

TEST(LeavesBehind, Descriptor) { ASSERT_GE(open("/dev/null", O_RDONLY | O_CLOEXEC), 0); }

TEST(LeavesBehind, MappedMemoryFile) {
  const int file = memfd_create("planted", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  ASSERT_NE(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0), MAP_FAILED);
  close(file);
}

TEST(LeavesBehind, PageForObservers) { shared_file.make("gpusock-" + std::to_string(getpid()) + "-planted"); }

TEST(LeavesBehind, FileOfLibfabric) { shared_file.make(std::to_string(getpid()) + ":planted"); }

TEST(LeavesBehind, BlockedSignal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &one, nullptr), 0);
}

TEST(LeavesBehind, ProxyBesideLibfabric) {
  ASSERT_NO_FATAL_FAILURE(load_libfabric());
  leave_thread("gpusock-proxy");
}

TEST(LeavesBehind, MemoryFileBesideLibfabric) {
  ASSERT_NO_FATAL_FAILURE(load_libfabric());
  ASSERT_GE(memfd_create("planted", MFD_CLOEXEC), 0);
}

}  // namespace
