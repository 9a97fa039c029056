// SPDX-License-Identifier: Apache-2.0
#include "onedispatch/kernel_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "contain.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_tables.h"
#include "onedispatch/phrases.h"
#include "probe.h"

namespace onedispatch {

namespace {

[[noreturn]] void refuse(od_status status, const std::string& text) { throw KernelError{status, text}; }

// What is wrong with one declaration; every message begins with the kernel's name.
class Declaration {
 public:
  Declaration(const std::string& library, const od_kernel_spec& spec) : spec_(spec), where_("library " + library + ", kernel " + spec.name) {}

  void check() const {
    counts();
    named("the kernel", spec_.name);
    for (uint32_t i = 0; i < spec_.n_dims; ++i) named("a dimension", spec_.dims[i]);
    for (uint32_t i = 0; i < spec_.n_operands; ++i) operand(spec_.operands[i], i);
    require(spec_.n_operands > 0 && spec_.operands[spec_.n_operands - 1].role == OD_ROLE_OUTPUT, "the last operand is no output");
    for (uint32_t i = 0; i < spec_.n_scalars; ++i) scalar(spec_.scalars[i]);
    for (uint32_t i = 0; i < spec_.n_constants; ++i) named("a device constant", spec_.constants[i]);
    formula("cost", spec_.cost, spec_.n_cost);
    if (spec_.n_scratch != 0) formula("scratch", spec_.scratch, spec_.n_scratch);
  }

 private:
  void require(bool holds, const std::string& otherwise) const {
    if (!holds) refuse(OD_DECLARATION_INVALID, where_ + ": " + otherwise);
  }

  void most(const char* what, uint32_t given, uint32_t accepted) const {
    require(given <= accepted, counted(given, what) + "; accepted: at most " + std::to_string(accepted));
  }

  void counts() const {
    require(std::strlen(spec_.name) <= OD_MAX_NAME_BYTES, "a name of more than " + counted(OD_MAX_NAME_BYTES, "byte"));
    most("dimension", spec_.n_dims, OD_MAX_DIMS);
    most("operand", spec_.n_operands, OD_MAX_OPERANDS);
    most("scalar", spec_.n_scalars, OD_MAX_SCALARS);
    most("word", spec_.block_words, params::kMaxWords);
    const uint32_t unit = params::kInstructionBytes;
    require(spec_.code_bytes != 0 && spec_.code_bytes % unit == 0, counted(spec_.code_bytes, "byte") + " of code; accepted: multiples of " + std::to_string(unit) + " above 0");
    require(spec_.words <= spec_.block_words && spec_.block_words >= params::kWords, counted(spec_.words, "word") + " in a block of " + std::to_string(spec_.block_words));
    const bool there = (spec_.dims != nullptr || spec_.n_dims == 0) && spec_.operands != nullptr &&
                       (spec_.scalars != nullptr || spec_.n_scalars == 0) && (spec_.constants != nullptr || spec_.n_constants == 0) &&
                       (spec_.types != nullptr || spec_.n_types == 0) && spec_.cost != nullptr && (spec_.scratch != nullptr || spec_.n_scratch == 0);
    if (!there) refuse(OD_NULL_POINTER, where_ + ": a table of its declaration is null");
  }

  // What messages, device files and parameter blocks name.
  void named(const char* what, const char* name) const {
    require(name != nullptr && *name != 0, std::string(what) + " has no name");
    const auto printable = [](char c) { return c > ' ' && c <= '~'; };
    require(std::all_of(name, name + std::strlen(name), printable), std::string(what) + " has a name of other characters than printable ASCII");
  }

  void words(const char* name, uint32_t at, uint32_t count) const {
    require(at >= params::kArgsAt && count <= spec_.words && at <= spec_.words - count, std::string(name) + ": its words lie outside the kernel's part of the block");
  }

  void operand(const od_operand_spec& x, uint32_t index) const {
    named("an operand", x.name);
    most("axis", x.n_axes, OD_MAX_AXES);
    require(x.axes != nullptr || x.n_axes == 0, std::string(x.name) + ": its axes are null");
    require(x.role < OD_ROLES, std::string(x.name) + ": role " + std::to_string(x.role));
    require(x.walk < OD_WALKS, std::string(x.name) + ": walk " + std::to_string(x.walk));
    require(index == 0 || x.role >= spec_.operands[index - 1].role, std::string(x.name) + ": inputs come before outputs");
    require(x.dtypes != 0 && x.dtypes >> (sizeof od_dtypes / sizeof *od_dtypes) == 0, std::string(x.name) + ": element types that nobody knows");
    require(x.like < spec_.n_operands, std::string(x.name) + ": like operand " + std::to_string(x.like) + ", which is not there");
    words(x.name, x.at, x.role == OD_ROLE_OUTPUT ? 1 : 1 + params::kAxisWords * x.n_axes);
    const uint32_t dims = spec_.n_dims == 0 ? OD_MAX_DIMS : spec_.n_dims;
    for (uint32_t i = 0; i < x.n_axes; ++i) {
      const od_axis_spec& axis = x.axes[i];
      named("an axis", axis.name);
      const bool special = axis.dim == OD_ALONG_NOTHING || (axis.dim == OD_ALONG_REDUCTION && spec_.reduces != 0);
      require(special || axis.dim < dims, std::string(x.name) + " along " + axis.name + ": dimension " + std::to_string(axis.dim));
    }
  }

