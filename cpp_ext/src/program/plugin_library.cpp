// SPDX-License-Identifier: Apache-2.0
#include "plugin_library.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "signal_guard.h"
#include "onedispatch/kernel_tables.h"
#include "onedispatch/text.h"

namespace onedispatch {

namespace {

constexpr uint32_t kMostOperands = 2 * OD_MAX_OPERANDS, kMostScalars = 256, kMostTexts = 256;  // more are no counts
constexpr uint64_t kFirstCapacity = 4096, kMostAuxBytes = uint64_t{1} << 26;
constexpr size_t kGuardBytes = 64;  // behind every buffer: who writes there wrote too much
constexpr char kGuard = 0x5A;

[[noreturn]] void refuse(od_status status, const std::string& text) { throw KernelError{status, text}; }

std::string name_of(const od_plugin& plugin) { return std::string(plugin.declared->name, strnlen(plugin.declared->name, OD_MAX_NAME_BYTES + 1)); }

// A call of the library, in which nothing with a destructor may live; crashes, exceptions and calls without end are
// errors.
template <class Function, class Call>
od_status called(const std::string& where, const char* name, Function function, Call call) {
  od_status status = OD_OK;
  call_or_throw(where, name, reinterpret_cast<const void*>(function), [&] { status = call(); }, body_limit());
  return status;
}

// What a status other than OD_OK means, with the text that came with it.
[[noreturn]] void answered(const std::string& where, od_status status, const od_error& error) {
  for (const auto& row : od_statuses) {
    if (row.code != status) continue;
    const std::string text(error.text, strnlen(error.text, sizeof error.text));
    refuse(status, where + ": " + (text.empty() ? row.summary : text));
  }
  refuse(OD_RUNTIME_FAILURE, where + ": given status " + std::to_string(status) + "; accepted: those of onedispatch/kernel_codes.h");
}

// ---- what a library declares ----------------------------------------------------------------------------

class Declared {
 public:
  Declared(const std::string& library, uint32_t number, const od_plugin* plugin) : plugin_(plugin), where_("kernel library " + library + ", plug-in " + std::to_string(number)) {}

  void check() {
    there(plugin_, "the plug-in");
    sizes();
    there(plugin_->declared, "its declaration");
    const od_declared& d = *plugin_->declared;
    text(d.name, "its name");
    where_ += " (" + name_of(*plugin_) + ")";
    require(plugin_->instantiate != nullptr && plugin_->prepare != nullptr && plugin_->run != nullptr && plugin_->release != nullptr, OD_NULL_POINTER,
            "instantiate, prepare, run or release is null");
    if (d.summary != nullptr) text(d.summary, "its summary");
    require(d.prints <= OD_PRINT_ONE, OD_DECLARATION_INVALID, "prints: given " + std::to_string(d.prints) + "; accepted: OD_PRINT_...");
    table(d.operands, d.n_operands, kMostOperands, "operand");
    table(d.scalars, d.n_scalars, kMostScalars, "scalar");
    table(d.devices, d.n_devices, kMostTexts, "device");
    for (uint32_t i = 0; i < d.n_operands; ++i) operand(d.operands[i], i);
    for (uint32_t i = 0; i < d.n_scalars; ++i) scalar(d.scalars[i], i);
    for (uint32_t i = 0; i < d.n_devices; ++i) text(d.devices[i], "device " + std::to_string(i));
  }

 private:
  void require(bool holds, od_status status, const std::string& otherwise) const {
    if (!holds) refuse(status, where_ + ": " + otherwise);
  }
  void there(const void* pointer, const std::string& what) const { require(pointer != nullptr, OD_NULL_POINTER, what + " is null"); }

