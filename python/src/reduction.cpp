#include "reduction.hpp"

#include <c10/util/Exception.h>

namespace gpusock_torch {
namespace {

using c10d::ReduceOp;

const char* name_of(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "an unknown operation";
  }
}

bool is_bitwise(const ReduceOp& op) {
  return op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR || op.op_ == ReduceOp::BXOR;
}

/// One step of a reduction, in place.
void reduce_into(at::Tensor& a, const at::Tensor& b, const ReduceOp& op) {
  const bool is_bool = a.scalar_type() == at::kBool;
  switch (op.op_) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
    case ReduceOp::AVG:
      if (is_bool) {
        a.logical_or_(b);
      } else {
        a.add_(b);
      }
      return;
    case ReduceOp::PRODUCT:
      if (is_bool) {
        a.logical_and_(b);
      } else {
        a.mul_(b);
      }
      return;
    case ReduceOp::MIN:
      at::minimum_out(a, a, b);
      return;
    case ReduceOp::MAX:
      at::maximum_out(a, a, b);
      return;
    case ReduceOp::BAND:
      a.bitwise_and_(b);
      return;
    case ReduceOp::BOR:
      a.bitwise_or_(b);
      return;
    case ReduceOp::BXOR:
      a.bitwise_xor_(b);
      return;
    default:
      TORCH_CHECK(false, "gpusock: ", name_of(op), " is no reduction");
  }
}

}  // namespace

void check_reduction(at::ScalarType type, const ReduceOp& op) {
  TORCH_CHECK(op.op_ < ReduceOp::UNUSED, "gpusock: a reduction by an operation that does not exist");
  const bool is_float = at::isFloatingType(type), is_complex = at::isComplexType(type);
  TORCH_CHECK(!is_bitwise(op) || (!is_float && !is_complex), "gpusock: cannot use ReduceOp.", name_of(op),
              " with elements of ", type, ", which have no bits of their own: take a type of integers");
  TORCH_CHECK(op.op_ != ReduceOp::AVG || is_float || is_complex, "gpusock: cannot use ReduceOp.AVG with elements of ",
              type, ": take ReduceOp.SUM, and divide it as you want it rounded");
  TORCH_CHECK((op.op_ != ReduceOp::MIN && op.op_ != ReduceOp::MAX) || !is_complex,
              "gpusock: complex numbers have no ReduceOp.", name_of(op));
  TORCH_CHECK(op.op_ != ReduceOp::PREMUL_SUM || type != at::kBool, "gpusock: cannot use ReduceOp.PREMUL_SUM with bool");
  TORCH_CHECK(at::isIntegralType(type, true) || type == at::kFloat || type == at::kDouble || type == at::kHalf ||
                  type == at::kBFloat16 || is_complex,
              "gpusock: no reduction of elements of ", type);
}

std::optional<GroupReduction> group_reduction(at::ScalarType type, const ReduceOp& op) {
  GroupReduction reduction{};
  switch (type) {
    case at::kFloat:
      reduction.type = param_sync::DataType::float32;
      break;
    case at::kHalf:
      reduction.type = param_sync::DataType::float16;
      break;
    case at::kBFloat16:
      reduction.type = param_sync::DataType::bfloat16;
      break;
    case at::kInt:
      reduction.type = param_sync::DataType::int32;
      break;
    default:
      return std::nullopt;
  }
  switch (op.op_) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      reduction.op = param_sync::ReduceOp::sum;
      break;
    case ReduceOp::AVG:
      reduction.op = param_sync::ReduceOp::average;
      break;
    case ReduceOp::PRODUCT:
      reduction.op = param_sync::ReduceOp::product;
      break;
    case ReduceOp::MIN:
      reduction.op = param_sync::ReduceOp::min;
      break;
    case ReduceOp::MAX:
      reduction.op = param_sync::ReduceOp::max;
      break;
    default:
      return std::nullopt;
  }
  return reduction;
}

void premultiply(at::Tensor& tensor, const ReduceOp& op) {
  if (op.op_ != ReduceOp::PREMUL_SUM) return;
  const auto* const factor = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor != nullptr, "gpusock: a premultiplied sum without a factor");
  if (factor->tensor_factor.defined()) {
    tensor.mul_(factor->tensor_factor.to(tensor.scalar_type()));
  } else if (at::isIntegralType(tensor.scalar_type(), false)) {
    tensor.mul_(static_cast<std::int64_t>(factor->double_factor));
  } else {
    tensor.mul_(factor->double_factor);
  }
}

void reduce_rows(std::vector<at::Tensor>& rows, const ReduceOp& op, int ranks) {
  at::Tensor& first = rows.front();
  for (std::size_t i = 1; i < rows.size(); ++i) reduce_into(first, rows[i], op);
  if (op.op_ == ReduceOp::AVG) first.div_(ranks);
}

}  // namespace gpusock_torch
