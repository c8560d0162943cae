#include "bootstrap/place.hpp"

#include "program/run.hpp"
#include "gpusock/error.hpp"

#include <cerrno>

namespace param_sync {
namespace {

constexpr const char* kWhere = "where the nodes are to meet: ";

}  // namespace

gpusock::Endpoint parse_place(const std::string& text) try {
  return gpusock::Endpoint::parse(text);
} catch (const gpusock::Error& error) {
  if (error.code().value() != EINVAL) throw;
  throw gpusock::program::Misuse(std::string(kWhere) + error.what());
}

void need_port(const gpusock::Endpoint& place, const std::string& text) {
  if (place.port == 0) throw gpusock::program::Misuse(kWhere + text + " has no port");
}

}  // namespace param_sync