  void sizes() const {
    const struct {
      const char* name;
      uint32_t given;
      size_t accepted;
    } all[] = {{"od_plugin", plugin_->plugin_bytes, sizeof(od_plugin)},
               {"od_declared", plugin_->declared_bytes, sizeof(od_declared)},
               {"od_node", plugin_->node_bytes, sizeof(od_node)},
               {"od_instance", plugin_->instance_bytes, sizeof(od_instance)}};
    for (const auto& one : all) {
      require(one.given == one.accepted, OD_SIZE_MISMATCH,
              std::string("its ") + one.name + " has " + counted(one.given, "byte") + ", ours " + std::to_string(one.accepted) + ": was it compiled with another onedispatch/plugin.h?");
    }
  }
  // A text that ends, of printable characters; how names look is judged where kernels are declared.
  void text(const char* given, const std::string& what) const {
    there(given, what);
    const size_t length = strnlen(given, OD_ERROR_BYTES);
    require(length < OD_ERROR_BYTES, OD_DECLARATION_INVALID, what + ": given a text without an end; accepted: at most " + counted(OD_ERROR_BYTES - 1, "byte") + " and a zero byte");
    require(length != 0, OD_DECLARATION_INVALID, what + " is empty");
  }
  template <class Row>
  void table(const Row* rows, uint32_t count, uint32_t most, const char* what) const {
    require(count <= most, OD_DECLARATION_INVALID, "given " + counted(count, what) + "; accepted: at most " + std::to_string(most));
    if (count != 0) there(rows, std::string("its table of ") + what + "s");
  }
  void operand(const od_declared_operand& x, uint32_t index) const {
    text(x.name, "the name of operand " + std::to_string(index));
    const std::string name = x.name;
    const bool known = x.role < OD_ROLES && (x.scratch == 0 || (x.scratch == 1 && x.role == OD_ROLE_AUX));
    require(known, OD_DECLARATION_INVALID, name + ": given role " + std::to_string(x.role) + ", scratch " + std::to_string(x.scratch) + "; accepted: OD_ROLE_..., scratch 1 of OD_ROLE_AUX alone");
    require(x.dtypes >> OD_DTYPES == 0, OD_DECLARATION_INVALID, name + ": given element types of the mask " + std::to_string(x.dtypes) + "; accepted: bits of OD_DTYPE_...");
    require(x.quantised <= OD_QUANTISED_ALWAYS, OD_DECLARATION_INVALID, name + ": given quantised " + std::to_string(x.quantised) + "; accepted: OD_QUANTISED_...");
    if (x.like != nullptr) text(x.like, name + ": like");
    if (index == 0) return;
    const od_declared_operand& before = plugin_->declared->operands[index - 1];
    const bool ordered = x.role > before.role || (x.role == before.role && x.scratch >= before.scratch);
    require(ordered, OD_DECLARATION_INVALID, name + ": given behind " + before.name + "; accepted: inputs, auxiliary tensors, scratch, outputs, in this order");
  }
  void scalar(const od_declared_scalar& s, uint32_t index) const {
    text(s.name, "the name of scalar " + std::to_string(index));
    const bool known = s.type == OD_SCALAR_U32 || s.type == OD_SCALAR_I32 || s.type == OD_SCALAR_F32;
    require(known, OD_DECLARATION_INVALID, std::string(s.name) + ": given type " + std::to_string(s.type) + "; accepted: OD_SCALAR_U32, OD_SCALAR_I32, OD_SCALAR_F32");
  }

  const od_plugin* plugin_;
  std::string where_;
};

struct Opened {
  const od_library* library = nullptr;
  std::vector<od_kernel> functions;
};

const Opened& opened(const std::string& path) {
  static std::mutex mutex;
  static std::map<const od_library*, Opened> all;
  const od_library* library = open_library(path);
  const std::lock_guard<std::mutex> lock(mutex);
  Opened& found = all[library];
  if (found.library != nullptr) return found;
  try {
    check_plugins(*library);
  } catch (const KernelError& error) {
    refuse(error.status, path + ": " + error.what);
  }
  std::vector<od_kernel> functions;
  for (uint32_t i = 0; i < library->n_plugins; ++i) {
    const od_plugin* plugin = library->plugins[i];
    functions.push_back({nullptr, plugin->prepare, plugin->check, plugin->run, plugin->release});
  }
  found = {library, std::move(functions)};
  return found;
}

const od_plugin& plugin_at(const std::string& path, uint32_t number) {
  const od_library& library = *opened(path).library;
  if (number >= library.n_plugins) {
    refuse(OD_NOT_FOUND, path + ": given plug-in " + std::to_string(number) + "; it has " + counted(library.n_plugins, "plug-in"));
  }
  return *library.plugins[number];
}

// ---- instances -----------------------------------------------------------------------------------------------

// The arrays behind an od_node.
struct Handed {
  std::vector<od_node_tensor> inputs, outputs;
  std::vector<od_attribute> attributes;
  od_node node{};

