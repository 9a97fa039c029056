// SPDX-License-Identifier: Apache-2.0
// A kernel: what the super kernel calls once per reduction step of a tile, on local memory only.
//
// prepare_kernel() reads and validates a parameter block once per op. It throws ProgramError for
// anything that could reach beyond a chunk, so that the loops inside run() check nothing.
// The out chunk is row-major over the tile dimensions 0..4 (or as params.py says for the kernel).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel_params.h"

namespace onedispatch::kernels {

constexpr int kDims = 5;

// Core cycles of the work, from section [kernel] of the device description. Not data dependent.
struct Timing {
  double i8_macs_per_cycle = 1, i8_output_cycles = 0, i8_call_cycles = 0;
  double f32_macs_per_cycle = 1, f32_output_cycles = 0, f32_call_cycles = 0;
  double window_macs_per_cycle = 1;      // depthwise products: no reuse in a matrix unit
  double words_per_cycle = 1;            // element-wise, pooling, reductions: 32-bit lanes
  double special_cycles_per_element = 0; // exp, tanh, division and the like
  double call_cycles = 0;                // of every kernel but the matrix products

  static Timing from(const DeviceDescription& device);  // throws std::out_of_range
};

struct Dim {
  uint32_t extent = 1, tile = 1;
};

// What an op says before its first tile.
struct Setup {
  const uint32_t* words = nullptr;  // params::kWords
  std::array<Dim, kDims> dims;
  uint32_t k_extent = 0, k_tile = 1, inner_steps = 1;
  std::array<uint32_t, 3> chunk_bytes{};  // in0, in1, out; 0 where the port is not used
  Timing timing;
};

// One call: one reduction step of one tile.
struct Call {
  std::array<uint32_t, kDims> origin{};
  uint32_t k_first = 0, k_count = 0, k_index = 0;
  bool k_last = true;
  std::array<const uint8_t*, 2> in{};
  uint8_t* out = nullptr;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Throws ProgramError when this tile needs coordinates that its chunks do not hold. To be called
  // before run(); constant time.
  virtual void check(const Call&) const {}
  virtual uint64_t cycles(const Call& call) const = 0;
  virtual void run(const Call& call) const = 0;  // thread-safe
};

struct KernelEntry {
  uint32_t id;
  const char* name;
  std::unique_ptr<const Kernel> (*prepare)(const Setup&);
};

const KernelEntry* find_kernel(uint32_t id);  // nullptr when unknown
std::string known_kernels();                  // "1 ELTWISE, 2 GEMM, ..."

// ---- What kernels read a parameter block with ------------------------------------------------

// "<what>: word <at> is <value>; <accepted>"
[[noreturn]] void reject(const Setup& setup, uint32_t at, const std::string& what, const std::string& accepted);
[[noreturn]] void reject(const std::string& text);

uint32_t word_in(const Setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high);
float word_f32(const Setup& setup, uint32_t at);
// Dimension numbers in words at, at+1, ...: ascending, so that the out chunk's order is plain;
// every other dimension must have tile 1.
template <size_t N>
std::array<uint32_t, N> dims_at(const Setup& setup, uint32_t at, const char* name);
extern template std::array<uint32_t, 2> dims_at<2>(const Setup&, uint32_t, const char*);
extern template std::array<uint32_t, 3> dims_at<3>(const Setup&, uint32_t, const char*);
// The out chunk holds `elements` of 4 bytes.
void require_out(const Setup& setup, uint64_t elements);
void require_no_reduction(const Setup& setup);

struct PortRef {
  bool present = false;
  uint32_t port = 0, offset = 0;
  uint32_t bytes = 0;  // of the chunk from `offset` on

  const uint8_t* in(const Call& call) const { return call.in[port] + offset; }
  const float* f32_in(const Call& call) const { return reinterpret_cast<const float*>(in(call)); }
};

// The PortRef in word `at`; `element` = 1 or 4 bytes, to which the offset is aligned.
PortRef port_at(const Setup& setup, uint32_t at, const char* name, uint32_t element, bool optional);

struct Axis {
  int64_t extent = 1, chunk = 1, stride = 0, a = 0, align = 1, b = 0;

  int64_t origin(int64_t tile_origin) const;
  // Local position of [first, first + count), in elements; stride 0 is a broadcast. Throws
  // ProgramError when the chunk does not hold the range.
  int64_t local(int64_t tile_origin, int64_t first, int64_t count, const char* name) const;
};

Axis axis_at(const Setup& setup, uint32_t at, const char* name);
// All chunk coordinates of the axes lie inside what the reference has.
void require_span(const PortRef& ref, std::initializer_list<Axis> axes, uint32_t element, const char* name);

struct Activation {
  uint32_t code = 0;
  float alpha = 0, beta = 0;

  void apply(float* data, size_t n) const;  // in place
  bool special() const;                     // costs special_cycles_per_element
};

Activation activation_at(const Setup& setup, uint32_t at);

// Cycles of a job that moves `words` and evaluates `special` expensive elements.
uint64_t streaming_cycles(const Timing& timing, double words, double special);

std::unique_ptr<const Kernel> prepare_eltwise(const Setup&);
std::unique_ptr<const Kernel> prepare_gemm(const Setup&);
std::unique_ptr<const Kernel> prepare_conv(const Setup&);
std::unique_ptr<const Kernel> prepare_dwconv(const Setup&);
std::unique_ptr<const Kernel> prepare_pool(const Setup&);
std::unique_ptr<const Kernel> prepare_reduce(const Setup&);
std::unique_ptr<const Kernel> prepare_softmax(const Setup&);
std::unique_ptr<const Kernel> prepare_lrn(const Setup&);

}  // namespace onedispatch::kernels
