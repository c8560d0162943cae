#pragma once
// Kernels in the style of GPUnet's programs: nothing of gpusock in them but the include and where the port is told.
#include <gpufs.cu.h>
#include <gpunet.cu.h>

#include <poll.h>
#include <sys/resource.h>

namespace gpusock::compat_test {

inline constexpr int kMessageBytes = 6000;
inline constexpr int kThreads = 64;

/// What a kernel leaves for the test.
struct Outcome {
  int port;
  int result[8];
};

#define GPUSOCK_TEST_TEXT(...) #__VA_ARGS__
#define GPUSOCK_TEST_TEXT_OF(...) GPUSOCK_TEST_TEXT(__VA_ARGS__)
static_assert(sizeof GPUSOCK_TEST_TEXT_OF(GPU_ASSERT(false)) == sizeof "", "with RELEASE it is nothing");

__global__ void bind_kernel(const sockaddr_in* addr, Outcome* out) {
  const int sock = single_thread_gbind_in(addr);
  out->result[0] = sock;
  GPU_ASSERT(sock == 0);  // true of GPUnet's first socket; its programs are built with RELEASE
  if (sock >= 0) {
    Endpoint local;
    gpunet_net().getsockname(sock, local);
    out->port = local.port;
  }
}

/// Accepts one connection and sends back what comes until the end.
__global__ void echo_server_kernel(int listener, Outcome* out) {
  __shared__ uchar buffer[kMessageBytes];
  __shared__ int sock;
  BEGIN_SINGLE_THREAD_PART { sock = single_thread_gaccept(listener); }
  END_SINGLE_THREAD_PART;
  int got = 0, sent = 0, total = 0;
  if (sock >= 0) {
    while ((got = grecv(sock, buffer, sizeof buffer)) > 0) {
      for (sent = 0; sent < got;) {
        const int ret = gsend(sock, buffer + sent, got - sent);
        if (ret < 0) break;
        sent += ret;
      }
      if (sent < got) break;
      total += got;
    }
  }
  BEGIN_SINGLE_THREAD_PART {
    out->result[0] = sock;
    out->result[1] = got;
    out->result[2] = total;
    out->result[3] = single_thread_gclose(sock);
  }
  END_SINGLE_THREAD_PART;
}

__device__ inline uchar pattern(unsigned message, unsigned i) {
  return static_cast<uchar>((message * 131 + i * 7) ^ (i >> 8));
}

/// Sends messages, and receives each whole before the next one.
__global__ void echo_client_kernel(const sockaddr_in* addr, int messages, Outcome* out) {
  __shared__ uchar buffer[kMessageBytes];
  __shared__ unsigned wrong;
  BEGIN_SINGLE_THREAD { wrong = 0; }
  END_SINGLE_THREAD
  const int sock = gconnect_in(addr);
  int done = 0, ret = 0;
  for (; sock >= 0 && done < messages; ++done) {
    for (unsigned i = TID; i < sizeof buffer; i += blockDim.x) buffer[i] = pattern(done, i);
    for (int sent = 0; sent < kMessageBytes; sent += ret) {
      if ((ret = gsend(sock, buffer + sent, kMessageBytes - sent)) < 0) break;
    }
    if (ret < 0) break;
    for (unsigned i = TID; i < sizeof buffer; i += blockDim.x) buffer[i] = 0;
    for (int got = 0; got < kMessageBytes; got += ret) {
      if ((ret = grecv(sock, buffer + got, kMessageBytes - got)) < 0) break;
    }
    if (ret < 0) break;
    for (unsigned i = TID; i < sizeof buffer; i += blockDim.x) {
      if (buffer[i] != pattern(done, i)) atomicAdd(&wrong, 1u);
    }
  }
  BEGIN_SINGLE_THREAD_PART {
    out->result[0] = sock;
    out->result[1] = ret;
    out->result[2] = done;
    out->result[3] = static_cast<int>(wrong);
    out->result[4] = single_thread_gclose(sock);
  }
  END_SINGLE_THREAD_PART;
}

/// Opens a connection to the listener of the same kernel; its two ends.
__device__ inline void connect_pair(int listener, const sockaddr_in* addr, int& near_end, int& far_end) {
  near_end = gconnect_in(addr);
  far_end = gaccept(listener);
}

/// One block, both ends: what happens where a socket is not to block.
__global__ void non_blocking_kernel(int listener, const sockaddr_in* addr, Outcome* out) {
  __shared__ uchar buffer[kMessageBytes];
  const int nobody = gaccept_nb(listener);
  int near_end, far_end;
  connect_pair(listener, addr, near_end, far_end);
  const int blocking_before = ggetsock_block(near_end);
  gsetsock_block(near_end, 0);
  gsetsock_block(far_end, 0);
  const int blocking_after = ggetsock_block(near_end);
  const int nothing = grecv(near_end, buffer, sizeof buffer);
  int sent = 0, ret;
  while ((ret = gsend(near_end, buffer, sizeof buffer)) > 0) sent += ret;  // until it would have to wait
  const int full = ret;
  gsetsock_block(far_end, 1);
  int got = 0;
  while (got < sent && (ret = grecv(far_end, buffer, sizeof buffer)) > 0) got += ret;
  const int rest = grecv_nb(far_end, buffer, sizeof buffer);
  BEGIN_SINGLE_THREAD_PART {
    const int results[] = {nobody, blocking_before, blocking_after, nothing, full, sent > 0 ? sent - got : -1, rest};
    for (int i = 0; i < 7; ++i) out->result[i] = results[i];
  }
  END_SINGLE_THREAD_PART;
  gclose(near_end);
  gclose(far_end);
}

/// One block, both ends: the end of a stream, for loops that know it and for loops that know only errors.
__global__ void end_kernel(int listener, const sockaddr_in* addr, Outcome* out) {
  __shared__ uchar buffer[16];
  int near_end, far_end;
  connect_pair(listener, addr, near_end, far_end);
  gsend(near_end, buffer, 5);
  BEGIN_SINGLE_THREAD_PART { out->result[0] = single_thread_gshutdown(near_end, SHUT_WR); }
  END_SINGLE_THREAD_PART;
  int got = 0, ret = 0;
  while (got < 5 && (ret = grecv(far_end, buffer, sizeof buffer)) > 0) got += ret;
  const int first = grecv(far_end, buffer, sizeof buffer);
  const int second = grecv(far_end, buffer, sizeof buffer);
  const int deaf = gsend(near_end, buffer, 1);
  const int back = gsend(far_end, buffer, 3);
  BEGIN_SINGLE_THREAD_PART {
    const int results[] = {got, first, second, deaf, back, single_thread_gshutdown(near_end, 7)};
    for (int i = 0; i < 6; ++i) out->result[1 + i] = results[i];
  }
  END_SINGLE_THREAD_PART;
  gclose(near_end);
  gclose(far_end);
}

/// One block: gpoll over a listener and both ends.
__global__ void poll_kernel(int listener, const sockaddr_in* addr, Outcome* out) {
  __shared__ gpollfd fds[4];
  __shared__ uchar buffer[16];
  BEGIN_SINGLE_THREAD_PART {
    fds[0] = {listener, POLLIN, 0, 0, 0};
    fds[1] = {-1, POLLIN, 0, 0, 0};
  }
  END_SINGLE_THREAD_PART;
  const int idle = gpoll(fds, 2, 1000);
  const int nval = fds[1].revents;
  const int near_end = gconnect_in(addr);
  const int asked = gpoll(fds, 1, 0);
  const int knock = fds[0].revents;
  const int far_end = gaccept(listener);
  gsend(near_end, buffer, 7);
  BEGIN_SINGLE_THREAD_PART {
    fds[0] = {near_end, POLLIN, 0, 0, 0};
    fds[1] = {far_end, POLLIN, 0, 0, 0};
    fds[2] = {near_end, POLLIN, 0, 0, 0};
  }
  END_SINGLE_THREAD_PART;
  const int found = gpoll(fds, 3, 0);
  BEGIN_SINGLE_THREAD_PART {
    const int others = fds[0].revents | fds[2].revents;
    const int results[] = {idle, nval, asked, knock, found, others, fds[1].revents, static_cast<int>(fds[1].rbytes)};
    for (int i = 0; i < 8; ++i) out->result[i] = results[i];
  }
  END_SINGLE_THREAD_PART;
  gclose(near_end);
  gclose(far_end);
}

#if defined(GPUSOCK_DEVICE_CPU)
/// One block: calls gpoll while nothing happens, longer each time, until one of the calls has given up the processor. A
/// slow machine may need all of a short call to get to the wait.
__global__ void idle_poll_kernel(Outcome* out) {
  const auto sleeps = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);  // one OS thread runs the whole block
    return usage.ru_nvcsw;
  };
  const long before = sleeps();
  for (int clocks = 5'000'000; clocks < 2'000'000'000 / 2; clocks *= 2) {
    gpoll(nullptr, 0, clocks);
    const bool slept = sleeps() != before;
    if (TID == 0) out->result[0] = slept;
    if (__syncthreads_or(slept) != 0) return;
  }
}
#endif

