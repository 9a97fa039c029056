// SPDX-License-Identifier: Apache-2.0
// An operation whose calls compute many tiles at once, from operands that lie wherever they lie.
#include <algorithm>
#include <cstring>
#include <utility>

#include "onedispatch/kernel_cpp.h"
#include "onedispatch/kernel_tables.h"
#include "operation_cache.h"

namespace onedispatch {

namespace {

// Operands of kernels that join panels: those that may lie in them, and those that the last step alone reads.
constexpr const char* kPanels[] = {"w", "b", "r", "bias", "a_zero", "b_zero", "w_zero", "scale", "out_zero", "table"};
constexpr const char* kFinishes[] = {"bias", "scale", "out_zero", "table"};

template <size_t count>
bool is_one_of(const char* given, const char* const (&names)[count]) {
  return std::any_of(names, names + count, [given](const char* name) { return std::strcmp(given, name) == 0; });
}

class JoinedOperation final : public CallableOperation {
 public:
  JoinedOperation(const ReadOperation& of, const OperationShape& shape) : words_(of.words), setup_(of.operation.setup) {
    setup_.words = words_.data();
    double larger = 1;  // tiles; scratch grows with them at most
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
      larger *= static_cast<double>(shape.dims[d].tile) / setup_.dims[d].tile;
      setup_.dims[d] = shape.dims[d];
    }
    setup_.scratch_bytes = static_cast<uint32_t>(static_cast<double>(setup_.scratch_bytes) * larger + 63) / 64 * 64;
    setup_.k_tile = shape.k_tile;
    setup_.inner_steps = shape.steps;
    for (const OperandShape& operand : shape.operands) {
      od_operand& own = setup_.operands[operand.index];
      own.bytes = UINT32_MAX;
      std::copy_n(operand.axes.begin(), operand.n_axes, own.axes);
      own.n_axes = operand.n_axes;
    }
    plan_ = std::make_unique<const Plan>(of.plan->kernel(), setup_);
  }

  void run(const KernelCall& call, const CallMemory& memory) const override {
    od_call given = place_call(setup_, call);
    std::copy(memory.operands.begin(), memory.operands.end(), given.operand);
    given.scratch = memory.scratch;
    try {
      plan_->check(given);
      plan_->run(given);
    } catch (const KernelError& error) {
      reject(error.what, error.status, error.cause);
    }
  }
  std::unique_ptr<const OperationShape> shape() const override { return nullptr; }
  std::shared_ptr<const CallableOperation> joined(const OperationShape&) const override { return nullptr; }
  uint32_t scratch_bytes() const override { return setup_.scratch_bytes; }
  const od_setup& setup() const { return setup_; }

 private:
  std::array<uint32_t, params::kMaxWords> words_;
  od_setup setup_;
  std::unique_ptr<const Plan> plan_;
};

// Sums that wait in the type of the results are rounded at every step.
bool rounds_steps(const od_setup& setup) {
  for (uint32_t i = 0; i < setup.spec->n_scalars; ++i)
    if (std::strcmp(setup.spec->scalars[i].name, "narrow_sums") == 0 && setup.scalars[i] != 0) return true;
  return false;
}

// The index dimension whose neighbours are neighbours in the results' rows.
uint32_t column_dim(const od_setup& setup) { return setup.roles[setup.spec->n_dims - 1]; }

// Whether inputs of neighbouring results lie together: then a reduction adds up each of its columns one member after the
// other, else in whichever order is fast.
bool adds_columns(const od_setup& setup) {
  for (uint32_t i = 0; i < setup.spec->n_operands; ++i) {
    const od_operand_spec& spec = setup.spec->operands[i];
    for (uint32_t axis = 0; axis < spec.n_axes && spec.role != OD_ROLE_OUTPUT; ++axis)
      if (spec.axes[axis].dim == setup.spec->n_dims - 1 && kernels::Axis(setup.operands[i].axes[axis]).lies_together()) return true;
  }
  return false;
}

uint32_t along_of(const od_setup& setup, uint32_t dim) {
  if (dim == OD_ALONG_REDUCTION) return OperandShape::kReduction;
  if (dim == OD_ALONG_NOTHING) return OperandShape::kNothing;
  return setup.spec->n_dims == 0 ? dim : setup.roles[dim];
}

}  // namespace

std::unique_ptr<const OperationShape> ReadOperation::shape() const {
  const od_setup& setup = operation.setup;
  const od_kernel_spec& spec = *setup.spec;
  if (spec.joins == OD_JOIN_NO || plan->origin() != Origin::kOwn) return nullptr;
  auto shape = std::make_unique<OperationShape>();
  std::copy(std::begin(setup.dims), std::end(setup.dims), shape->dims.begin());
  shape->tiled.fill(spec.n_dims == 0);
  shape->least.fill(1);
  for (uint32_t i = 0; i < spec.n_dims; ++i) shape->tiled[setup.roles[i]] = true;
  const bool orders = spec.joins == OD_JOIN_COLUMNS, columns = orders && adds_columns(setup);
  if (orders) shape->tiled[column_dim(setup)] = setup.dims[column_dim(setup)].tile > 1;
  if (columns) shape->least[column_dim(setup)] = 2;
  shape->k_extent = setup.k_extent;
  shape->k_tile = setup.k_tile;
  shape->steps = setup.inner_steps;
  const bool panels = spec.joins == OD_JOIN_PANELS && !rounds_steps(setup);
  shape->joins_steps = columns || (spec.joins >= OD_JOIN_STEPS && !rounds_steps(setup));
  for (uint32_t i = 0; i < spec.n_operands; ++i) {
    const od_operand& operand = setup.operands[i];
    if (operand.present == 0) continue;
    OperandShape one;
    one.index = i;
    one.output = spec.operands[i].role == OD_ROLE_OUTPUT;
    one.port = operation.references[i].port;
    one.offset = operation.references[i].offset;
    one.element = od_dtypes[operand.dtype].bytes;
    one.n_axes = spec.operands[i].n_axes;
    one.panels = panels && is_one_of(spec.operands[i].name, kPanels);
    one.in_place = one.output && (panels || spec.joins == OD_JOIN_STEPS);
    one.finishes = panels && is_one_of(spec.operands[i].name, kFinishes);
    for (uint32_t axis = 0; axis < one.n_axes; ++axis) {
      one.axes[axis] = operand.axes[axis];
      one.along[axis] = along_of(setup, spec.operands[i].axes[axis].dim);
    }
    // Their sums wait in scratch, whose layout the tile decides.
    if (one.element < 4 && spec.keeps_scratch != 0 && !panels && !orders) return nullptr;
    shape->operands.push_back(one);
  }
  return shape;
}

std::shared_ptr<const CallableOperation> ReadOperation::joined(const OperationShape& shape) const {
  try {
    auto made = std::make_shared<const JoinedOperation>(*this, shape);
    const bool orders = operation.setup.spec->joins == OD_JOIN_COLUMNS;
    return orders && adds_columns(made->setup()) != adds_columns(operation.setup) ? nullptr : made;
  } catch (const KernelError&) {
    return nullptr;
  }
}

}  // namespace onedispatch
