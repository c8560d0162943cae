#include "host_proxy/memory/named_file.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/signals.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace gpusock::proxy {
namespace {

/// Byte 0 of the locks' addresses: all users share a lock on it; a user that removes the file has it alone.
constexpr off_t kUsers = 0;
/// How often to look again at a file that another process is removing. Each time takes a millisecond.
constexpr int kTries = 2000;

bool set_lock(int descriptor, short kind, off_t first, off_t count) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return uninterrupted([&] { return fcntl(descriptor, F_OFD_SETLK, &lock); }) == 0;
}

/// True if another object has a lock on this byte, of either kind.
bool has_lock(int descriptor, off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return uninterrupted([&] { return fcntl(descriptor, F_OFD_GETLK, &lock); }) == 0 && lock.l_type != F_UNLCK;
}

/// What to do if a file cannot be opened or made in this folder; comes after the failed call's name. May be empty.
std::string remedy(int error, const std::string& folder) {
  switch (error) {
    case EMFILE:
      return "; raise the limit on open files (ulimit -n)";
    case ENFILE:
      return "; raise the machine's limit on open files (sysctl fs.file-max)";
    case EACCES:
    case ENOENT:
    case ENOTDIR:
    case EOPNOTSUPP:
    case EROFS:
      return "; " + folder + " must be a tmpfs that this user may write to (mount -t tmpfs -o mode=1777 tmpfs " +
             folder + ")";
    case EFBIG:
      return "; see ulimit -f";
    case ENOSPC:
    case ENOMEM:
      return "; see df " + folder;
    default:
      return {};
  }
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// Throws Error: a directory, a link or the like has the file's name.
[[noreturn]] void refuse_stranger(const std::string& path) {
  throw Error(EACCES, "opening " + path + ": it is no file of gpusock's; remove it or choose another name");
}

/// Opens a file that others may have made before. Follows no symbolic link, and does not wait for a pipe. Returns an
/// empty descriptor if there is no such file.
Descriptor open_named(const std::string& path, int how) {
  Descriptor file(::open(path.c_str(), how | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file || errno == ENOENT) return file;
  const int error = errno;
  if (error == ELOOP || error == ENXIO || error == EISDIR) refuse_stranger(path);
  throw Error(error, "opening " + path + (error == EACCES ? "" : remedy(error, folder_of(path))));
}

/// The properties of an open file. Throws Error (EACCES) if it is not a file that only this user may use.
struct stat require_private(int descriptor, const std::string& path) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) throw Error(errno, "opening " + path);
  if (!S_ISREG(facts.st_mode)) refuse_stranger(path);
  if (facts.st_uid != geteuid() || (facts.st_mode & 0077) != 0) {
    throw Error(EACCES, "opening " + path + ": another user has made it, or it is open to others");
  }
  return facts;
}

}  // namespace

/// The process's files that are in use, for exit() to remove. A context that is never destroyed would leave its file:
/// exit() destroys only static objects, and a program may call it while contexts are on a stack.
class NamedFile::InUse {
 public:
  static InUse& instance() {
    static InUse* const all = new InUse;  // never destroyed: static contexts may end at any time
    return *all;
  }
  void add(const NamedFile& file) {
    const std::lock_guard lock(mutex_);
    files_.emplace(&file, getpid());
  }
  void remove(const NamedFile& file) noexcept {
    const std::lock_guard lock(mutex_);
    files_.erase(&file);
  }

 private:
  InUse() {
    std::atexit([] { instance().remove_files(); });
  }
  /// A process that comes later takes this process's users for dead, as they nearly are.
  void remove_files() noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& [file, process] : files_) {
      if (process != getpid()) continue;  // the parent's file, which it still uses
      if (!file->remove_if_last()) set_lock(file->descriptor(), F_UNLCK, kUsers, 1);
    }
  }

  std::mutex mutex_;
  std::map<const NamedFile*, pid_t> files_;
};

