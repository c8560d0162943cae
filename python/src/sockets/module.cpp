/// @file The extension module gpusock._sockets: sockets of a context's host threads, for Python.
#include "connecting.hpp"

#include <pybind11/stl.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace gpusock_python {
namespace {

constexpr int kEvents = gpusock::kPollIn | gpusock::kPollOut;

std::shared_ptr<Listener> listen(const std::shared_ptr<Context>& context, py::handle address, int backlog) {
  const gpusock::Endpoint at = endpoint_of(address);
  gpusock::Socket handle = 0;
  {
    const Call call(*context);
    const py::gil_scoped_release release;
    handle = context->net().listen(gpusock::this_thread(), at, backlog);  // the proxy answers at once
  }
  checked(handle, "listening on " + at.to_string());
  return std::make_shared<Listener>(context, handle, at.type);
}

const Opened* opened(py::handle object) {
  if (py::isinstance<Socket>(object)) return object.cast<const Socket*>();
  if (py::isinstance<Listener>(object)) return object.cast<const Listener*>();
  throw py::type_error("gpusock: poll: give sockets and listeners, or pairs of one and its events");
}

py::list poll(Context& context, const py::iterable& sockets, py::handle seconds) {
  std::vector<py::object> objects;
  std::vector<gpusock::PollEntry> entries;
  std::vector<std::size_t> closed;
  for (const py::handle item : sockets) {
    const bool is_pair = py::isinstance<py::tuple>(item) && py::len(item) == 2;
    const py::object object = is_pair ? item[py::int_(0)] : py::reinterpret_borrow<py::object>(item);
    const int events = is_pair ? number(item[py::int_(1)]) : int{gpusock::kPollIn};
    if ((events & ~kEvents) != 0) throw py::value_error("gpusock: poll: events are select.POLLIN and select.POLLOUT");
    const Opened* const socket = opened(object);
    if (!socket->is_of(context)) throw py::value_error("gpusock: poll: a socket of another context");
    if (socket->closed()) closed.push_back(entries.size());
    entries.push_back({socket->closed() ? -1 : socket->handle(), static_cast<std::int16_t>(events), 0});
    objects.push_back(object);
  }
  const Patience patience(closed.empty() ? Timeout(seconds) : Timeout::none());
  const auto found = patience.wait(context, [&](std::uint64_t ns) -> std::int64_t {
    const int count = context.net().poll(gpusock::this_thread(), entries.data(), static_cast<int>(entries.size()),
                                         within(ns));
    return count == 0 && ns != 0 ? -ETIMEDOUT : count;
  });
  if (found != -ETIMEDOUT) checked(found, "polling");
  for (const std::size_t index : closed) entries[index].revents = gpusock::kPollNval;
  py::list result;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents != 0) result.append(py::make_tuple(objects[i], int{entries[i].revents}));
  }
  return result;
}

std::shared_ptr<Context> make_context(const std::optional<std::string>& secret, std::uint32_t sockets_max,
                                      std::uint64_t ring_bytes, py::handle timeout, double handshake_timeout,
                                      bool p2p) {
  const Timeout wait(timeout);
  if (!wait.waits()) throw py::value_error("gpusock: Context: a timeout of 0: set it for sockets, by settimeout(0)");
  if (!(handshake_timeout > 0) || handshake_timeout > kLongestS) {
    throw py::value_error("gpusock: Context: handshake_timeout is a positive number of seconds");
  }
  try {
    gpusock::Options options = gpusock::Options::from_env();
    if (secret) options.secret = *secret;
    options.sockets_max = sockets_max;
    options.ring_bytes = ring_bytes;
    options.timeout_ns = wait.ns();
    options.handshake_timeout_ns = static_cast<std::uint64_t>(std::ceil(handshake_timeout * 1e9));
    options.p2p = p2p;
    return Context::make(options, wait);
  } catch (const gpusock::Error& error) {
    if (error.code().value() != EINVAL) throw;
    throw py::value_error(error.what());
  }
}

/// What Python's sockets have, and listeners here, too.
template <class T>
void define_common(py::class_<T, std::shared_ptr<T>>& type) {
  type.def("close", &T::close)
      .def("settimeout", &T::set_timeout, py::arg("value"))
      .def("gettimeout", &T::timeout)
      .def("setblocking", &T::set_blocking, py::arg("flag"))
      .def("getblocking", &T::blocking)
      .def("getsockname", &T::name)
      .def_property_readonly("closed", &T::closed)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](T& self, const py::args&) { self.close(); })
      .def("__repr__", &T::text);
}

}  // namespace
}  // namespace gpusock_python

PYBIND11_MODULE(_sockets, module) {
  namespace py = pybind11;
  using namespace gpusock_python;
  module.doc() = "Sockets whose peers are kernels, in C++.";
  py::register_local_exception_translator([](std::exception_ptr exception) {
    try {
      std::rethrow_exception(std::move(exception));
    } catch (const std::system_error& error) {  // OSError picks the class by the number: TimeoutError, …
      PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.what()).ptr());
    }
  });

  // All classes before their functions, whose signatures name them.
  py::class_<Context, std::shared_ptr<Context>> context(module, "Context");
  py::class_<Socket, std::shared_ptr<Socket>> socket(module, "Socket");
  py::class_<Listener, std::shared_ptr<Listener>> listener(module, "Listener");

  context
      .def(py::init(&make_context), py::kw_only(), py::arg("secret") = py::none(), py::arg("sockets_max") = 1024,
           py::arg("ring_bytes") = 0, py::arg("timeout") = 60.0, py::arg("handshake_timeout") = 5.0,
           py::arg("p2p") = true)
      .def("connect", &gpusock_python::connect, py::arg("address"), py::arg("timeout") = py::ellipsis())
      .def("listen", &gpusock_python::listen, py::arg("address"), py::arg("backlog") = 16)
      .def("poll", &gpusock_python::poll, py::arg("sockets"), py::arg("timeout") = py::none())
      .def("close", &Context::close)
      .def_property_readonly("closed", [](const Context& context) { return !context.usable(); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Context& self, const py::args&) { self.close(); });

  define_common(socket);
  socket.def("send", &Socket::send, py::arg("data"), py::arg("flags") = 0)
      .def("sendall", &Socket::send_all, py::arg("data"), py::arg("flags") = 0)
      .def("recv", &Socket::receive, py::arg("bufsize"), py::arg("flags") = 0)
      .def("recv_into", &Socket::receive_into, py::arg("buffer"), py::arg("nbytes") = 0, py::arg("flags") = 0)
      .def("shutdown", &Socket::shutdown, py::arg("how"))
      .def("getpeername", &Socket::peer_name)
      .def_property_readonly("link", &Socket::link);

  define_common(listener);
  listener.def("accept", &Listener::accept).def_property_readonly("address", &Listener::address);

  py::module_::import("atexit").attr("register")(py::cpp_function(&Context::end_all));
}
