// SPDX-License-Identifier: Apache-2.0
// An operator case written by tests/cpp/make_cases.py: reads one, fills its inputs, and runs the
// transaction through the host API.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "onedispatch/kernel_params.h"
#include "onedispatch/xrt.h"

namespace onedispatch::operator_tests {

using Shape = std::vector<int64_t>;

// A tensor in ONNX's shape. Doubles hold every value of up to 32 bits exactly.
struct Tensor {
  std::string dtype;
  Shape shape;
  std::vector<double> values;
  std::vector<uint8_t> bytes;  // where given: the values as they are kept
  bool absent = false;

  int64_t size() const {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
  }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  size_t width() const {
    if (dtype == "int8" || dtype == "uint8" || dtype == "bool") return 1;
    if (dtype.find("64") != std::string::npos) return 8;
    return dtype.find("16") != std::string::npos ? 2 : 4;
  }
  int64_t index(const Shape& at) const {
    int64_t flat = 0;
    for (size_t d = 0; d < at.size(); ++d) flat = flat * shape[d] + at[d];
    return flat;
  }
  double operator()(const Shape& at) const { return values.at(static_cast<size_t>(index(at))); }
  double& operator()(const Shape& at) { return values.at(static_cast<size_t>(index(at))); }
  // The element that `at`, an index of a larger shape, reads by ONNX's broadcasting.
  double broadcast(const Shape& at) const {
    Shape own(shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
      own[d] = shape[d] == 1 ? 0 : at[at.size() - shape.size() + d];
    }
    return (*this)(own);
  }
};

// Calls use(index) for every index of `shape`, row-major.
inline void for_each(const Shape& shape, const std::function<void(const Shape&)>& use) {
  Shape at(shape.size(), 0);
  for (const int64_t extent : shape) {
    if (extent == 0) return;
  }
  for (;;) {
    use(at);
    size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

inline std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The value of an element of two bytes.
inline double load_two(const std::string& dtype, uint32_t code) {
  if (dtype == "uint16") return code;
  if (dtype == "int16") return static_cast<int16_t>(code);
  if (dtype != "float16" && dtype != "bfloat16") throw std::runtime_error("dtype " + dtype);
  const int mantissa = dtype == "float16" ? 10 : 7, bias = dtype == "float16" ? 15 : 127;
  const int exponent = static_cast<int>((code & 0x7FFF) >> mantissa);
  const double fraction = (code & ((1u << mantissa) - 1)) * std::ldexp(1.0, -mantissa), sign = code >> 15 != 0 ? -1 : 1;
  if (exponent == 2 * bias + 1) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * std::ldexp(exponent == 0 ? fraction : 1 + fraction, std::max(exponent, 1) - bias);
}

template <class T>
double load_as(const uint8_t* data, size_t at) {
  T value;
  std::memcpy(&value, data + sizeof value * at, sizeof value);
  return static_cast<double>(value);
}

// Element `at` of little-endian data.
inline double load(const std::string& dtype, const uint8_t* data, size_t at) {
  if (dtype == "int8") return static_cast<int8_t>(data[at]);
  if (dtype == "uint8" || dtype == "bool") return data[at];
  if (dtype.find("16") != std::string::npos) return load_two(dtype, static_cast<uint32_t>(data[2 * at] | data[2 * at + 1] << 8));
  if (dtype == "int64") return load_as<int64_t>(data, at);
  if (dtype == "uint64") return load_as<uint64_t>(data, at);
  if (dtype == "float64") return load_as<double>(data, at);
  uint32_t word = 0;
  for (int byte = 3; byte >= 0; --byte) word = word << 8 | data[4 * at + static_cast<size_t>(byte)];
  if (dtype == "float32") {
    float value;
    std::memcpy(&value, &word, 4);
    return static_cast<double>(value);
  }
  if (dtype == "uint32") return word;
  if (dtype == "int32") return static_cast<int32_t>(word);
  throw std::runtime_error("dtype " + dtype);
}

inline void store(const std::string& dtype, double value, uint8_t* data, size_t at) {
  if (dtype == "int8" || dtype == "uint8") {
    data[at] = static_cast<uint8_t>(static_cast<int>(value));
    return;
  }
  const float narrow = static_cast<float>(value);
  uint32_t word;
  std::memcpy(&word, &narrow, 4);
  for (size_t byte = 0; byte < 4; ++byte) data[4 * at + byte] = static_cast<uint8_t>(word >> (8 * byte));
}

class CaseFile {
 public:
  explicit CaseFile(const std::filesystem::path& manifest) : base_(manifest) {
    base_.replace_extension();
    weights_ = file("weights");
    std::ifstream text(manifest);
    for (std::string line; std::getline(text, line);) read_line(line);
    if (output.dtype.empty()) throw std::runtime_error(manifest.string() + " has no output");
  }

  std::string name() const { return base_.filename().string(); }
  const std::string& op_type() const { return op_type_; }
  const std::string& element() const { return element_; }  // the narrowest declared type; "": not said
  uint32_t kernel() const { return kernel_; }  // the digest in its first parameter block
  const Tensor& input(size_t i) const { return inputs.at(i); }
  bool is_answered() const { return answered_; }
  const Tensor& answer() const { return answer_; }  // where is_answered()
  bool has(size_t i) const { return i < inputs.size() && !inputs[i].absent; }

  Shape ints(const std::string& key, Shape otherwise = {}) const {
    const auto found = ints_.find(key);
    return found == ints_.end() ? otherwise : found->second;
  }
  double number(const std::string& key, double otherwise) const {
    const auto found = floats_.find(key);
    // attributes are float32 in a model
    return static_cast<double>(static_cast<float>(found == floats_.end() ? otherwise : found->second));
  }

  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = texts_.find(key);
    return found == texts_.end() ? otherwise : found->second;
  }

  // A run of the operator's transaction, which has its arguments, and where it leaves its output.
  struct Prepared {
    xrt::run run;
    xrt::bo result;
  };
  Prepared prepared(xrt::device device) const {
    const xrt::xclbin binary(base_.string() + ".xclbin");
    device.register_xclbin(binary);
    const xrt::hw_context context(device, binary.get_uuid());
    const xrt::kernel kernel(context, binary.kernels().front());
    const std::vector<uint8_t> txn = file("txn");
    const uint32_t group = kernel.group_id(3);
    xrt::run run(kernel);
    run.set_arg(0, uint64_t{3});
    run.set_arg(1, buffer(device, txn, kernel.group_id(1), xrt::bo::cacheable));
    run.set_arg(2, uint64_t{txn.size()});
    xrt::bo result(device, 4, xrt::bo::host_only, group);
    for (uint32_t i = 0; i < argument_count(); ++i) {
      const auto entry = arguments_.find(i);
      const std::vector<uint8_t> bytes = entry == arguments_.end() ? std::vector<uint8_t>(4) : content(entry->second);
      const xrt::bo bo = buffer(device, bytes, group, xrt::bo::host_only);
      if (i == output_argument_) result = bo;
      run.set_arg(3 + i, bo);
    }
    return {run, result};
  }
  xrt::device device() const { return xrt::device(0, device_); }

  // What the array computes: one kernel run of it.
  Tensor run() const {
    Prepared one = prepared(device());
    one.run.start();
    if (one.run.wait() != xrt::ert_cmd_state::COMPLETED) throw std::runtime_error(name() + " did not complete");
    one.result.sync(xrt::sync_direction::FROM_DEVICE);
    return output_from(one.result);
  }

  std::vector<Tensor> inputs;
  Tensor output;

 protected:
  double ulp_ = 0, scale_ = 0, absolute_ = 0;

 private:
  struct Argument {
    std::string kind;
    size_t bytes = 0, reference = 0;
  };

  std::vector<uint8_t> file(const char* suffix) const { return read_file(base_.string() + "." + suffix); }
  uint32_t argument_count() const { return arguments_.rbegin()->first + 1; }

  static xrt::bo buffer(const xrt::device& device, const std::vector<uint8_t>& bytes, uint32_t group, uint32_t flags) {
    xrt::bo bo(device, std::max<size_t>(bytes.size(), 4), flags, group);
    if (!bytes.empty()) bo.write(bytes.data(), bytes.size(), 0);
    bo.sync(xrt::sync_direction::TO_DEVICE);
    return bo;
  }

  // Rows of narrow types are padded to words in device memory.
  static size_t row_pitch(const Tensor& tensor) {
    const size_t last = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
    const size_t per_word = std::max<size_t>(4 / tensor.width(), 1);
    return (last + per_word - 1) / per_word * per_word;
  }

  std::vector<uint8_t> content(const Argument& argument) const {
    if (argument.kind == "const" || argument.kind == "params") return file(argument.kind.c_str());
    std::vector<uint8_t> bytes(argument.bytes, argument.kind == "output" ? 0xA5 : 0);
    if (argument.kind == "fixed") {
      std::memcpy(bytes.data(), weights_.data() + argument.reference, argument.bytes);
    } else if (argument.kind == "input") {
      const Tensor& tensor = input(argument.reference);
      const size_t last = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back()), pitch = row_pitch(tensor);
      const size_t width = tensor.width();
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        const size_t to = i / last * pitch + i % last;
        if (tensor.bytes.empty()) {
          store(tensor.dtype, tensor.values[i], bytes.data(), to);
        } else {
          std::memcpy(bytes.data() + to * width, tensor.bytes.data() + i * width, width);
        }
      }
    }
    return bytes;
  }