NamedFile::NamedFile(std::string path, std::size_t bytes, std::span<const std::byte> head) : path_(std::move(path)) {
  for (int i = 0; i < kTries; ++i) {
    const Opened opened = open_existing();
    if (opened == Opened::yes || (opened == Opened::none && make(bytes, head))) {
      InUse::instance().add(*this);
      return;
    }
    if (opened == Opened::again) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Error(EBUSY, "opening " + path_ + ": a process is removing it and does not go on; remove the file");
}

NamedFile::~NamedFile() {
  InUse::instance().remove(*this);
  remove_if_last();
}

/// Returns false if another object uses the file.
bool NamedFile::remove_if_last() const noexcept {
  // The shared lock becomes this user's alone: no other object uses the file, and one that opens it now waits.
  if (!set_lock(descriptor_.get(), F_WRLCK, kUsers, 1)) return false;
  if (is_at_path()) ::unlink(path_.c_str());
  return true;
}

/// Returns `yes` if the file is open and this object is one of its users, `none` if there is no such file (any more),
/// and `again` if another process is removing it.
NamedFile::Opened NamedFile::open_existing() {
  descriptor_ = open_named(path_, O_RDWR);
  if (!descriptor_) return Opened::none;
  const struct stat facts = require_private(descriptor_.get(), path_);
  if (set_lock(descriptor_.get(), F_WRLCK, kUsers, 1)) {  // its users have died
    if (is_at_path()) ::unlink(path_.c_str());
    return Opened::none;
  }
  if (!set_lock(descriptor_.get(), F_RDLCK, kUsers, 1)) return Opened::again;
  if (!is_at_path()) return Opened::none;  // its last user removed it before the lock
  bytes_ = static_cast<std::size_t>(facts.st_size);
  return Opened::yes;
}

/// Makes the whole file before it gets its name, so that no process sees half of it. False if the name is taken by now.
bool NamedFile::make(std::size_t bytes, std::span<const std::byte> head) {
  const FileSizeSignalBlocked blocked;
  const std::string folder = folder_of(path_);
  descriptor_ = Descriptor(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const int file = descriptor_.get();
  const std::string what = "making " + path_ + " of " + std::to_string(bytes) + " bytes";
  if (!descriptor_) {
    const int error = errno;
    throw Error(error, what + remedy(error, folder));
  }
  if (fchmod(file, 0600) != 0) throw Error(errno, what);
  // Allocates all memory now: a page that is missing later would end the process that touches it.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error != 0) throw Error(error, what + remedy(error, folder));
  if (uninterrupted([&] { return pwrite(file, head.data(), head.size(), 0); }) != static_cast<ssize_t>(head.size()) ||
      !set_lock(file, F_RDLCK, kUsers, 1)) {
    throw Error(errno, what);
  }
  const std::string own_name = "/proc/self/fd/" + std::to_string(file);
  bytes_ = bytes;
  if (linkat(AT_FDCWD, own_name.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
  if (errno == EEXIST) return false;
  const int link_error = errno;
  if (access(own_name.c_str(), F_OK) == 0) throw Error(link_error, what);
  throw Error(link_error, what + "; /proc must be mounted (mount -t proc proc /proc)");
}

/// True if the path leads to the file that is open here.
bool NamedFile::is_at_path() const {
  struct stat here {
  }, there{};
  return fstat(descriptor_.get(), &here) == 0 && ::lstat(path_.c_str(), &there) == 0 && here.st_dev == there.st_dev &&
         here.st_ino == there.st_ino;
}

bool NamedFile::try_lock(std::size_t first, std::size_t count) const {
  return set_lock(descriptor_.get(), F_WRLCK, static_cast<off_t>(1 + first), static_cast<off_t>(count));
}

void NamedFile::unlock(std::size_t first, std::size_t count) const {
  set_lock(descriptor_.get(), F_UNLCK, static_cast<off_t>(1 + first), static_cast<off_t>(count));
}

bool NamedFile::is_locked_elsewhere(std::size_t byte) const {
  return has_lock(descriptor_.get(), static_cast<off_t>(1 + byte));
}

std::optional<NamedFileLook> NamedFileLook::at(const std::string& path) {
  Descriptor file = open_named(path, O_RDONLY);
  if (!file) return {};
  const struct stat facts = require_private(file.get(), path);
  return NamedFileLook(std::move(file), static_cast<std::size_t>(facts.st_size));
}

std::vector<std::byte> NamedFileLook::read(std::size_t from, std::size_t bytes) const {
  std::vector<std::byte> all(bytes);
  const auto got = uninterrupted(
      [&] { return pread(descriptor_.get(), all.data(), all.size(), static_cast<off_t>(from)); });
  all.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return all;
}

bool NamedFileLook::has_users() const { return has_lock(descriptor_.get(), kUsers); }

bool NamedFileLook::is_locked(std::size_t byte) const {
  return has_lock(descriptor_.get(), static_cast<off_t>(1 + byte));
}

}  // namespace gpusock::proxy
