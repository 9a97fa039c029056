// SPDX-License-Identifier: Apache-2.0
// A parameter block read and checked by the kernel's declaration.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "operation.h"
#include "onedispatch/kernel_tables.h"
#include "onedispatch/text.h"

namespace onedispatch {

void reject(const std::string& text, int32_t status, std::shared_ptr<void> cause) { throw ProgramError{"super kernel: " + text, status, std::move(cause)}; }

void reject(const od_setup& setup, uint32_t at, const std::string& what, const std::string& accepted) {
  const std::string kernel = setup.spec == nullptr ? "" : std::string(setup.spec->name) + ": ";
  reject(kernel + what + ": word " + std::to_string(at) + " of the parameter block is " + std::to_string(setup.words[at]) +
         "; " + accepted);
}

uint32_t word_in(const od_setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high) {
  const uint32_t value = setup.words[at];
  if (value < low || value > high) {
    reject(setup, at, name, "accepted: " + span(low, high));
  }
  return value;
}

std::string bits_of(const Field& field) {
  return " (bits " + std::to_string(field.lsb) + ".." + std::to_string(field.lsb + field.width - 1) + ")";
}

namespace {

namespace word = params::axis;

constexpr od_axis kScalarAxis = {1, 1, 0, 0, 1, 1, 0, 0, OD_ALONG_NOTHING, 0};  // where an operand has one element

std::string names(uint32_t dtypes) {
  std::string text;
  for (uint32_t d = 0; d < std::size(od_dtypes); ++d) {
    if (dtypes >> d & 1) text += (text.empty() ? "" : ", ") + std::to_string(d) + " (" + od_dtypes[d].name + ")";
  }
  return text;
}

// Ascending, so that an out chunk's order is plain; every other dimension has tile 1.
void read_roles(od_setup& setup) {
  const od_kernel_spec& spec = *setup.spec;
  if (spec.n_dims == 0) return;
  bool used[OD_MAX_DIMS] = {};
  for (uint32_t i = 0; i < spec.n_dims; ++i) {
    const uint32_t low = i == 0 ? 0 : setup.roles[i - 1] + 1;
    const std::string name = std::string("dimension ") + spec.dims[i];
    setup.roles[i] = word_in(setup, params::kArgsAt + i, name.c_str(), low, OD_MAX_DIMS - 1);
    used[setup.roles[i]] = true;
  }
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    if (!used[d] && setup.dims[d].tile != 1) {
      reject(setup, params::header::dims + params::dim::kWords * d + params::dim::tile.word, "tile of another dimension", "this kernel accepts 1");
    }
  }
}

void read_reference(const Operation& op, const od_operand_spec& spec, od_operand& operand, Operation::OperandReference& reference) {
  const uint32_t value = op.setup.words[spec.at];
  const bool is_output = spec.role == OD_ROLE_OUTPUT;
  reference.port = value >> params::kPortShift;
  reference.offset = value & ((1u << params::kDtypeShift) - 1);
  const uint32_t lowest = is_output ? kOutPort : 0, highest = is_output ? kOutPort : 1;
  if (reference.port < lowest || reference.port > highest) {
    reject(op.setup, spec.at, spec.name, is_output ? "accepted port: 2 (out)" : "accepted ports: 0 (in0), 1 (in1)");
  }
  const uint32_t chunk = op.chunk_bytes[reference.port], element = od_dtypes[operand.dtype].bytes;
  const uint32_t unit = std::min<uint32_t>(element, 4);  // chunks begin with words, also those of wider elements
  if (reference.offset > chunk || reference.offset % unit != 0) {
    reject(op.setup, spec.at, spec.name,
           "the offset must be a multiple of " + std::to_string(unit) + " inside the chunk of " + counted(chunk, "byte"));
  }
  operand.bytes = chunk - reference.offset;
}

void check_walk(const od_setup& setup, uint32_t at, const std::string& name, uint32_t walk, const od_axis& axis) {
  const bool unit = axis.a == 1 && axis.den == 1 && axis.b == 0;
  // A fraction, or any interval, is walked as it comes.
  if (walk == OD_WALK_UNIT && !unit) reject(setup, at + word::a.word, name + ": access", "this kernel walks coordinate i alone (a 1, b 0)");
  if (walk == OD_WALK_AFFINE && axis.den != 1) reject(setup, at + word::den.word, name + ": denominator" + bits_of(word::den), "accepted: 1");
}

od_axis read_axis(const od_setup& setup, uint32_t at, const std::string& name) {
  od_axis axis{};
  axis.extent = field_of(setup, at, word::extent);
  axis.chunk = field_of(setup, at, word::chunk);
  axis.stride = field_of(setup, at, word::stride);
  axis.a = field_of(setup, at, word::a);
  axis.den = field_of(setup, at, word::den);
  axis.align = field_of(setup, at, word::align);
  axis.b = static_cast<int32_t>(field_of(setup, at, word::b));
  if (axis.chunk > axis.extent) {
    reject(setup, at + word::chunk.word, name + ": chunk extent", "accepted: at most the full extent " + std::to_string(axis.extent));
  }
  if (axis.align == 0) reject(setup, at + word::align.word, name + ": align" + bits_of(word::align), "accepted: 1 or more");
  if (axis.den == 0) reject(setup, at + word::den.word, name + ": denominator" + bits_of(word::den), "accepted: 1 or more");
  return axis;
}

// An output's chunk is the tile, row-major over its axes; a whole extent is that of the first input's
// axis of the same name.
void lay_out(const od_setup& setup, const od_operand_spec& spec, od_operand& out) {
  const od_kernel_spec& kernel = *setup.spec;
  int64_t stride = 1;
  for (uint32_t i = spec.n_axes; i-- > 0;) {
    od_axis& axis = out.axes[i];
    axis = kScalarAxis;
    const uint32_t dim = spec.axes[i].dim;
    if (dim != OD_ALONG_NOTHING) {
      const od_dim& along = setup.dims[kernel.n_dims == 0 ? dim : setup.roles[dim]];
      axis.extent = along.extent;
      axis.chunk = along.tile;
      axis.a = 1;
    }
    for (uint32_t j = 0; dim == OD_ALONG_NOTHING && j < kernel.operands[0].n_axes; ++j) {
      if (std::strcmp(kernel.operands[0].axes[j].name, spec.axes[i].name) == 0) axis.extent = axis.chunk = setup.operands[0].axes[j].chunk;
    }
    axis.stride = stride;
    // Beyond a core's memory the span is refused: the product stays small until then.
    stride = std::min<int64_t>(stride * std::max<int64_t>(axis.chunk, 1), int64_t{1} << 40);
  }
}

// All chunk coordinates of the axes lie inside what the reference has.
void check_span(const od_setup& setup, const od_operand_spec& spec, const od_operand& operand) {
  uint64_t last = 0;
  for (uint32_t i = 0; i < spec.n_axes; ++i) {
    const od_axis& axis = operand.axes[i];
    if (axis.chunk == 0) return;
    // Both factors are below 2^32: the product fits, the sum is bounded after each step.
    last += static_cast<uint64_t>(axis.chunk - 1) * static_cast<uint64_t>(axis.stride);
    if (last > kCoreMemoryBytes) break;
  }
  const uint64_t end = (last + 1) * od_dtypes[operand.dtype].bytes;
  if (end > operand.bytes) {
    reject(setup, spec.at, std::string(spec.name) + ": its axes reach beyond the chunk",
           "it has " + counted(operand.bytes, "byte") + " from its offset on, they need " + std::to_string(end));
  }
}

// Which index dimension an axis of a member kernel's operand follows, and what a member touches along it.
void read_along(const od_setup& setup, uint32_t at, uint32_t axis_at, uint32_t index, const std::string& name, od_axis& axis) {
  const Field fields[] = {params::along::axis_0, params::along::axis_1, params::along::axis_2, params::along::axis_3, params::along::axis_4};
  static_assert(std::size(fields) == OD_MAX_DIMS);
  const uint32_t dim = field_of(setup, at, fields[index]), last = axis_at + params::kAxisWords;
  if (dim >= OD_MAX_DIMS && dim != params::kAlongWhole) {
    reject(setup, at, name + bits_of(fields[index]), "accepted: index dimensions " + span(0, OD_MAX_DIMS - 1) + ", or " + std::to_string(params::kAlongWhole) + ": any member may touch all of it");
  }
  axis.along = static_cast<uint16_t>(dim == params::kAlongWhole ? OD_ALONG_NOTHING : dim);
  axis.span = field_of(setup, last, params::span::span);
  axis.padding = static_cast<uint16_t>(field_of(setup, last, params::span::padding));
  if ((axis.span == 0) != (axis.along == OD_ALONG_NOTHING)) {
    reject(setup, last, name + ": elements that a member touches" + bits_of(params::span::span), "accepted: 1 or more along an index dimension, 0 where any member may touch all");
  }
  if (axis.padding != 0 && axis.padding >= axis.extent) {
    reject(setup, last, name + ": padding" + bits_of(params::span::padding), "accepted: less than the extent " + std::to_string(axis.extent));
  }
}

// The axes of a member kernel's operand, as many as its tensor has dimensions.
void read_member_axes(const od_setup& setup, const od_operand_spec& spec, od_operand& operand) {
  const uint32_t at = spec.at + 1;
  operand.n_axes = field_of(setup, at, params::along::rank);
  if (operand.n_axes < spec.least_rank || operand.n_axes > spec.n_axes) {
    reject(setup, at, std::string(spec.name) + ": rank" + bits_of(params::along::rank), "accepted: " + span(spec.least_rank, spec.n_axes));
  }
  const uint32_t none = ~uint32_t{0} >> (32 - params::along::rank.lsb) & ~uint32_t{0} << (4 * operand.n_axes);
  if ((setup.words[at] & none) != none) reject(setup, at, std::string(spec.name) + ": dimensions beyond its rank", "accepted: all bits of them set");
  for (uint32_t i = 0; i < operand.n_axes; ++i) {
    const uint32_t axis_at = at + 1 + params::kMemberAxisWords * i;
    const std::string name = std::string(spec.name) + " along " + spec.axes[i].name;
    operand.axes[i] = read_axis(setup, axis_at, name);
    read_along(setup, at, axis_at, i, name, operand.axes[i]);
  }
  int64_t stride = 1;
  for (uint32_t i = operand.n_axes; spec.role == OD_ROLE_OUTPUT && i-- > 0;) {
    const uint32_t axis_at = at + 1 + params::kMemberAxisWords * i;
    const od_axis& axis = operand.axes[i];
    const std::string name = std::string(spec.name) + " along " + spec.axes[i].name;
    if (axis.chunk == 0) reject(setup, axis_at + word::chunk.word, name + ": chunk extent", "accepted: 1 or more");
    if (axis.stride != stride) reject(setup, axis_at + word::stride.word, name + ": stride", "out chunks lie row-major; accepted: " + std::to_string(stride));
    stride = std::min<int64_t>(stride * axis.chunk, int64_t{1} << 40);
  }
}

// The members of a member kernel's index space: those of the nest are among them.
void read_members(od_setup& setup) {
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    const uint32_t at = params::kArgsAt + 2 * d;
    const std::string name = "index dimension " + std::to_string(d);
    setup.total[d] = field_of(setup, at + 1, params::total::members);
    setup.whole[d] = field_of(setup, at + 1, params::total::whole);
    if (setup.total[d] == 0) reject(setup, at + 1, name + ": members" + bits_of(params::total::members), "accepted: 1 or more");
    setup.first[d] = word_in(setup, at, (name + ": first member").c_str(), 0, setup.whole[d] != 0 ? 0 : setup.total[d] - 1);
    if (setup.whole[d] != 0 && setup.dims[d].extent != 1) {
      reject(setup, params::header::dims + params::dim::kWords * d, name + " is in every call whole: extent", "accepted: 1");
    }
  }
}