/// What the blocks of locks_kernel share.
struct Shared {
  INIT_LOCK init;
  LAST_SEMAPHORE last;
  int lock;
  int initialized;
  int counted;
  int ready;
};

/// Any number of blocks: the first initializes, all count under a lock, the last tells.
__global__ void locks_kernel(Shared* shared, Outcome* out) {
  BEGIN_SINGLE_THREAD_PART {
    if (shared->init.try_wait()) {
      ++shared->initialized;
      shared->init.signal();
    }
    MUTEX_LOCK(shared->lock);
    ++shared->counted;
    MUTEX_UNLOCK(shared->lock);
    if (shared->last.is_last()) {
      out->result[0] = shared->initialized;
      out->result[1] = shared->counted;
      out->result[2] = MUTEX_WAS_LOCKED(shared->lock);
      out->result[3] = MUTEX_WAS_LOCKED(shared->lock);
      __threadfence();
      atomicExch(&shared->ready, 1);
    }
    WAIT_ON_MEM(shared->ready, 1);
    WAIT_ON_MEM_NE(shared->ready, 0);
  }
  END_SINGLE_THREAD_PART;
}

/// One block: copies of every size and skew that the words could get wrong.
__global__ void copies_kernel(Outcome* out) {
  __shared__ __align__(16) uchar from[80], to[80];
  __shared__ int wrong;
  BEGIN_SINGLE_THREAD_PART {
    for (int i = 0; i < 80; ++i) from[i] = static_cast<uchar>(i + 1);
    wrong = 0;
  }
  END_SINGLE_THREAD_PART;
  for (int skew = 0; skew < 16; ++skew) {
    for (int size = 0; size <= 40; ++size) {
      BEGIN_SINGLE_THREAD { bzero_thread(to, sizeof to); }
      END_SINGLE_THREAD
      copy_block(to + skew, from + skew, size);
      BEGIN_SINGLE_THREAD {
        for (int i = 0; i < 80; ++i) wrong += to[i] != (i >= skew && i < skew + size ? from[i] : 0);
      }
      END_SINGLE_THREAD
    }
  }
  BEGIN_SINGLE_THREAD_PART {
    char text[8];
    memcpy_thread(text, "abcdefg", 8);
    out->result[0] = wrong;
    out->result[1] = strcmp_thread(text, "abcdefg", 100);
    out->result[2] = strcmp_thread(text, "abcxefg", 100);
    out->result[3] = strcmp_thread(text, "abcxefg", 3);
    write_thread(reinterpret_cast<uchar*>(text), from, 7);
    out->result[4] = text[3] == 4 && text[4] == 'e';
  }
  END_SINGLE_THREAD_PART;
}