  explicit Handed(const NodeData& from) {
    const auto all = [](const std::vector<NodeData::Tensor>& tensors, std::vector<od_node_tensor>& to) {
      for (const NodeData::Tensor& one : tensors) {
        to.push_back(one.tensor);
        if (one.tensor.value_bytes != 0) to.back().value = one.value.data();
      }
    };
    all(from.inputs, inputs);
    all(from.outputs, outputs);
    for (const NodeData::Attribute& one : from.attributes) {
      const size_t count = one.type == OD_ATTRIBUTE_INTS ? one.ints.size() : one.type == OD_ATTRIBUTE_FLOATS ? one.floats.size() : one.text.size();
      attributes.push_back({one.name.c_str(), one.type, static_cast<uint32_t>(count), one.ints.data(), one.floats.data(), one.text.c_str()});
    }
    node = {from.name.c_str(), from.kernel.c_str(), from.device.c_str(), from.max_cores,
            inputs.data(), static_cast<uint32_t>(inputs.size()), outputs.data(), static_cast<uint32_t>(outputs.size()),
            attributes.data(), static_cast<uint32_t>(attributes.size())};
  }
};

class Instantiation {
 public:
  Instantiation(const std::string& path, const od_plugin& plugin, const NodeData& node)
      : plugin_(plugin), data_(node), handed_(node), kernel_(path + ": kernel " + name_of(plugin)), where_(kernel_ + ": instantiate") {
    for (uint32_t i = 0; i < plugin.declared->n_operands; ++i) {
      const od_declared_operand& x = plugin.declared->operands[i];
      if (x.role == OD_ROLE_AUX) scratch_.push_back(x.scratch != 0);
      if (x.role == OD_ROLE_OUTPUT) ++outputs_;
    }
    capacity_.assign(scratch_.size(), kFirstCapacity);
  }

  Instance run() {
    for (uint32_t tries = 1;; ++tries) {
      fill();
      od_error error;
      std::memset(&error, 0, sizeof error);
      const od_status status = called(kernel_, "instantiate", plugin_.instantiate, [&] { return plugin_.instantiate(&handed_.node, &instance_, &error); });
      check_buffers();
      if (status == OD_OK) return finished();
      if (status != OD_AUX_BUFFER_TOO_SMALL) answered(where_, status, error);
      enlarge(tries);
    }
  }

 private:
  void fill() {
    instance_ = {};
    instance_.n_outputs = outputs_;
    instance_.n_aux = static_cast<uint32_t>(scratch_.size());
    instance_.preferred_split = OD_NO_DIM;
    for (auto& operand : instance_.access) std::fill(std::begin(operand), std::end(operand), od_interval{OD_WHOLE, 1, 1, 0, 0});
    for (size_t i = 0; i < data_.scalars.size() && i < OD_MAX_SCALARS; ++i) {
      if (!data_.scalars[i].has_value()) continue;
      instance_.scalars[i] = *data_.scalars[i];
      if (i < 32) instance_.scalar_mask |= 1u << i;
    }
    buffers_.assign(scratch_.size(), {});
    for (size_t i = 0; i < scratch_.size(); ++i) {
      if (scratch_[i]) {
        instance_.scratch_mask |= 1u << i;
        continue;
      }
      buffers_[i].assign(capacity_[i], 0);
      buffers_[i].append(kGuardBytes, kGuard);
      instance_.aux[i].data = buffers_[i].data();
      instance_.aux[i].capacity = capacity_[i];
    }
  }

  void check_buffers() const {
    for (size_t i = 0; i < scratch_.size(); ++i) {
      if (scratch_[i]) continue;
      const auto guard = buffers_[i].begin() + static_cast<std::ptrdiff_t>(capacity_[i]);
      if (!std::all_of(guard, buffers_[i].end(), [](char c) { return c == kGuard; })) {
        refuse(OD_ACCESS, where_ + ": auxiliary tensor " + std::to_string(i) + ": written beyond its buffer; accepted: " + counted(capacity_[i], "byte") +
                              ", and OD_AUX_BUFFER_TOO_SMALL where that is too little");
      }
    }
  }

  void enlarge(uint32_t tries) {
    bool more = false;
    for (size_t i = 0; i < scratch_.size(); ++i) {
      const uint64_t wanted = scratch_[i] ? 0 : instance_.aux[i].bytes;
      if (wanted > kMostAuxBytes) {
        refuse(OD_AUX_BUFFER_TOO_SMALL, where_ + ": auxiliary tensor " + std::to_string(i) + ": given " + counted(wanted, "byte") + "; accepted: at most " + std::to_string(kMostAuxBytes));
      }
      more = more || wanted > capacity_[i];
      capacity_[i] = std::max(capacity_[i], wanted);
    }
    if (!more) refuse(OD_AUX_BUFFER_TOO_SMALL, where_ + ": given OD_AUX_BUFFER_TOO_SMALL, with od_aux.bytes that its buffers have; accepted: bytes above the capacity");
    if (tries >= OD_AUX_TRIES) refuse(OD_AUX_BUFFER_TOO_SMALL, where_ + ": asked for larger buffers " + std::to_string(tries) + " times; accepted: " + std::to_string(OD_AUX_TRIES - 1));
  }