  void scalar(const od_scalar_spec& s) const {
    named("a scalar", s.name);
    words(s.name, s.at, 1);
    require(s.type < OD_SCALARS, std::string(s.name) + ": type " + std::to_string(s.type));
    require(s.of < spec_.n_operands, std::string(s.name) + ": of operand " + std::to_string(s.of) + ", which is not there");
    require(s.low <= s.high, std::string(s.name) + ": a lowest value above the highest");
    if (s.type != OD_SCALAR_FUNCTION) return;
    require(s.functions != nullptr && s.low >= 0 && s.high <= 0xFFFF, std::string(s.name) + ": a table of functions with codes from 0 on");
    for (uint32_t code = 0; code <= s.high; ++code) function(s, s.functions[code]);
  }

  void function(const od_scalar_spec& s, const od_function_spec& f) const {
    named("a function", f.name);
    for (uint32_t i = 0; i < OD_WORK_TERMS; ++i) {
      const bool counted = std::isfinite(f.work[i]) && f.work[i] >= 0 && std::isfinite(f.finish[i]) && f.finish[i] >= 0;
      require(counted, std::string(s.name) + ", function " + f.name + ": " + od_work[i] + " are counted in finite numbers from 0 on");
    }
  }

  bool names_something(const od_step& step) const {
    const auto axis = [&] { return step.a < spec_.n_operands && step.b < spec_.operands[step.a].n_axes; };
    switch (step.op) {
      case OD_OP_TILE: return step.a < spec_.n_dims;
      case OD_OP_SCALAR: return step.a < spec_.n_scalars;
      case OD_OP_WORK: case OD_OP_FINISH: return step.a < spec_.n_scalars && spec_.scalars[step.a].type == OD_SCALAR_FUNCTION && step.b < spec_.n_operands;
      case OD_OP_COUNT: case OD_OP_STRIDE: return axis();
      case OD_OP_RUN: case OD_OP_STEP: case OD_OP_BYTES: case OD_OP_PRESENT: return step.a < spec_.n_operands;
      case OD_OP_DEVICE: return step.a < spec_.n_constants;
      case OD_OP_DEVICE_BY_DTYPE:
        return step.a < spec_.n_constants && step.b < spec_.n_operands && (step.c == OD_NO_OPERAND || step.c < spec_.n_operands);
      case OD_OP_DEVICE_BY_SUMS: return step.a < spec_.n_constants && step.b < spec_.n_operands;
      default: return step.op < sizeof od_op_takes / sizeof *od_op_takes;
    }
  }

  // Every step has what it takes, and one value is left.
  void formula(const char* name, const od_step* steps, uint32_t count) const {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string where = std::string(name) + ", step " + std::to_string(i);
      require(names_something(steps[i]), where + ": instruction " + std::to_string(steps[i].op) + " that names nothing of this kernel");
      require(steps[i].op != OD_OP_NUMBER || std::isfinite(steps[i].value), where + ": a number that is not finite");
      require(depth >= od_op_takes[steps[i].op], where + ": too few values before it");
      depth += 1 - od_op_takes[steps[i].op];
      require(depth <= OD_MAX_STACK, where + ": a stack deeper than " + std::to_string(OD_MAX_STACK));
    }
    require(depth == 1, std::string(name) + ": it leaves " + counted(depth, "value"));
  }

  const od_kernel_spec& spec_;
  std::string where_;
};

void check_sizes(const od_library& library, const std::string& where) {
  const struct {
    const char* name;
    uint32_t given;
    size_t accepted;
  } sizes[] = {{"od_library", library.library_bytes, sizeof(od_library)},
               {"od_kernel", library.kernel_bytes, sizeof(od_kernel)},
               {"od_kernel_spec", library.spec_bytes, sizeof(od_kernel_spec)},
               {"od_setup", library.setup_bytes, sizeof(od_setup)},
               {"od_call", library.call_bytes, sizeof(od_call)}};
  for (const auto& size : sizes) {
    if (size.given != size.accepted) {
      refuse(OD_SIZE_MISMATCH, where + ": its " + size.name + " has " + counted(size.given, "byte") + ", ours " + std::to_string(size.accepted) +
                                   ": was it compiled with another onedispatch/kernel.h?");
    }
  }
}

}  // namespace

