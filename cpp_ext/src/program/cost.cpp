// SPDX-License-Identifier: Apache-2.0
// The search evaluates the same formulas over candidate tilings (operators/scheduling/call_cost.py),
// operation by operation.
#include "cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "onedispatch/kernel_tables.h"

namespace onedispatch {

namespace {

static_assert(std::size(od_work) == OD_WORK_TERMS);

struct Walk {
  double members = 1, step = 0;
};

// Quantities of one call of k_count members, the last step of its reduction or not.
struct Quantities {
  const od_setup& setup;
  const Constants& constants;
  uint32_t k_count;
  bool last;

  double constant(const std::string& name) const { return constants.at(name); }

  double scalar(uint32_t index) const {
    const uint32_t word = setup.scalars[index], type = setup.spec->scalars[index].type;
    if (type == OD_SCALAR_F32) return f32_of(word);
    return type == OD_SCALAR_I32 ? static_cast<double>(static_cast<int32_t>(word)) : word;
  }

  double elements() const {
    double product = 1;
    for (const od_dim& dim : setup.dims) product *= dim.tile;
    return product;
  }

  // The element type of an operand; one that is absent (an empty sum) is of the first output's.
  const od_dtype_spec& dtype(uint32_t operand) const {
    const od_kernel_spec& spec = *setup.spec;
    for (uint32_t i = 0; i < spec.n_operands && setup.operands[operand].present == 0; ++i) {
      if (spec.operands[i].role == OD_ROLE_OUTPUT && setup.operands[i].present != 0) return dtype(i);
    }
    return od_dtypes[setup.operands[operand].dtype];
  }

  // Whose constants hold for an operand.
  std::string rates(uint32_t operand) const { return dtype(operand).rates; }

  double priced(const double (&counts)[OD_WORK_TERMS], uint32_t operand) const {
    double total = 0;
    for (uint32_t i = 0; i < OD_WORK_TERMS; ++i) {
      if (counts[i] == 0) continue;
      const double price = counts[i] * constant(rates(operand) + "_" + od_work[i]);
      total += price;
    }
    return total;
  }

  const od_function_spec& function(uint32_t index) const { return setup.spec->scalars[index].functions[setup.scalars[index]]; }

  double members(const od_axis_spec& along, const od_axis& axis) const {
    if (along.dim == OD_ALONG_BLOCK) return axis.along == OD_ALONG_NOTHING ? static_cast<double>(axis.chunk) : setup.dims[axis.along].tile;
    if (along.dim == OD_ALONG_REDUCTION) return k_count;
    if (along.dim == OD_ALONG_NOTHING) return static_cast<double>(axis.chunk);
    return setup.dims[setup.spec->n_dims == 0 ? along.dim : setup.roles[along.dim]].tile;
  }

  // The longest walk with one step, the innermost axis first. What is absent ends no walk.
  Walk walk(uint32_t index) const {
    const od_operand_spec& spec = setup.spec->operands[index];
    const od_operand& operand = setup.operands[index];
    if (operand.present == 0) return {elements(), 0};
    Walk found;
    for (uint32_t i = spec.n_axes; i-- > 0;) {
      const od_axis& axis = operand.axes[i];
      const double count = members(spec.axes[i], axis);
      if (count <= 1) continue;
      const uint32_t along = spec.axes[i].dim == OD_ALONG_BLOCK ? axis.along : spec.axes[i].dim;
      const double a = along == OD_ALONG_NOTHING ? 1 : static_cast<double>(axis.a);
      // Fractions of a stride are that long on average; only the innermost axis may have them.
      const double den = along == OD_ALONG_NOTHING ? 1 : static_cast<double>(axis.den);
      const double stride = a * static_cast<double>(axis.stride) / den;
      if (found.members == 1) {
        found.step = stride;
      } else if (std::fmod(a, den) != 0 || stride != found.members * found.step) {
        break;
      }
      found.members *= count;
    }
    return found;
  }

