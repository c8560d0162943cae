#include "cpu_device/device_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cpu_device {
namespace {

/// The protection key of all device memory. -1: there is none.
constinit std::atomic<int> g_key{-1};

/// All pieces of device memory. Never destroyed: static objects may free device memory at any time.
struct Pieces {
  std::mutex mutex;
  std::map<void*, std::size_t> bytes;
};
Pieces& pieces() {
  static auto* const all = new Pieces;
  return *all;
}

int key() noexcept { return g_key.load(std::memory_order_relaxed); }  // relaxed: set before there is memory of it

std::size_t whole_pages(std::size_t bytes) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes + page - 1) / page * page;
  if (rounded < bytes) throw std::bad_alloc();
  return rounded == 0 ? page : rounded;
}

/// Maps a file, or new memory if `file` is -1.
void* map_guarded(int file, std::size_t bytes, void* at = nullptr) {
  const std::size_t mapped = whole_pages(bytes);
  const int kind = (file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (at != nullptr ? MAP_FIXED : 0);
  void* const memory = mmap(at, mapped, PROT_READ | PROT_WRITE, kind, file, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  try {
    if (key() >= 0 && pkey_mprotect(memory, mapped, PROT_READ | PROT_WRITE, key()) != 0) throw std::bad_alloc();
    const std::lock_guard lock(pieces().mutex);
    pieces().bytes.emplace(memory, mapped);
  } catch (...) {
    munmap(memory, mapped);
    throw;
  }
  return memory;
}

/// Start of a memory file's name, before the GPU's number. Each process that has the descriptor can read the name.
constexpr std::string_view kFileName = "device memory of GPU ";

}  // namespace

void* allocate_device_memory(std::size_t bytes) { return map_guarded(-1, bytes); }

int make_device_memory_file(std::size_t bytes, int gpu) {
  const std::string name = std::string(kFileName) + std::to_string(gpu);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "memfd_create for device memory");
  if (fchmod(file, 0600) == 0 && ftruncate(file, static_cast<off_t>(whole_pages(bytes))) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return file;
  }
  const int error = errno;
  close(file);
  throw std::system_error(error, std::generic_category(), "sizing a file of device memory");
}

std::optional<int> gpu_of_device_memory(int file, std::size_t bytes) {
  struct stat facts {};
  const int seals = fcntl(file, F_GET_SEALS);
  if (fstat(file, &facts) != 0 || facts.st_uid != geteuid() || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      facts.st_size != static_cast<off_t>(whole_pages(bytes))) {
    return {};
  }
  char target[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  std::string_view name(target, length < 0 ? 0 : static_cast<std::size_t>(length));
  const std::string prefix = "/memfd:" + std::string(kFileName);
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const char digit = name.empty() ? ' ' : name.front();  // one digit: there are fewer than ten GPUs
  return digit >= '0' && digit <= '9' ? std::optional(digit - '0') : std::nullopt;
}

void* map_device_memory(int file, std::size_t bytes, void* at) { return map_guarded(file, bytes, at); }

void free_device_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(pieces().mutex);
    const auto piece = pieces().bytes.find(memory);
    if (piece == pieces().bytes.end()) return;
    bytes = piece->second;
    pieces().bytes.erase(piece);
  }
  munmap(memory, bytes);
}

void copy_device_memory(void* to, const void* from, std::size_t bytes) noexcept {
  if (key() < 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const int rights = pkey_get(key());
  pkey_set(key(), 0);
  std::memcpy(to, from, bytes);
  pkey_set(key(), static_cast<unsigned>(rights));
}

bool device_memory_is_guarded() noexcept { return key() >= 0; }

namespace detail {

void guard_device_memory() noexcept {
  if (key() < 0) g_key.store(pkey_alloc(0, PKEY_DISABLE_ACCESS), std::memory_order_relaxed);
}

void open_device_memory() noexcept {
  if (key() >= 0) pkey_set(key(), 0);
}

}  // namespace detail
}  // namespace cpu_device