std::string digest_text(uint32_t digest) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08X", digest);
  return text;
}

std::string names_of(const std::vector<const od_kernel*>& kernels) {
  std::string text;
  for (const od_kernel* kernel : kernels) {
    text += (text.empty() ? "" : ", ") + std::string(kernel->spec->name) + " (digest " + digest_text(kernel->spec->digest) + ")";
  }
  return text.empty() ? "none" : text;
}

void check_library(const od_library* library) {
  if (library == nullptr) refuse(OD_NULL_POINTER, "kernel library: null");
  if (library->abi_version != OD_KERNEL_ABI_VERSION) {  // what follows may lie elsewhere
    refuse(OD_ABI_VERSION, "kernel library: version " + std::to_string(library->abi_version) + " of the kernel interface; accepted: " +
                               std::to_string(OD_KERNEL_ABI_VERSION));
  }
  const bool same = library->library_bytes == sizeof(od_library);
  const std::string name = same && library->name != nullptr ? library->name : "without a name";
  check_sizes(*library, "kernel library " + name);
  if (library->name == nullptr || (library->kernels == nullptr && library->n_kernels != 0)) {
    refuse(OD_NULL_POINTER, "kernel library " + name + ": its name or its table of kernels is null");
  }
  for (uint32_t i = 0; i < library->n_kernels; ++i) {
    const od_kernel* kernel = library->kernels[i];
    const std::string where = "kernel library " + name + ", kernel " + std::to_string(i);
    if (kernel == nullptr || kernel->spec == nullptr || kernel->spec->name == nullptr) refuse(OD_NULL_POINTER, where + ": it, its declaration or its name is null");
    if (kernel->prepare == nullptr || kernel->run == nullptr || kernel->release == nullptr) {
      refuse(OD_NULL_POINTER, where + " (" + kernel->spec->name + "): prepare, run or release is null");
    }
    Declaration(name, *kernel->spec).check();
  }
}

void KernelRegistry::add(const od_library* library) {
  check_library(library);
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.library == library; })) return;
  std::vector<Entry> grown = entries_;  // all of the library or nothing
  for (uint32_t i = 0; i < library->n_kernels; ++i) {
    const od_kernel_spec& spec = *library->kernels[i]->spec;
    for (const Entry& entry : grown) {
      const od_kernel_spec& other = *entry.kernel->spec;
      if (std::strcmp(other.name, spec.name) != 0 && other.digest != spec.digest) continue;
      refuse(OD_NAME_CONFLICT, std::string("kernel ") + spec.name + " (digest " + digest_text(spec.digest) + ") of library " + library->name +
                                   " has the name or the digest of " + other.name + " (digest " + digest_text(other.digest) + ") of library " +
                                   entry.library->name);
    }
    grown.push_back({library->kernels[i], library});
  }
  entries_ = std::move(grown);
}

const od_kernel* KernelRegistry::find(uint32_t digest) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.kernel->spec->digest == digest) return entry.kernel;
  }
  return nullptr;
}

std::vector<const od_kernel*> KernelRegistry::all() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<const od_kernel*> kernels;
  for (const Entry& entry : entries_) kernels.push_back(entry.kernel);
  return kernels;
}

KernelRegistry& registry() {
  static KernelRegistry all;
  static const bool filled = (all.add(&own_library()), true);
  static_cast<void>(filled);
  return all;
}

std::vector<const od_kernel*> load_library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) probe_library(path, body_limit());
  // Whoever asks for the same file again gets the same handle; it is never closed.
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) refuse(OD_NOT_FOUND, "kernel library " + path + ": " + dlerror());
  void* symbol = dlsym(handle, OD_KERNEL_LIBRARY_SYMBOL);
  if (symbol == nullptr) refuse(OD_NOT_FOUND, "kernel library " + path + ": it has no function " OD_KERNEL_LIBRARY_SYMBOL);
  const auto function = reinterpret_cast<od_kernel_library_function>(symbol);
  const od_library* library = nullptr;
  contained("kernel library " + path, OD_KERNEL_LIBRARY_SYMBOL, symbol, [&] { library = function(); }, body_limit());
  try {
    registry().add(library);
  } catch (const KernelError& error) {
    refuse(error.status, path + ": " + error.what);
  }
  return {library->kernels, library->kernels + library->n_kernels};
}

}  // namespace onedispatch