// Fill and pad, where the instance says them.
void read_edges(od_setup& setup) {
  const od_kernel_spec& spec = *setup.spec;
  for (uint32_t i = 0; i < spec.n_operands; ++i) {
    od_operand& operand = setup.operands[i];
    const od_operand_spec& declared = spec.operands[i];
    if (declared.pad_scalar != OD_NO_SCALAR) operand.pad = f32_of(setup.scalars[declared.pad_scalar]);
    if (declared.fill_scalar != OD_NO_SCALAR) operand.fill = f32_of(setup.scalars[declared.fill_scalar]);
  }
}

void read_operand(Operation& op, uint32_t index) {
  od_setup& setup = op.setup;
  const od_operand_spec& spec = setup.spec->operands[index];
  od_operand& operand = setup.operands[index];
  operand = {};
  operand.pad = spec.pad;
  operand.fill = spec.fill;
  std::fill(std::begin(operand.axes), std::end(operand.axes), kScalarAxis);
  if (setup.words[spec.at] == params::kAbsent) {
    bool along_k = false;  // an empty sum reads nothing along the reduction
    for (uint32_t i = 0; i < spec.n_axes; ++i) along_k = along_k || spec.axes[i].dim == OD_ALONG_REDUCTION;
    if (!spec.optional && !(along_k && setup.k_extent == 0)) reject(setup, spec.at, spec.name, "it must be present");
    return;
  }
  operand.present = 1;
  operand.n_axes = spec.n_axes;
  operand.dtype = setup.words[spec.at] >> params::kDtypeShift & 0xFF;
  if (operand.dtype >= std::size(od_dtypes) || (spec.dtypes >> operand.dtype & 1) == 0) {
    reject(setup, spec.at, std::string(spec.name) + " element type (bits 16..23)", "accepted: " + names(spec.dtypes));
  }
  read_reference(op, spec, operand, op.references[index]);
  if (setup.spec->members != 0) {
    read_member_axes(setup, spec, operand);
    check_span(setup, spec, operand);
    return;
  }
  const bool is_output = spec.role == OD_ROLE_OUTPUT;
  if (is_output) lay_out(setup, spec, operand);
  for (uint32_t i = 0; i < spec.n_axes && !is_output; ++i) {
    const uint32_t at = spec.at + 1 + params::kAxisWords * i;
    const std::string name = std::string(spec.name) + " along " + spec.axes[i].name;
    operand.axes[i] = read_axis(setup, at, name);
    if (spec.axes[i].dim != OD_ALONG_NOTHING && operand.axes[i].stride != 0) check_walk(setup, at, name, spec.walk, operand.axes[i]);
  }
  check_span(setup, spec, operand);
}

