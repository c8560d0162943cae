#pragma once
/// @file A file in shared memory that processes of one user open by its name, and locks on its bytes that end with the
/// process that holds them.

#include "host_proxy/base/descriptor.hpp"

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// An object that opens the file uses it until its destructor, or until the process ends. The last user removes it,
/// also at exit() without the destructor. If all users have died, the next one removes the file and makes a new one.
///
/// Locks belong to this object (open file description locks, fcntl(2)): the operating system ends them with the
/// process, however it dies. Two locks of one object never exclude each other.
class NamedFile {
 public:
  /// Opens the file, whatever its size, if another object uses it. Otherwise makes it, `bytes` long and with all its
  /// memory allocated, with `head` at its start. Throws Error: (EACCES) it belongs to another user or is open to
  /// others, (EBUSY) another process holds the file's lock and does not go on, (ENOSPC, ENOMEM, EFBIG) there is no
  /// room, (EMFILE).
  NamedFile(std::string path, std::size_t bytes, std::span<const std::byte> head);
  ~NamedFile();
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;

  int descriptor() const { return descriptor_.get(); }
  /// In a process that was just forked: leaves the locks to the parent. No other function may be called after it.
  void leave_to_parent() noexcept { descriptor_.reset(-1); }
  std::size_t bytes() const { return bytes_; }

  /// Locks `count` bytes from `first` on, all or none: false if another object has a lock on any of them. Locks have an
  /// address space of their own, which has nothing to do with the file's contents. Does not wait.
  bool try_lock(std::size_t first, std::size_t count) const;
  void unlock(std::size_t first, std::size_t count) const;
  /// True if another object has a lock on this byte.
  bool is_locked_elsewhere(std::size_t byte) const;

 private:
  enum class Opened { yes, none, again };
  Opened open_existing();
  bool make(std::size_t bytes, std::span<const std::byte> head);
  bool is_at_path() const;
  bool remove_if_last() const noexcept;

  /// The files that the process uses, for its exit().
  class InUse;

  std::string path_;
  Descriptor descriptor_;
  std::size_t bytes_ = 0;
};

/// Looks at such a file without being one of its users. Takes no lock.
class NamedFileLook {
 public:
  /// Returns nothing if there is no such file. Throws Error (EACCES) if it is not a file of this user alone.
  static std::optional<NamedFileLook> at(const std::string& path);

  std::size_t bytes() const { return bytes_; }
  /// Reads a part of the file; less if the file ends before.
  std::vector<std::byte> read(std::size_t from, std::size_t bytes) const;
  bool has_users() const;
  /// True if a user has a lock on this byte (NamedFile::try_lock()).
  bool is_locked(std::size_t byte) const;

 private:
  NamedFileLook(Descriptor file, std::size_t bytes) : descriptor_(std::move(file)), bytes_(bytes) {}

  Descriptor descriptor_;
  std::size_t bytes_;
};

}  // namespace gpusock::proxy
