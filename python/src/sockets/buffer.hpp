#pragma once
/// @file The memory of a Python object: the buffer protocol, or DLPack.

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock_python {

namespace py = pybind11;

/// DLPack's structures, as its specification has them (https://dmlc.github.io/dlpack/latest/c_api.html).
namespace dlpack {
struct Device {
  std::int32_t type, id;
};
constexpr std::int32_t kCpu = 1, kCudaHost = 3;
struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; nullptr: the elements are compact, the last dimension first
  std::uint64_t offset;   ///< of the first element, bytes
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr std::uint64_t kReadOnly = 1;
}  // namespace dlpack

/// The contiguous memory of an object, which stays where it is as long as this object lives. Make and destroy it with
/// the GIL. The constructor throws an exception of Python's: TypeError (neither protocol, or memory that a CPU does not
/// reach), BufferError or ValueError (not contiguous, read only where the memory is to be written).
class Buffer {
 public:
  enum class Use { read, write };

  Buffer(py::handle object, Use use) {
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
      if (PyObject_GetBuffer(object.ptr(), &view_, use == Use::write ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
        throw py::error_already_set();
      }
      data_ = static_cast<char*>(view_.buf);
      bytes_ = static_cast<std::size_t>(view_.len);
    } else if (py::hasattr(object, "__dlpack__") && py::hasattr(object, "__dlpack_device__")) {
      take_dlpack(object, use);
    } else {
      throw py::type_error("gpusock: a buffer is needed (bytes, a NumPy array, a tensor, …), not " + name_of(object));
    }
  }
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static std::string name_of(py::handle object) { return py::str(py::type::of(object).attr("__name__")); }

  void take_dlpack(py::handle object, Use use) {
    const py::tuple device = object.attr("__dlpack_device__")();
    const auto type = py::int_(device[0]).cast<std::int32_t>();  // an enumeration in some packages
    if (type != dlpack::kCpu && type != dlpack::kCudaHost) {
      throw py::type_error("gpusock: this " + name_of(object) + " is in the memory of a device (DLPack's type " +
                           std::to_string(type) + "): copy it to the CPU, as tensor.cpu() does");
    }
    capsule_ = exported(object);
    bool read_only = false;
    const dlpack::Tensor* tensor = nullptr;
    if (PyCapsule_IsValid(capsule_.ptr(), "dltensor_versioned") != 0) {
      const auto* managed = static_cast<dlpack::ManagedVersioned*>(
          PyCapsule_GetPointer(capsule_.ptr(), "dltensor_versioned"));
      if (managed->major != 1) throw py::buffer_error("gpusock: an unknown version of DLPack");
      read_only = (managed->flags & dlpack::kReadOnly) != 0;
      tensor = &managed->tensor;
    } else {
      auto* const managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
      if (managed == nullptr) throw py::error_already_set();
      tensor = &managed->tensor;
    }
    if (read_only && use == Use::write) throw py::buffer_error("gpusock: this " + name_of(object) + " is read only");
    std::int64_t elements = 1;
    bool contiguous = true;
    for (int i = tensor->dimensions - 1; i >= 0; --i) {
      if (tensor->strides != nullptr && tensor->shape[i] != 1) contiguous &= tensor->strides[i] == elements;
      elements *= tensor->shape[i];
    }
    if (!contiguous && elements != 0) {
      throw py::buffer_error("gpusock: this " + name_of(object) + " is not contiguous: make a copy that is");
    }
    data_ = static_cast<char*>(tensor->data) + (elements == 0 ? 0 : tensor->offset);
    bytes_ = (static_cast<std::size_t>(elements) * tensor->bits * tensor->lanes + 7) / 8;
  }

  /// The capsule of DLPack. It is never renamed to "used", so its destructor frees the export.
  static py::object exported(py::handle object) {
    try {
      return object.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
    }
    return object.attr("__dlpack__")();  // an object of the time before versions
  }

  Py_buffer view_{};
  py::object capsule_;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace gpusock_python