  Tensor output_from(const xrt::bo& bo) const {
    Tensor result = output;
    const size_t last = result.shape.empty() ? 1 : static_cast<size_t>(result.shape.back()), pitch = row_pitch(result);
    for (size_t i = 0; i < static_cast<size_t>(result.size()); ++i) {
      result.values.push_back(load(result.dtype, bo.map(), i / last * pitch + i % last));
    }
    return result;
  }

  void read_line(const std::string& line) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "operator") words >> op_type_;
    if (key == "element") words >> element_;
    if (key == "device") words >> device_;
    if (key == "kernel") words >> kernel_;
    if (key == "tolerance") words >> ulp_ >> scale_ >> absolute_;
    if (key == "argument") {
      uint32_t index = 0;
      Argument argument;
      words >> index >> argument.kind >> argument.bytes >> argument.reference;
      arguments_[index] = argument;
      if (argument.kind == "output" && outputs_++ == 0) output_argument_ = index;
    }
    if (key == "input") read_input(words);
    if (key == "output") {
      words >> output.dtype;
      output.shape = read_shape(words);
    }
    if (key == "expected") {
      size_t at = 0;
      words >> at;
      answered_ = true;
      answer_ = output;
      for (size_t i = 0; i < static_cast<size_t>(output.size()); ++i) answer_.values.push_back(load(output.dtype, weights_.data() + at, i));
    }
    std::string attribute;
    if (key == "ints") {
      words >> attribute;
      ints_[attribute] = Shape(std::istream_iterator<int64_t>(words), {});
    }
    if (key == "float") words >> attribute >> floats_[attribute];
    if (key == "text") words >> attribute >> texts_[attribute];
  }

  static Shape read_shape(std::istream& words) {
    size_t rank = 0;
    words >> rank;
    Shape shape(rank);
    for (int64_t& extent : shape) words >> extent;
    return shape;
  }

  void read_input(std::istream& words) {
    Tensor tensor;
    std::string fill;
    words >> tensor.dtype;
    if (tensor.dtype == "absent") {
      tensor.absent = true;
      inputs.push_back(tensor);
      return;
    }
    words >> fill;
    size_t at = 0;
    if (fill == "weights") words >> at;
    tensor.shape = read_shape(words);
    if (fill == "weights") {
      const auto from = weights_.begin() + static_cast<ptrdiff_t>(at);
      tensor.bytes.assign(from, from + static_cast<ptrdiff_t>(static_cast<size_t>(tensor.size()) * tensor.width()));
    }
    std::mt19937 random(1 + static_cast<unsigned>(inputs.size()));
    for (size_t i = 0; i < static_cast<size_t>(tensor.size()); ++i) {
      const double unit = static_cast<double>(random() >> 8) * 0x1p-24;  // [0, 1), exact in float32
      double value = 4 * unit - 2;
      if (fill == "positive") value = 0.25 + 2 * unit;
      if (tensor.dtype == "int8") value = std::floor(256 * unit) - 128;
      if (tensor.dtype == "uint8") value = std::floor(256 * unit);
      if (fill == "weights") {
        value = load(tensor.dtype, weights_.data() + at, i);
      } else if (tensor.dtype == "float32") {
        value = static_cast<double>(static_cast<float>(value));
      }
      tensor.values.push_back(value);
    }
    inputs.push_back(tensor);
  }

  std::filesystem::path base_;
  std::string op_type_, element_, device_;
  uint32_t kernel_ = 0;
  std::map<uint32_t, Argument> arguments_;
  uint32_t output_argument_ = 0, outputs_ = 0;  // the first of several is looked at
  bool answered_ = false;
  Tensor answer_;
  std::map<std::string, Shape> ints_;
  std::map<std::string, double> floats_;
  std::map<std::string, std::string> texts_;
  std::vector<uint8_t> weights_;
};

}  // namespace onedispatch::operator_tests