std::string names_of_types(uint32_t mask) {
  std::string names;
  for (uint32_t d = 0; d < std::size(od_dtypes); ++d) {
    if (mask >> d & 1) names += (names.empty() ? "" : "|") + std::string(od_dtypes[d].name);
  }
  return names;
}

// The element types of the operands that are there stand together in a row of the declaration.
void check_types(const od_setup& setup) {
  const od_kernel_spec& spec = *setup.spec;
  std::string accepted;
  uint32_t first = 0;
  for (uint32_t row = 0; row < spec.n_types; ++row) {
    bool fits = true;
    accepted += row == 0 ? "" : "; ";
    for (uint32_t i = 0; i < spec.n_operands; ++i) {
      if (setup.operands[i].present == 0) continue;
      const uint32_t mask = spec.types[row * spec.n_operands + i];
      fits = fits && (mask >> setup.operands[i].dtype & 1) != 0;
      accepted += std::string(spec.operands[i].name) + " " + names_of_types(mask) + ", ";
    }
    if (fits) return;
  }
  for (uint32_t i = spec.n_operands; i-- > 0;) {
    if (setup.operands[i].present != 0) first = i;
  }
  if (spec.n_types != 0) reject(setup, spec.operands[first].at, "element types (bits 16..23) of the operands together", "accepted: " + accepted);
}