  double operator()(const od_step& step) const {
    const od_operand* const operands = setup.operands;
    switch (step.op) {
      case OD_OP_TILE: return setup.dims[setup.roles[step.a]].tile;
      case OD_OP_ELEMENTS: return elements();
      case OD_OP_K: return k_count;
      case OD_OP_LAST: return last ? 1 : 0;
      case OD_OP_K_TILE: return setup.k_tile;
      case OD_OP_STEPS: return setup.inner_steps;
      case OD_OP_SCALAR: return scalar(step.a);
      case OD_OP_WORK: return priced(function(step.a).work, step.b);
      case OD_OP_FINISH: return priced(function(step.a).finish, step.b);
      case OD_OP_COUNT: return static_cast<double>(operands[step.a].axes[step.b].chunk);
      case OD_OP_STRIDE: return static_cast<double>(operands[step.a].axes[step.b].stride);
      case OD_OP_RUN: return walk(step.a).members;
      case OD_OP_STEP: return walk(step.a).step;
      case OD_OP_BYTES: return operands[step.a].present != 0 ? od_dtypes[operands[step.a].dtype].bytes : 0;
      case OD_OP_PRESENT: return operands[step.a].present != 0 ? 1 : 0;
      case OD_OP_FILLED: return is_filled(setup, step.a) ? 1 : 0;
      case OD_OP_DEVICE: return constant(setup.spec->constants[step.a]);
      case OD_OP_DEVICE_BY_DTYPE: {
        const std::string second = step.c == OD_NO_OPERAND ? "" : rates(step.c) + "_";
        return constant(rates(step.b) + "_" + second + setup.spec->constants[step.a]);
      }
      case OD_OP_DEVICE_BY_SUMS: return constant(rates(step.b) + "_" + dtype(step.b).sums + "_" + setup.spec->constants[step.a]);
      default: return 0;  // operations and numbers: perform() knows them
    }
  }
};

// Whether a step is worth the same in every call of the same element types and functions.
bool is_settled(uint32_t op) {
  switch (op) {
    case OD_OP_WORK:
    case OD_OP_FINISH:
    case OD_OP_DEVICE:
    case OD_OP_DEVICE_BY_DTYPE:
    case OD_OP_DEVICE_BY_SUMS:
    case OD_OP_BYTES:
    case OD_OP_PRESENT: return true;
    default: return false;
  }
}

double perform(const od_step* steps, size_t count, const Quantities& quantity);

double evaluate(const od_step* steps, uint32_t count, const Quantities& quantity) {
  const std::vector<od_step>& settled = quantity.constants.settled(steps, count, quantity.setup);
  return perform(settled.data(), settled.size(), quantity);
}

double perform(const od_step* steps, size_t count, const Quantities& quantity) {
  double stack[OD_MAX_STACK], kept[OD_MAX_KEPT];
  int top = 0;
  for (size_t i = 0; i < count; ++i) {
    const od_step& step = steps[i];
    const auto fold = [&](auto function) {
      --top;
      stack[top - 1] = function(stack[top - 1], stack[top]);
    };
    switch (step.op) {
      case OD_OP_NUMBER: stack[top++] = step.value; break;
      case OD_OP_ADD: fold([](double x, double y) { return x + y; }); break;
      case OD_OP_SUB: fold([](double x, double y) { return x - y; }); break;
      case OD_OP_MUL: fold([](double x, double y) { return x * y; }); break;
      case OD_OP_DIV: fold([](double x, double y) { return x / y; }); break;
      case OD_OP_MAX: fold([](double x, double y) { return x > y ? x : y; }); break;
      case OD_OP_MIN: fold([](double x, double y) { return x < y ? x : y; }); break;
      case OD_OP_DIFFERS: fold([](double x, double y) { return x != y ? 1.0 : 0.0; }); break;
      case OD_OP_CEIL: stack[top - 1] = std::ceil(stack[top - 1]); break;
      case OD_OP_HALVINGS: {
        int halvings = 0;  // n - 1 is below 2^halvings
        std::frexp(std::max(stack[top - 1], 1.0) - 1, &halvings);
        stack[top - 1] = halvings;
        break;
      }
      case OD_OP_KEEP: kept[step.a] = stack[top - 1]; break;
      case OD_OP_KEPT: stack[top++] = kept[step.a]; break;
      default: stack[top++] = quantity(step); break;
    }
  }
  return stack[0];
}

// The value in whole cycles, where it is a number of them.
uint64_t charged(const od_kernel_spec& spec, const char* what, double cycles) {
  if (!(cycles >= 0 && cycles <= OD_MAX_CYCLES)) {  // negated: a NaN is refused too
    reject(std::string(spec.name) + ": " + what + " is " + number(cycles) + " cycles; accepted: 0 to " + std::to_string(OD_MAX_CYCLES));
  }
  return static_cast<uint64_t>(std::ceil(cycles));
}

}  // namespace

Constants::Constants(const DeviceDescription& device) {
  const std::string section = "kernel.";
  for (const auto& [name, value] : device.constants) {
    if (name.compare(0, section.size(), section) == 0) values_[name.substr(section.size())] = value;
  }
}

double Constants::at(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    reject("the device description has no constant kernel." + std::string(name) + ", which the kernel's cost names");
  }
  return found->second;
}

