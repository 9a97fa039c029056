// SPDX-License-Identifier: Apache-2.0
// A kernel: what the super kernel calls once per reduction step of a tile, on local memory only.
//
// read_setup() reads and checks a parameter block by the kernel's declaration, once per op: ports, element
// types, axes, spans, scalars, dimensions. A kernel's prepare function refuses what is left (how its own
// values fit together), so that the loops inside run() check nothing. Both throw ProgramError.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "onedispatch/core_program.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_spec.h"

namespace onedispatch::kernels {

constexpr int kDims = 5;
constexpr int kAxes = 6;
constexpr int kOperands = 8;
constexpr int kScalars = 32;
constexpr uint32_t kOutPort = 2;

struct Dim {
  uint32_t extent = 1, tile = 1;
};

// One call: one reduction step of one tile.
struct Call {
  std::array<uint32_t, kDims> origin{};
  uint32_t k_first = 0, k_count = 0, k_index = 0;
  bool k_last = true;
  std::array<const uint8_t*, 2> in{};
  uint8_t* out = nullptr;
};

// How a chunk lies along one tensor dimension.
struct Axis {
  int64_t extent = 1, chunk = 1, stride = 0, a = 0, den = 1, align = 1, b = 0;

  // What member `tile_origin` of the index dimension touches first.
  int64_t first(int64_t tile_origin) const { return a * tile_origin / den + b; }
  int64_t origin(int64_t tile_origin) const;
  // Local position of [first, first + count), in elements; stride 0 is a broadcast. Throws
  // ProgramError when the chunk does not hold the range.
  int64_t local(int64_t tile_origin, int64_t first, int64_t count, const char* name) const;
};

struct Operand {
  bool present = false;
  uint32_t port = 0, offset = 0;
  uint32_t bytes = 0;  // of the chunk from `offset` on
  uint32_t dtype = 0;
  std::array<Axis, kAxes> axes;

  const uint8_t* in(const Call& call) const { return call.in[port] + offset; }
  const float* f32_in(const Call& call) const { return reinterpret_cast<const float*>(in(call)); }
};

// What an op says before its first tile.
struct Setup {
  const uint32_t* words = nullptr;  // params::kWords
  const KernelSpec* spec = nullptr;
  std::array<Dim, kDims> dims;
  uint32_t k_extent = 0, k_tile = 1, inner_steps = 1;
  std::array<uint32_t, 3> chunk_bytes{};  // in0, in1, out; 0 where the port is not used
  std::array<uint32_t, kDims> roles{};    // index dimension of each of the kernel's dimensions
  std::array<Operand, kOperands> operands;
  std::array<uint32_t, kScalars> scalars{};

  float f32(uint32_t scalar) const;
  uint32_t tile(uint32_t role) const { return dims[roles[role]].tile; }
};

// Constants of section [kernel] of the device description, by name.
using Constants = std::map<std::string, double>;

// Fills everything from `roles` on as the declaration says.
void read_setup(Setup& setup);
// Core cycles of a call of k_count members, the last step of its reduction or not: the declaration's
// formula, rounded up. Throws ProgramError where the device lacks a constant.
uint64_t call_cycles(const Setup& setup, const Constants& constants, uint32_t k_count, bool last);

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Throws ProgramError when this tile needs coordinates that its chunks do not hold. To be called
  // before run(); constant time.
  virtual void check(const Call&) const {}
  virtual void run(const Call& call) const = 0;  // thread-safe
};

struct KernelEntry {
  const KernelSpec* spec;
  std::unique_ptr<const Kernel> (*prepare)(const Setup&);
};

const KernelEntry* find_kernel(uint32_t digest);  // nullptr when unknown
std::string known_kernels();                      // "od::conv@1 (0x...), ..."

// ---- What kernels check a setup with -----------------------------------------------------------

// "<kernel>: <what>: word <at> is <value>; <accepted>"
[[noreturn]] void reject(const Setup& setup, uint32_t at, const std::string& what, const std::string& accepted);
[[noreturn]] void reject(const std::string& text);

uint32_t word_in(const Setup& setup, uint32_t at, const char* name, uint32_t low, uint32_t high);
// The element type of an operand is the one given.
void require_dtype(const Setup& setup, uint32_t operand, uint32_t dtype);

struct Activation {
  uint32_t code = 0;
  float alpha = 0, beta = 0;

  Activation() = default;
  // From the scalar `act` and the two behind it.
  Activation(const Setup& setup, uint32_t act) : code(setup.scalars[act]), alpha(setup.f32(act + 1)), beta(setup.f32(act + 2)) {}
  void apply(float* data, size_t n) const;  // in place
};

std::unique_ptr<const Kernel> prepare_eltwise(const Setup&);
std::unique_ptr<const Kernel> prepare_gemm(const Setup&);
std::unique_ptr<const Kernel> prepare_conv(const Setup&);
std::unique_ptr<const Kernel> prepare_dwconv(const Setup&);
std::unique_ptr<const Kernel> prepare_pool(const Setup&);
std::unique_ptr<const Kernel> prepare_reduce(const Setup&);
std::unique_ptr<const Kernel> prepare_softmax(const Setup&);
std::unique_ptr<const Kernel> prepare_lrn(const Setup&);

}  // namespace onedispatch::kernels
