#include "param_sync/bootstrap/rank_address.hpp"

#include "gpusock/error.hpp"

#include <cerrno>

namespace param_sync::bootstrap {
namespace {

constexpr const char* kWhere = "where the ranks are to meet: ";

}  // namespace

gpusock::Endpoint parse_address(const std::string& text) try {
  return gpusock::Endpoint::parse(text);
} catch (const gpusock::Error& error) {
  if (error.code().value() != EINVAL) throw;
  throw gpusock::Error::with_cause(EINVAL, std::string(kWhere) + error.what());
}

void need_port(const gpusock::Endpoint& address, const std::string& text) {
  if (address.port == 0) throw gpusock::Error::with_cause(EINVAL, kWhere + text + " has no port");
}

}  // namespace param_sync::bootstrap
