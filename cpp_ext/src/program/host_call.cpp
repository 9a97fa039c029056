// SPDX-License-Identifier: Apache-2.0
#include "host_call.h"

#include <string>

#include "signal_guard.h"
#include "onedispatch/core_program.h"
#include "onedispatch/text.h"
#include "operation.h"
#include "print_host.h"

namespace onedispatch {

namespace {

constexpr uint64_t kMostBytes = UINT32_MAX;  // that od_operand can say

[[noreturn]] void refuse(const od_kernel_spec& spec, const std::string& what) {
  throw KernelError{OD_PARAMETER_INVALID, std::string(spec.name) + " on the host: " + what};
}

void check_operand(const od_kernel_spec& spec, const od_operand& operand, const char* name, const HostOperand& given) {
  if ((operand.present != 0) != (given.data != nullptr)) refuse(spec, std::string(name) + " is there in the block or in memory alone");
  if (given.bytes > kMostBytes) refuse(spec, std::string(name) + " has " + counted(given.bytes, "byte") + "; accepted: at most " + std::to_string(kMostBytes));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < operand.n_axes; ++i) elements *= static_cast<uint64_t>(operand.axes[i].chunk);
  if (operand.present != 0 && given.bytes % elements != 0) refuse(spec, std::string(name) + " has " + counted(given.bytes, "byte") + " for " + counted(elements, "element"));
}

}  // namespace

void call_on_host(const KernelPtr& kernel, std::vector<uint32_t> words, const std::vector<HostOperand>& operands,
                  std::vector<uint8_t>& scratch, uint32_t limit_ms, PrintLog& prints) {
  const od_kernel_spec& spec = *kernel->spec;
  if (spec.members == 0) refuse(spec, "it is no custom kernel");
  if (words.size() < spec.words || operands.size() != spec.n_operands) {
    refuse(spec, counted(words.size(), "word") + " and " + counted(operands.size(), "operand") + "; accepted: " + std::to_string(spec.words) + " and " + std::to_string(spec.n_operands));
  }
  Operation operation;
  od_setup& setup = operation.setup;
  setup.spec = &spec;
  setup.words = words.data();
  operation.chunk_bytes.fill(UINT32_MAX);  // there are no ports; what operands have is said below
  try {
    read_operation(operation);
  } catch (const ProgramError& error) {
    refuse(spec, error.what);
  }
  setup.scratch_bytes = static_cast<uint32_t>(scratch.size());
  od_call call{};
  for (uint32_t i = 0; i < spec.n_operands; ++i) {
    check_operand(spec, setup.operands[i], spec.operands[i].name, operands[i]);
    setup.operands[i].bytes = static_cast<uint32_t>(operands[i].bytes);
    call.operand[i] = operands[i].data;
  }
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    if (setup.whole[d] == 0 && setup.total[d] != 1) refuse(spec, "index dimension " + std::to_string(d) + " is cut");
  }
  call.k_count = call.k_last = 1;
  call.scratch = scratch.empty() ? nullptr : scratch.data();
  count_members(setup, call);
  const BodyLimit limit(limit_ms);
  const Plan plan(kernel, setup);
  plan.check(call);
  prints.begin(spec.digest);
  const PrintHost host(&prints, first_of(setup, call));
  if (spec.prints != OD_PRINT_NO && prints.capacity() != 0) call.host = host.host();
  plan.run(call);
}

}  // namespace onedispatch
