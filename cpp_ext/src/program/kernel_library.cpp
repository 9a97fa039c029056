// SPDX-License-Identifier: Apache-2.0
#include "onedispatch/kernel_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "signal_guard.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_tables.h"
#include "onedispatch/text.h"
#include "owned_kernel.h"
#include "preload_check.h"

namespace onedispatch {

namespace {

[[noreturn]] void refuse(od_status status, const std::string& text) { throw KernelError{status, text}; }

// What is wrong with one declaration; every message begins with the kernel's name.
class Declaration {
 public:
  Declaration(const std::string& where, const od_kernel_spec& spec) : spec_(spec), where_(where + ", kernel " + spec.name) {}

  void check() const {
    counts();
    named("the kernel", spec_.name);
    for (uint32_t i = 0; i < spec_.n_dims; ++i) named("a dimension", spec_.dims[i]);
    for (uint32_t i = 0; i < spec_.n_operands; ++i) operand(spec_.operands[i], i);
    require(spec_.n_operands > 0 && spec_.operands[spec_.n_operands - 1].role == OD_ROLE_OUTPUT, "the last operand is no output");
    for (uint32_t i = 0; i < spec_.n_scalars; ++i) scalar(spec_.scalars[i]);
    for (uint32_t i = 0; i < spec_.n_constants; ++i) named("a device constant", spec_.constants[i]);
    if (spec_.members != 0) members();
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
    std::string_view name = spec_.name;
    const std::string_view first = "@1";  // such a version need not be written
    if (name.size() > first.size() && name.substr(name.size() - first.size()) == first) name.remove_suffix(first.size());
    require(name.size() <= OD_MAX_NAME_BYTES, "a name of more than " + counted(OD_MAX_NAME_BYTES, "byte"));
    most("dimension", spec_.n_dims, OD_MAX_DIMS);
    most("operand", spec_.n_operands, OD_MAX_OPERANDS);
    most("scalar", spec_.n_scalars, spec_.members != 0 ? OD_MAX_SCALARS : OD_MAX_OWN_SCALARS);
    uint32_t own = 0;
    for (uint32_t i = 0; i < spec_.n_scalars && spec_.scalars != nullptr; ++i) own += spec_.scalars[i].hidden == 0 ? 1 : 0;
    most("scalar", own, OD_MAX_OWN_SCALARS);
    most("word", spec_.block_words, params::kMaxWords);
    const uint32_t unit = params::kInstructionBytes;
    require(spec_.prints < OD_PRINTS, "prints: " + std::to_string(spec_.prints) + "; accepted: 0 to " + std::to_string(OD_PRINTS - 1));
    require(spec_.joins < OD_JOINS, "joins: " + std::to_string(spec_.joins) + "; accepted: 0 to " + std::to_string(OD_JOINS - 1));
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

  uint32_t words_of(const od_operand_spec& x) const {
    if (spec_.members != 0) return 2 + params::kMemberAxisWords * x.n_axes;
    return x.role == OD_ROLE_OUTPUT ? 1 : 1 + params::kAxisWords * x.n_axes;
  }

  void members() const {
    require(spec_.n_dims == 0 && spec_.reduces == 0, "dimensions or a reduction of a member kernel, whose blocks say the index space");
    require(spec_.words >= params::kArgsAt + 2 * OD_MAX_DIMS, "too few words for the index space of its instances");
    for (uint32_t i = 0; i < spec_.n_operands; ++i) {
      if (spec_.operands[i].role != OD_ROLE_OUTPUT) continue;
      const auto fills = [i](const od_step& step) { return step.op == OD_OP_FILLED && step.a == i; };
      require(std::any_of(spec_.cost, spec_.cost + spec_.n_cost, fills), std::string(spec_.operands[i].name) + ": the cost has nothing for filling its chunk");
    }
  }

  void operand(const od_operand_spec& x, uint32_t index) const {
    named("an operand", x.name);
    most("axis", x.n_axes, OD_MAX_AXES);
    require(x.axes != nullptr || x.n_axes == 0, std::string(x.name) + ": its axes are null");
    require(x.role < OD_ROLES, std::string(x.name) + ": role " + std::to_string(x.role));
    require(x.walk < OD_WALKS, std::string(x.name) + ": walk " + std::to_string(x.walk));
    require(index == 0 || x.role >= spec_.operands[index - 1].role, std::string(x.name) + ": inputs come before outputs");
    require(x.dtypes != 0 && x.dtypes >> (sizeof od_dtypes / sizeof *od_dtypes) == 0, std::string(x.name) + ": unknown element types");
    require(x.like < spec_.n_operands, std::string(x.name) + ": like operand " + std::to_string(x.like) + ", which is not there");
    words(x.name, x.at, words_of(x));
    for (const uint32_t scalar : {x.pad_scalar, x.fill_scalar}) {
      require(scalar == OD_NO_SCALAR || (spec_.members != 0 && scalar < spec_.n_scalars), std::string(x.name) + ": pad or fill by scalar " + std::to_string(scalar) + ", which is not there");
    }
    require(x.least_rank <= x.n_axes && (spec_.members == 0 || x.n_axes <= OD_MAX_DIMS), std::string(x.name) + ": rank " + std::to_string(x.least_rank) + " to " + std::to_string(x.n_axes));
    const uint32_t dims = spec_.n_dims == 0 ? OD_MAX_DIMS : spec_.n_dims;
    for (uint32_t i = 0; i < x.n_axes; ++i) {
      const od_axis_spec& axis = x.axes[i];
      named("an axis", axis.name);
      if (spec_.members != 0) {
        require(axis.dim == OD_ALONG_BLOCK, std::string(x.name) + " along " + axis.name + ": the blocks of a member kernel say what it follows");
        continue;
      }
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
    const bool whole = f.code_bytes != 0 && f.code_bytes % params::kInstructionBytes == 0;
    const bool linked = f.digest == 0 ? f.code_bytes == 0 : f.digest >> OD_MARK_SHIFT != 0 && whole;
    require(linked, std::string(s.name) + ", function " + f.name + ": digest " + std::to_string(f.digest) + ", " +
                        counted(f.code_bytes, "byte") + " of code; accepted: neither, or both, in whole instructions");
  }

  bool names_something(const od_step& step) const {
    const auto axis = [&] { return step.a < spec_.n_operands && step.b < spec_.operands[step.a].n_axes; };
    switch (step.op) {
      case OD_OP_TILE: return step.a < spec_.n_dims;
      case OD_OP_SCALAR: return step.a < spec_.n_scalars;
      case OD_OP_WORK: case OD_OP_FINISH: return step.a < spec_.n_scalars && spec_.scalars[step.a].type == OD_SCALAR_FUNCTION && step.b < spec_.n_operands;
      case OD_OP_COUNT: case OD_OP_STRIDE: return axis();
      case OD_OP_RUN: case OD_OP_STEP: case OD_OP_BYTES: case OD_OP_PRESENT: case OD_OP_FILLED: return step.a < spec_.n_operands;
      case OD_OP_DEVICE: return step.a < spec_.n_constants;
      case OD_OP_DEVICE_BY_DTYPE:
        return step.a < spec_.n_constants && step.b < spec_.n_operands && (step.c == OD_NO_OPERAND || step.c < spec_.n_operands);
      case OD_OP_DEVICE_BY_SUMS: return step.a < spec_.n_constants && step.b < spec_.n_operands;
      default: return step.op < sizeof od_op_takes / sizeof *od_op_takes;
    }
  }

  // Every step has what it takes, and one value is left.
  void formula(const char* name, const od_step* steps, uint32_t count) const {
    uint32_t depth = 0, kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string where = std::string(name) + ", step " + std::to_string(i);
      require(names_something(steps[i]), where + ": instruction " + std::to_string(steps[i].op) + " that names nothing of this kernel");
      require(steps[i].op != OD_OP_NUMBER || std::isfinite(steps[i].value), where + ": a number that is not finite");
      if (steps[i].op == OD_OP_KEEP) require(steps[i].a == kept++ && kept <= OD_MAX_KEPT, where + ": values are kept as 0, 1, ... " + std::to_string(OD_MAX_KEPT - 1));
      if (steps[i].op == OD_OP_KEPT) require(steps[i].a < kept, where + ": value " + std::to_string(steps[i].a) + ", which was not kept before");
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

[[noreturn]] void refuse_taken(const od_kernel_spec& spec, const std::string& origin, const od_kernel_spec& other, const std::string& other_origin) {
  refuse(OD_NAME_CONFLICT, std::string("kernel ") + spec.name + " (digest " + digest_text(spec.digest) + ") of " + origin + " has the name or the digest of " +
                               other.name + " (digest " + digest_text(other.digest) + ") of " + other_origin);
}

}  // namespace

std::string digest_text(uint32_t digest) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08X", digest);
  return text;
}

std::string names_of(const std::vector<KernelPtr>& kernels) {
  std::string text;
  for (const KernelPtr& kernel : kernels) {
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
  if (library->name == nullptr || (library->kernels == nullptr && library->n_kernels != 0) || (library->plugins == nullptr && library->n_plugins != 0)) {
    refuse(OD_NULL_POINTER, "kernel library " + name + ": its name or its table of kernels or plug-ins is null");
  }
  for (uint32_t i = 0; i < library->n_kernels; ++i) {
    const od_kernel* kernel = library->kernels[i];
    const std::string where = "kernel library " + name + ", kernel " + std::to_string(i);
    if (kernel == nullptr || kernel->spec == nullptr || kernel->spec->name == nullptr) refuse(OD_NULL_POINTER, where + ": it, its declaration or its name is null");
    if (kernel->prepare == nullptr || kernel->run == nullptr || kernel->release == nullptr) {
      refuse(OD_NULL_POINTER, where + " (" + kernel->spec->name + "): prepare, run or release is null");
    }
    check_declaration("library " + name, *kernel->spec);
  }
}

void check_declaration(const std::string& where, const od_kernel_spec& spec) { Declaration(where, spec).check(); }

void KernelRegistry::add(const od_library* library, const std::string& file) {
  check_library(library);
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.library == library; })) return;
  std::vector<Entry> grown = entries_;  // all of the library or nothing
  const std::string origin = std::string("library ") + library->name + (file.empty() ? "" : ", " + file);
  for (uint32_t i = 0; i < library->n_kernels; ++i) {
    const od_kernel_spec& spec = *library->kernels[i]->spec;
    for (const Entry& entry : grown) {
      if (std::strcmp(entry.kernel->spec->name, spec.name) == 0 || entry.kernel->spec->digest == spec.digest) refuse_taken(spec, origin, *entry.kernel->spec, entry.origin);
    }
    grown.push_back({KernelPtr(KernelPtr(), library->kernels[i]), library, nullptr, origin});
  }
  entries_ = std::move(grown);
}

void KernelRegistry::add(std::shared_ptr<OwnedKernel> kernel, const std::string& origin) {
  const od_kernel_spec& spec = *kernel->kernel().spec;
  check_declaration(origin, spec);
  std::vector<Entry> before;  // what is replaced ends after the lock does
  {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    for (const Entry& entry : entries_) {
      const bool named = std::strcmp(entry.kernel->spec->name, spec.name) == 0;
      if ((named && entry.library != nullptr) || (!named && entry.kernel->spec->digest == spec.digest)) refuse_taken(spec, origin, *entry.kernel->spec, entry.origin);
    }
    before = entries_;
    entries_.clear();
    for (Entry entry : before) {
      const bool same = entry.kernel->spec->digest == spec.digest;
      if (same) entry.owned->set_body(kernel->body());
      entry.replaced = entry.replaced || std::strcmp(entry.kernel->spec->name, spec.name) == 0;
      if (!same) entries_.push_back(std::move(entry));
    }
    entries_.push_back({KernelPtr(kernel, &kernel->kernel()), nullptr, kernel, origin});
  }
}

bool KernelRegistry::remove(const std::string& name) {
  std::vector<Entry> gone;
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto kept = std::stable_partition(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.owned == nullptr || name != entry.kernel->spec->name; });
  gone.assign(std::make_move_iterator(kept), std::make_move_iterator(entries_.end()));
  entries_.erase(kept, entries_.end());
  return !gone.empty();
}

void KernelRegistry::tell_searched(const std::string& text) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  searched_ = text;
}