void read_scalar(const od_setup& setup, const od_scalar_spec& spec, uint32_t& word) {
  word = setup.words[spec.at];
  uint32_t mark = 0;
  if (spec.type == OD_SCALAR_FUNCTION) {
    mark = word >> OD_MARK_SHIFT;
    word &= (1u << OD_MARK_SHIFT) - 1;
  }
  double value = word;
  if (spec.type == OD_SCALAR_I32) value = static_cast<int32_t>(word);
  if (spec.type == OD_SCALAR_F32) {
    value = f32_of(word);
  }
  if (value < spec.low || value > spec.high) {  // a NaN passes: floats may be anything unless bounded
    const std::string code = spec.type == OD_SCALAR_FUNCTION ? ": function " + std::to_string(word) + " of its table" : "";
    reject(setup, spec.at, spec.name + code, "accepted: " + number(spec.low) + " to " + number(spec.high));
  }
  const uint32_t wanted = spec.type == OD_SCALAR_FUNCTION ? spec.functions[word].digest >> OD_MARK_SHIFT : 0;
  if (wanted == mark) return;
  // The function table that this was compiled with goes on in another way than ours.
  reject(setup, spec.at, std::string(spec.name) + ": a function with mark " + std::to_string(mark),
         std::string(spec.functions[word].name) + " stands there, with mark " + std::to_string(wanted));
}