  void most(const std::string& what, uint64_t given, uint64_t accepted) const {
    if (given > accepted) refuse(OD_RUNTIME_FAILURE, where_ + ": " + what + ": given " + std::to_string(given) + "; accepted: at most " + std::to_string(accepted));
  }

  // What others count by is in bounds; what the values mean is judged with the placement.
  Instance finished() {
    if (instance_.n_outputs != outputs_ || instance_.n_aux != scratch_.size()) {
      refuse(OD_RUNTIME_FAILURE, where_ + ": n_outputs and n_aux: given " + std::to_string(instance_.n_outputs) + " and " + std::to_string(instance_.n_aux) +
                                     "; accepted: those of the declaration, " + std::to_string(outputs_) + " and " + std::to_string(scratch_.size()));
    }
    most("rank of the index space", instance_.rank, OD_MAX_DIMS);
    for (uint32_t i = 0; i < outputs_; ++i) {
      most("rank of output " + std::to_string(i), instance_.outputs[i].rank, OD_MAX_RANK);
      most("element type of output " + std::to_string(i), instance_.outputs[i].dtype, OD_DTYPES - 1);
    }
    Instance made;
    made.filled = instance_;
    for (size_t i = 0; i < scratch_.size(); ++i) {
      const od_aux& aux = instance_.aux[i];
      most("rank of auxiliary tensor " + std::to_string(i), aux.rank, OD_MAX_RANK);
      if (!scratch_[i]) most("bytes of auxiliary tensor " + std::to_string(i) + ", with OD_OK", aux.bytes, capacity_[i]);
      made.aux.push_back(scratch_[i] ? std::string() : buffers_[i].substr(0, aux.bytes));
    }
    return made;
  }

  const od_plugin& plugin_;
  const NodeData& data_;
  Handed handed_;
  std::string kernel_, where_;
  uint32_t outputs_ = 0;
  std::vector<bool> scratch_;  // of auxiliary tensors
  std::vector<uint64_t> capacity_;
  std::vector<std::string> buffers_;
  od_instance instance_{};
};

}  // namespace

void check_plugins(const od_library& library) {
  for (uint32_t i = 0; i < library.n_plugins; ++i) Declared(library.name, i, library.plugins[i]).check();
}

const od_library& open_plugins(const std::string& path) { return *opened(path).library; }

const od_kernel& plugin_functions(const std::string& path, uint32_t number) {
  static_cast<void>(plugin_at(path, number));
  return opened(path).functions[number];
}

std::vector<std::string> plugin_names(const std::string& path, const std::string& device) {
  const auto function = reinterpret_cast<od_kernel_names_function>(library_symbol(path, OD_KERNEL_NAMES_SYMBOL));
  uint32_t count = 0;
  const std::string where = path + ": " OD_KERNEL_NAMES_SYMBOL;
  const od_error silent{};
  const char* const of = device.c_str();
  od_status status = called(path, OD_KERNEL_NAMES_SYMBOL, function, [&] { return function(of, nullptr, &count); });
  if (status != OD_OK) answered(where, status, silent);
  if (count > kMostTexts) refuse(OD_RUNTIME_FAILURE, where + ": given " + counted(count, "name") + "; accepted: at most " + std::to_string(kMostTexts));
  std::vector<std::array<char, OD_NAME_BYTES>> names(count + 1, std::array<char, OD_NAME_BYTES>{});
  const uint32_t needed = count;
  auto* const room = reinterpret_cast<char(*)[OD_NAME_BYTES]>(names.data());
  status = called(path, OD_KERNEL_NAMES_SYMBOL, function, [&] { return function(of, room, &count); });
  if (status != OD_OK) answered(where, status, silent);
  if (count != needed) refuse(OD_RUNTIME_FAILURE, where + ": given " + counted(count, "name") + " after it had asked for room for " + std::to_string(needed));
  std::vector<std::string> found;
  for (uint32_t i = 0; i < count; ++i) found.emplace_back(names[i].data(), strnlen(names[i].data(), OD_MAX_NAME_BYTES));
  return found;
}

Instance instantiate(const std::string& path, uint32_t number, const NodeData& node) {
  return Instantiation(path, plugin_at(path, number), node).run();
}

}  // namespace onedispatch