std::string KernelRegistry::searched() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return searched_;
}

KernelPtr KernelRegistry::find(uint32_t digest) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.kernel->spec->digest == digest) return entry.kernel;
  }
  return nullptr;
}

std::vector<KernelPtr> KernelRegistry::all() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<KernelPtr> kernels;
  for (const Entry& entry : entries_) {
    if (!entry.replaced) kernels.push_back(entry.kernel);
  }
  return kernels;
}

std::vector<KernelRegistry::Row> KernelRegistry::rows() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<Row> rows;
  for (const Entry& entry : entries_) {
    if (!entry.replaced) rows.push_back({entry.kernel->spec->name, entry.origin, entry.kernel->spec->digest});
  }
  return rows;
}

KernelRegistry& registry() {
  // Never destroyed: what its kernels hold may need what has ended before.
  static KernelRegistry& all = *new KernelRegistry;
  static const bool filled = (all.add(&own_library()), true);
  static_cast<void>(filled);
  return all;
}

void* library_symbol(const std::string& path, const char* name) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) check_preload(path, body_limit());
  // Every load of the same file gets the same handle, which is never closed.
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) refuse(OD_NOT_FOUND, "kernel library " + path + ": " + dlerror());
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) refuse(OD_NOT_FOUND, "kernel library " + path + ": it has no function " + name);
  return symbol;
}

const od_library* open_library(const std::string& path) {
  void* symbol = library_symbol(path, OD_KERNEL_LIBRARY_SYMBOL);
  const auto function = reinterpret_cast<od_kernel_library_function>(symbol);
  const od_library* library = nullptr;
  call_or_throw("kernel library " + path, OD_KERNEL_LIBRARY_SYMBOL, symbol, [&] { library = function(); }, body_limit());
  try {
    check_library(library);
  } catch (const KernelError& error) {
    refuse(error.status, path + ": " + error.what);
  }
  return library;
}

std::vector<const od_kernel*> load_library(const std::string& path) {
  const od_library* library = open_library(path);
  try {
    registry().add(library, path);
  } catch (const KernelError& error) {
    refuse(error.status, path + ": " + error.what);
  }
  return {library->kernels, library->kernels + library->n_kernels};
}

}  // namespace onedispatch
