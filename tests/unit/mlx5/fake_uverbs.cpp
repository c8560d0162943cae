// The kernel's half of an mlx5 NIC, as far as libmlx5 needs it to make queues and post to them. libibverbs finds the
// device in a folder that stands for /sys (SYSFS_PATH) and opens /dev/zero for it: that is a character device, whose
// pages are memory and which knows no ioctl, so libibverbs uses the commands by write() (<rdma/ib_user_verbs.h>,
// <rdma/mlx5-abi.h>). The functions below come before the C library's.
#include "fake_uverbs.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kDevice = "/dev/infiniband/uverbs0";
std::atomic<int> device_fd{-1};

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
bool is_device(const char* path) { return std::strcmp(path, kDevice) == 0; }

template <class Core, class Driver>
void answer(std::uint64_t to, const Core& core, const Driver& driver) {
  std::memcpy(reinterpret_cast<void*>(to), &core, sizeof core);
  std::memcpy(reinterpret_cast<void*>(to + sizeof core), &driver, sizeof driver);
}

/// True if the command is known. `to`: where its answer goes.
bool run_command(std::uint32_t command, const std::byte* request, std::uint64_t to) {
  switch (command) {
    case IB_USER_VERBS_CMD_GET_CONTEXT: {
      ib_uverbs_get_context_resp core{};
      core.async_fd = static_cast<std::uint32_t>(next<int (*)(const char*, int, ...)>("open")("/dev/null", O_RDONLY));
      core.num_comp_vectors = 1;
      mlx5_ib_alloc_ucontext_resp driver{};
      driver.qp_tab_size = 1 << 18;
      driver.bf_reg_size = 512;
      driver.tot_bfregs = 16;
      driver.cache_line_size = 64;
      driver.max_sq_desc_sz = 1024;
      driver.max_rq_desc_sz = 512;
      driver.max_send_wqebb = driver.max_recv_wr = driver.max_srq_recv_wr = 1 << 15;
      driver.num_ports = 1;
      answer(to, core, driver);
      return true;
    }
    case IB_USER_VERBS_CMD_ALLOC_PD: {
      ib_uverbs_alloc_pd_resp core{};
      core.pd_handle = 1;
      answer(to, core, mlx5_ib_alloc_pd_resp{1});
      return true;
    }
    case IB_USER_VERBS_CMD_CREATE_CQ: {
      ib_uverbs_create_cq asked;
      std::memcpy(&asked, request, sizeof asked);
      ib_uverbs_create_cq_resp core{};
      core.cq_handle = 2;
      core.cqe = asked.cqe;
      answer(to, core, mlx5_ib_create_cq_resp{2, 0});
      return true;
    }
    case IB_USER_VERBS_CMD_CREATE_QP: {
      ib_uverbs_create_qp asked;
      std::memcpy(&asked, request, sizeof asked);
      ib_uverbs_create_qp_resp core{};
      core.qp_handle = 3;
      core.qpn = gpusock::test::kUverbsQueuePair;
      core.max_send_wr = asked.max_send_wr;
      core.max_send_sge = asked.max_send_sge;
      core.max_inline_data = asked.max_inline_data;
      answer(to, core, mlx5_ib_create_qp_resp{});
      return true;
    }
    case IB_USER_VERBS_CMD_DESTROY_CQ:
      std::memset(reinterpret_cast<void*>(to), 0, sizeof(ib_uverbs_destroy_cq_resp));
      return true;
    case IB_USER_VERBS_CMD_DESTROY_QP:
      std::memset(reinterpret_cast<void*>(to), 0, sizeof(ib_uverbs_destroy_qp_resp));
      return true;
    case IB_USER_VERBS_CMD_DEALLOC_PD:
    case IB_USER_VERBS_CMD_MODIFY_QP:
      return true;
    default:
      return false;
  }
}

}  // namespace

namespace gpusock::test {

FakeUverbs::FakeUverbs() {
  folder_.write("class/infiniband_verbs/abi_version", "6\n");
  folder_.write("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  folder_.write("class/infiniband_verbs/uverbs0/dev", "1:5\n");  // /dev/zero
  folder_.write("class/infiniband_verbs/uverbs0/abi_version", "1\n");
  folder_.write("class/infiniband/mlx5_0/node_type", "1: CA\n");
  folder_.write("class/infiniband/mlx5_0/device/modalias", "pci:v000015B3d00001017sv000015B3sd00000001bc02sc00i00\n");
  setenv("SYSFS_PATH", folder_.path().c_str(), 1);
}

}  // namespace gpusock::test

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  if (!is_device(path)) return real(path, flags, mode);
  device_fd = real("/dev/zero", flags);
  return device_fd;
}

int stat(const char* path, struct stat* into) noexcept {
  static const auto real = next<int (*)(const char*, struct stat*)>("stat");
  return real(is_device(path) ? "/dev/zero" : path, into);
}

/// The machine's own devices are not listed: libibverbs then looks into its folder.
int socket(int domain, int type, int protocol) noexcept {
  static const auto real = next<int (*)(int, int, int)>("socket");
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return real(domain, type, protocol);
}

ssize_t write(int fd, const void* from, std::size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (fd != device_fd || fd == -1) return real(fd, from, bytes);
  ib_uverbs_cmd_hdr header;
  std::uint64_t to = 0;  // each command that has an answer begins with its address
  if (bytes < sizeof header + sizeof to) return errno = EINVAL, -1;
  const auto* request = static_cast<const std::byte*>(from) + sizeof header;
  std::memcpy(&header, from, sizeof header);
  std::memcpy(&to, request, sizeof to);
  if (!run_command(header.command, request, to)) return errno = EOPNOTSUPP, -1;
  return static_cast<ssize_t>(bytes);
}

}  // extern "C"
