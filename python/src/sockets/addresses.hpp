#pragma once
/// @file Addresses, as Python's sockets have them.

#include "without_gil.hpp"

#include <gpusock/gpusock.hpp>

#include <pybind11/pybind11.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock_python {

namespace py = pybind11;

/// An integer; an exception of Python's if the object is none, or does not fit.
inline int number(py::handle object) {
  const long value = PyLong_AsLong(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (value != static_cast<int>(value)) throw py::value_error("gpusock: a number is too large");
  return static_cast<int>(value);
}

/// A text in UTF-8, without a null character, at which the system would end it.
inline std::string text_of(py::handle object) {
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &bytes);
  if (text == nullptr) throw py::error_already_set();
  std::string copy(text, static_cast<std::size_t>(bytes));
  if (copy.find('\0') != std::string::npos) throw py::value_error("gpusock: an address has a null character");
  return copy;
}

/// True for a tuple that begins with a text.
inline bool is_pair(py::handle address) {
  if (!py::isinstance<py::tuple>(address) || py::len(address) < 2) return false;
  return py::isinstance<py::str>(address[py::int_(0)]);
}

/// Reads an address: text that Endpoint::parse() takes, or a pair of a host and a port.
inline gpusock::Endpoint endpoint_of(py::handle address) {
  std::string host;
  int port = -1;
  if (py::isinstance<py::str>(address)) {
    host = text_of(address);
  } else if (is_pair(address)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(address);
    host = text_of(pair[0]);
    port = number(pair[1]);
    if (port < 0 || port > 0xffff) throw py::value_error("gpusock: a port is a number from 0 to 65535");
  } else {
    throw py::type_error("gpusock: an address is text, \"HOST:PORT[,link=…]\", or (HOST, PORT)");
  }
  const auto read = [&] {
    const WithoutGil away;  // it may ask for the host's name
    return port < 0 ? gpusock::Endpoint::parse(host) : gpusock::Endpoint::of(host, static_cast<std::uint16_t>(port));
  };
  try {
    return read();
  } catch (const gpusock::Error& error) {
    if (error.code().value() == ECANCELED) throw;
    if (error.code().value() != ENOENT) throw py::value_error(error.what());
    PyErr_SetObject(py::module_::import("socket").attr("gaierror").ptr(), py::make_tuple(-2, error.what()).ptr());
    throw py::error_already_set();
  }
}

/// (host, port), as Python's sockets have it.
inline py::tuple pair_of(const gpusock::Endpoint& endpoint) {
  std::string host = endpoint.host_port();
  host.resize(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return py::make_tuple(host, endpoint.port);
}

}  // namespace gpusock_python
