#pragma once
// The text of an expected exception.
#include <exception>
#include <string>

namespace gpusock::test {

/// What `call` throws, as text. "" if it throws nothing.
template <class Error = std::exception, class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace gpusock::test