/// One block: its first thread connects and accepts, within a part for one thread.
__global__ void accept_in_part_kernel(int listener, const sockaddr_in* addr, Outcome* out) {
  __shared__ int near_end, far_end;
  BEGIN_SINGLE_THREAD_PART {
    near_end = single_thread_gconnect_in(addr);
    far_end = gaccept(listener);
    out->result[0] = near_end;
    out->result[1] = far_end;
  }
  END_SINGLE_THREAD_PART;
  BEGIN_UNIQUE_THREAD_PART {
    const int another = single_thread_gconnect_in(addr);
    out->result[2] = gaccept(listener);
    single_thread_gclose(another);
    single_thread_gclose(out->result[2]);
    if (another >= 0) break;
    out->result[2] = -1;
  }
  END_UNIQUE_THREAD_PART;
  gclose(near_end);
  gclose(far_end);
}

/// One block: waits for what never comes, until the host ends the context.
__global__ void wait_for_ever_kernel(int listener, Outcome* out) {
  const int sock = gaccept(listener);
  if (TID == 0) out->result[0] = sock;
}

__global__ void open_kernel(const sockaddr_in* addr, Outcome* out) {
  const int bound = gbind_in(addr);
  const int connected = gconnect_in(addr);
  if (TID == 0) {
    out->result[0] = bound;
    out->result[1] = connected;
  }
}

}  // namespace gpusock::compat_test
