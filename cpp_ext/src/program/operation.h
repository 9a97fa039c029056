// SPDX-License-Identifier: Apache-2.0
// An operation as its parameter block describes it: read and checked by the kernel's declaration, once;
// then where the chunks of its calls lie.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel.h"
#include "onedispatch/kernel_params.h"

namespace onedispatch {

using params::kOutPort;
using params::kPorts;

struct Operation {
  struct OperandReference {
    uint32_t port = 0, offset = 0;
  };

  od_setup setup{};
  std::array<uint32_t, kPorts> chunk_bytes{};    // 0 where the port is not used
  std::array<OperandReference, OD_MAX_OPERANDS> references{};  // of operands that are there
  uint32_t scratch_at = 0;                      // in own data memory

  Operation() {
    for (od_dim& dim : setup.dims) dim = {1, 1};
    setup.k_tile = setup.inner_steps = 1;
  }
};

// Fills roles, operands and scalars as the declaration (setup.spec) says; words, dims, reduction and
// chunk bytes are there. Throws ProgramError.
void read_operation(Operation& operation);
// The tile and the step of a call; nothing points into memory yet.
od_call place_call(const od_setup& setup, const KernelCall& call);
// Members of the reduction that its step `step` takes.
inline uint32_t k_count_of(const od_setup& setup, uint32_t step) {
  return std::min(setup.k_tile, setup.k_extent - std::min(step * setup.k_tile, setup.k_extent));
}
// Points the operands of `call` into the chunks that begin at `chunks`.
void bind_operands(const Operation& operation, const std::array<uint8_t*, kPorts>& chunks, od_call& call);
// Whether the operand's chunk is filled before a call: that of a member kernel's output which has a fill, or rows
// that are padded to whole words.
bool is_filled(const od_setup& setup, uint32_t operand);
// The members of a call of a member kernel whose tile begins at its origin.
void count_members(const od_setup& setup, od_call& call);
// The box of members that the call computes: "members [0, 8] to [3, 15]".
std::string members_of(const od_setup& setup, const od_call& call);
std::string number(double value);  // as it is printed in messages
float f32_of(uint32_t word);  // the number whose bits they are
// "super kernel: <text>"
[[noreturn]] void reject(const std::string& text, int32_t status = 0, std::shared_ptr<void> cause = nullptr);
// "super kernel: <kernel>: <what>: word <at> of the parameter block is <value>; <accepted>"
[[noreturn]] void reject(const od_setup& setup, uint32_t at, const std::string& what, const std::string& accepted);
// What `field` of the group of words that begins at `at` says, and "(bits 8..15)" where that is.
inline uint32_t field_of(const od_setup& setup, uint32_t at, const Field& field) { return field.raw(setup.words[at + field.word]); }
std::string bits_of(const Field& field);
// The word, where it is in bounds.
uint32_t word_in(const od_setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high);
// The same with a name that `name()` puts together where it is needed.
template <typename Name>
uint32_t word_in(const od_setup& setup, uint32_t at, const Name& name, uint32_t low, uint32_t high) {
  const uint32_t value = setup.words[at];
  return value < low || value > high ? word_in(setup, at, name().c_str(), low, high) : value;
}

}  // namespace onedispatch
