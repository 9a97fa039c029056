// SPDX-License-Identifier: Apache-2.0
// Plug-ins of loaded libraries on the side of the host: their declarations, and instances for nodes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onedispatch/kernel_library.h"
#include "onedispatch/plugin.h"

namespace onedispatch {

// Loads the shared object at `path` for the rest of the process; its library, with plug-ins that were judged:
// structures, counts, tables and texts are there. What the declarations say is judged by those who read them.
// Throws KernelError.
const od_library& open_plugins(const std::string& path);

// Reads the declarations of a library that is sound otherwise. Throws KernelError for the first that is not.
void check_plugins(const od_library& library);

// The functions of plug-in `number` of the library at `path`, as a kernel that has no declaration.
const od_kernel& plugin_functions(const std::string& path, uint32_t number);

// What od_kernel_names of the library says for `device`, by the question for the number and the one for names.
std::vector<std::string> plugin_names(const std::string& path, const std::string& device);

// A node with memory of its own.
struct NodeData {
  struct Tensor {
    od_node_tensor tensor{};
    std::string value;
  };
  struct Attribute {
    std::string name, text;
    uint32_t type = OD_ATTRIBUTE_INTS;
    std::vector<int64_t> ints;
    std::vector<double> floats;
  };
  std::string name, kernel, device;
  uint32_t max_cores = 1;
  std::vector<Tensor> inputs, outputs;
  std::vector<Attribute> attributes;
  std::vector<std::optional<double>> scalars;  // in the order of declaration
};

// What a plug-in filled, and the values of its auxiliary tensors (none of scratch).
struct Instance {
  od_instance filled{};
  std::vector<std::string> aux;
};

// Has plug-in `number` place the node; with larger buffers where it asks for them, OD_AUX_TRIES times at most.
// Throws KernelError with the plug-in's status and text, and for counts and sizes that it made up.
Instance instantiate(const std::string& path, uint32_t number, const NodeData& node);

}  // namespace onedispatch