// Operands that share an element type do, and functions are defined for what they see.
void check_dtypes(const od_setup& setup) {
  const od_kernel_spec& spec = *setup.spec;
  for (uint32_t i = 0; i < spec.n_operands; ++i) {
    const od_operand &operand = setup.operands[i], &like = setup.operands[spec.operands[i].like];
    if (operand.present != 0 && like.present != 0 && operand.dtype != like.dtype) {
      reject(setup, spec.operands[i].at, std::string(spec.operands[i].name) + " element type (bits 16..23)",
             "with " + std::string(spec.operands[spec.operands[i].like].name) + " as it is, accepted: " + names(1u << like.dtype));
    }
  }
  for (uint32_t i = 0; i < spec.n_scalars; ++i) {
    const od_scalar_spec& scalar = spec.scalars[i];
    if (scalar.type != OD_SCALAR_FUNCTION || setup.operands[scalar.of].present == 0) continue;
    const od_function_spec& chosen = scalar.functions[setup.scalars[i]];
    const uint32_t dtype = setup.operands[scalar.of].dtype;
    if ((chosen.dtypes >> dtype & 1) == 0) {
      reject(setup, scalar.at, std::string(scalar.name) + " of " + od_dtypes[dtype].name + " (" + chosen.name + ")",
             "it is defined for " + names(chosen.dtypes));
    }
  }
}

}  // namespace

std::string number(double value) {
  if (std::isinf(value)) return value < 0 ? "-infinity" : "infinity";
  if (std::isnan(value)) return "NaN";
  if (std::abs(value) >= 1e15) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }
  return value == std::floor(value) ? std::to_string(static_cast<int64_t>(value)) : std::to_string(value);
}

float f32_of(uint32_t word) {
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

void read_operation(Operation& operation) {
  od_setup& setup = operation.setup;
  const od_kernel_spec& spec = *setup.spec;
  if (spec.reduces == 0 && setup.inner_steps != 1) {
    reject(setup, params::header::inner_steps, "inner steps", "this kernel has no reduction and accepts 1");
  }
  read_roles(setup);
  if (spec.members != 0) read_members(setup);
  for (uint32_t i = 0; i < spec.n_operands; ++i) read_operand(operation, i);
  check_types(setup);
  for (uint32_t i = 0; i < spec.n_scalars; ++i) read_scalar(setup, spec.scalars[i], setup.scalars[i]);
  if (spec.members != 0) read_edges(setup);
  check_dtypes(setup);
}

bool is_filled(const od_setup& setup, uint32_t operand) {
  const od_operand& one = setup.operands[operand];
  if (setup.spec->members == 0 || one.present == 0 || setup.spec->operands[operand].role != OD_ROLE_OUTPUT) return false;
  return !std::isnan(one.fill) || std::any_of(one.axes, one.axes + one.n_axes, [](const od_axis& axis) { return axis.padding != 0; });
}

od_call place_call(const od_setup& setup, const KernelCall& call) {
  od_call placed{};
  std::copy(call.origin.begin(), call.origin.end(), placed.origin);
  placed.k_index = call.step;
  placed.k_first = call.step * setup.k_tile;
  placed.k_count = k_count_of(setup, call.step);
  placed.k_last = call.step + 1 == setup.inner_steps ? 1 : 0;
  return placed;
}

void count_members(const od_setup& setup, od_call& call) {
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    const bool whole = setup.whole[d] != 0;
    call.member[d] = setup.first[d] + call.origin[d];
    // What fills up the words of rows are no members.
    const uint32_t left = setup.total[d] - std::min(setup.total[d], call.member[d]);
    call.count[d] = whole ? setup.total[d] : std::min(setup.dims[d].tile, left);
  }
}

std::string members_of(const od_setup& setup, const od_call& call) {
  const bool given = setup.spec->members != 0;
  uint32_t rank = 1;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    if ((given ? setup.total[d] : setup.dims[d].extent) > 1) rank = d + 1;
  }
  std::string low = "[", high = "[";
  for (uint32_t d = 0; d < rank; ++d) {
    const uint64_t first = given ? call.member[d] : call.origin[d], count = given ? call.count[d] : setup.dims[d].tile;
    low += (d == 0 ? "" : ", ") + std::to_string(first);
    high += (d == 0 ? "" : ", ") + std::to_string(first + count - 1);
  }
  return low == high ? "member " + low + "]" : "members " + low + "] to " + high + "]";
}

void bind_operands(const Operation& operation, const std::array<uint8_t*, kPorts>& chunks, od_call& call) {
  for (uint32_t i = 0; i < operation.setup.spec->n_operands; ++i) {
    const Operation::OperandReference& reference = operation.references[i];
    call.operand[i] = operation.setup.operands[i].present != 0 ? chunks[reference.port] + reference.offset : nullptr;
  }
}

}  // namespace onedispatch