const std::vector<od_step>& Constants::settled(const od_step* steps, uint32_t count, const od_setup& setup) const {
  const od_kernel_spec& spec = *setup.spec;
  Key key{steps, {}};
  key.second.reserve(spec.n_operands + spec.n_scalars);
  for (uint32_t i = 0; i < spec.n_operands; ++i) key.second.push_back(setup.operands[i].present != 0 ? setup.operands[i].dtype : UINT32_MAX);
  for (uint32_t i = 0; i < spec.n_scalars; ++i) {
    if (spec.scalars[i].type == OD_SCALAR_FUNCTION) key.second.push_back(setup.scalars[i]);
  }
  const auto found = settled_.find(key);
  if (found != settled_.end()) return found->second;
  const Quantities quantity{setup, *this, 0, false};
  std::vector<od_step> left;
  std::map<uint16_t, od_step> kept;  // numbers, of which none is kept in a call
  for (uint32_t i = 0; i < count; ++i) {
    if (steps[i].op == OD_OP_KEEP && left.back().op == OD_OP_NUMBER) {
      kept[steps[i].a] = left.back();
      continue;
    }
    const auto known = steps[i].op == OD_OP_KEPT ? kept.find(steps[i].a) : kept.end();
    left.push_back(known != kept.end() ? known->second : steps[i]);
    const uint32_t taken = od_op_takes[steps[i].op];
    const auto first = left.end() - 1 - std::min<std::ptrdiff_t>(taken, left.end() - left.begin() - 1);
    const bool of_numbers = taken != 0 && std::all_of(first, left.end() - 1, [](const od_step& x) { return x.op == OD_OP_NUMBER; });
    if (!of_numbers && !is_settled(steps[i].op)) continue;
    od_step number{};
    number.op = OD_OP_NUMBER;
    number.value = perform(&*first, static_cast<size_t>(left.end() - first), quantity);
    left.erase(first, left.end());
    left.push_back(number);
  }
  return settled_.emplace(std::move(key), std::move(left)).first->second;
}

uint64_t call_cycles(const od_setup& setup, const Constants& constants, uint32_t k_count, bool last) {
  const od_kernel_spec& spec = *setup.spec;
  return charged(spec, "cost of a call", evaluate(spec.cost, spec.n_cost, {setup, constants, k_count, last}));
}

void read_scratch(Operation& operation, const Constants& constants, uint32_t memory_bytes) {
  od_setup& setup = operation.setup;
  const od_kernel_spec& spec = *setup.spec;
  if (spec.n_scratch == 0) return;
  const uint32_t address = setup.words[params::header::scratch];
  const double bytes = std::ceil(evaluate(spec.scratch, spec.n_scratch, {setup, constants, setup.k_tile, true}) / 4) * 4;
  if (bytes == 0) return;
  const uint32_t lowest = params::kCoreViewMemory + 4 * spec.block_words;
  const uint32_t end = params::kCoreViewMemory + memory_bytes;
  // Negated, so that a formula that gives no number is refused too.
  if (address % 4 != 0 || address < lowest || address > end || !(bytes >= 0 && bytes <= end - address)) {
    reject(setup, params::header::scratch, "scratch", "accepted: multiples of 4 from " + std::to_string(lowest) + " on, with room for the " +
                                                          number(bytes) + " bytes that the kernel declares before " + std::to_string(end) +
                                                          " (stack and tables follow)");
  }
  operation.scratch_at = address - params::kCoreViewMemory;
  setup.scratch_bytes = static_cast<uint32_t>(bytes);
}

uint64_t op_cycles(const od_setup& setup, const Constants& constants) {
  const double words = setup.spec->words * constants.at("parameter_word_cycles");
  return charged(*setup.spec, "set-up", constants.at("op_setup_cycles") + words);
}

uint64_t print_cycles(const od_setup& setup, const Constants& constants, size_t bytes) {
  return charged(*setup.spec, "handing out what it printed", static_cast<double>(bytes) * constants.at("print_byte_cycles"));
}

uint64_t word_cycles(const od_setup& setup, const Constants& constants, uint32_t words) {
  return charged(*setup.spec, "reading its parameter block", words * constants.at("parameter_word_cycles"));
}

}  // namespace onedispatch
