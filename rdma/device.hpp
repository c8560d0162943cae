#pragma once
/// @file One open port of an RDMA device. Queue pairs and registrations are made on it.

#include "rdma/completion_queues.hpp"
#include "rdma/port.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace gpusock::rdma {

class Device {
 public:
  /// Opens the port with this id. Throws std::system_error that says why it cannot be used.
  Device(const PortId& port_id, const sockaddr& local);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Port& port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  CompletionQueues& completions() { return *completions_; }
  std::uint32_t send_requests_max() const { return send_requests_max_; }

 private:
  struct Closer {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
    void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  };

  std::unique_ptr<ibv_context, Closer> context_;
  Port port_;
  std::unique_ptr<ibv_pd, Closer> domain_;
  std::optional<CompletionQueues> completions_;
  std::uint32_t send_requests_max_ = 0;
};

}  // namespace gpusock::rdma
