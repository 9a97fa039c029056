// SPDX-License-Identifier: Apache-2.0
// Kernels in C++: a class per kernel over the C interface of kernel.h. Header-only; a library needs no more.
//
//   class Twice final : public Kernel {
//    public:
//     explicit Twice(const Setup& setup);            // may refuse() or reject()
//     void check(const Call& call) const override;   // the same
//     void run(const Call& call) const override;
//   };
//   OD_KERNEL(acme_twice_kernel, acme_twice_spec, make<Twice>)
//
// What constructors and functions throw becomes a status and a text at the border; nothing passes it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <string>

#include "onedispatch/kernel.h"

namespace onedispatch::kernels {

constexpr int kDims = OD_MAX_DIMS;
constexpr int kAxes = OD_MAX_AXES;
constexpr int kOperands = OD_MAX_OPERANDS;
constexpr int kScalars = OD_MAX_SCALARS;

// A status other than OD_OK on its way to the border.
struct Refusal {
  od_status status = OD_PARAMETER_INVALID;
  std::string what;
};

[[noreturn]] inline void reject(const std::string& text, od_status status = OD_PARAMETER_INVALID) { throw Refusal{status, text}; }

inline std::string extent_of(int64_t first, int64_t last) { return std::to_string(first) + " to " + std::to_string(last); }

using Dim = od_dim;

// One call: one reduction step of one tile.
struct Call : od_call {
  uint8_t* out = nullptr;  // chunk of the first output

  Call() : od_call{} {}
  Call(const od_call& call, uint32_t first_output) : od_call(call), out(call.operand[first_output]) {}
};

// How a chunk lies along one tensor dimension.
struct Axis : od_axis {
  Axis() : od_axis{1, 1, 0, 0, 1, 1, 0, 0, OD_ALONG_NOTHING, 0} {}
  Axis(const od_axis& axis) : od_axis(axis) {}  // NOLINT(google-explicit-constructor): the same thing

  // Whether a chunk has neighbours along the axis, side by side.
  bool lies_together() const { return chunk > 1 && stride == 1; }
  // What member `tile_origin` of the index dimension touches first.
  int64_t first(int64_t tile_origin) const { return (den == 1 ? a * tile_origin : a * tile_origin / den) + b; }
  int64_t origin(int64_t tile_origin) const {
    int64_t wanted = first(tile_origin);
    const int64_t rest = align == 1 ? 0 : wanted % align;  // a division takes as long as all the rest
    wanted -= rest < 0 ? rest + align : rest;
    return std::min(std::max<int64_t>(wanted, 0), extent - chunk);
  }
  // Local position of [first, first + count), in elements; stride 0 is a broadcast. Rejects what the
  // chunk does not hold.
  int64_t local(int64_t tile_origin, int64_t first, int64_t count, const char* name) const {
    if (count == 0 || (stride == 0 && chunk > 0)) return 0;
    const int64_t at = first - origin(tile_origin);
    if (at < 0 || at + count > chunk) reject_tile(tile_origin, first, count, name);
    return at * stride;
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] void reject_tile(int64_t tile_origin, int64_t first, int64_t count, const char* name) const {
    reject(std::string(name) + ": the tile needs coordinates " + extent_of(first, first + count - 1) + ", its chunk holds " +
           std::to_string(chunk) + " from " + std::to_string(origin(tile_origin)) + " of " + std::to_string(extent));
  }
};

struct Operand {
  bool present = false;
  uint32_t index = 0;  // in the declaration
  uint32_t bytes = 0;
  uint32_t dtype = 0;
  std::array<Axis, kAxes> axes;

  Operand() = default;
  Operand(const od_operand& from, uint32_t number) : present(from.present != 0), index(number), bytes(from.bytes), dtype(from.dtype) {
    std::copy(from.axes, from.axes + std::min<uint32_t>(from.n_axes, kAxes), axes.begin());
  }

  uint8_t* out(const od_call& call) const { return call.operand[index]; }
  const uint8_t* in(const od_call& call) const { return call.operand[index]; }
  const float* f32_in(const od_call& call) const { return reinterpret_cast<const float*>(in(call)); }
};

// What an op says before its first tile.
struct Setup {
  const uint32_t* words = nullptr;
  const od_kernel_spec* spec = nullptr;
  std::array<Dim, kDims> dims{};
  uint32_t k_extent = 0, k_tile = 1, inner_steps = 1, scratch_bytes = 0;
  std::array<uint32_t, kDims> roles{};  // index dimension of each of the kernel's dimensions
  std::array<Operand, kOperands> operands;
  std::array<uint32_t, kScalars> scalars{};

  explicit Setup(const od_setup& from)
      : words(from.words), spec(from.spec), k_extent(from.k_extent), k_tile(from.k_tile), inner_steps(from.inner_steps), scratch_bytes(from.scratch_bytes) {
    std::copy(std::begin(from.dims), std::end(from.dims), dims.begin());
    std::copy(std::begin(from.roles), std::end(from.roles), roles.begin());
    std::copy(std::begin(from.scalars), std::end(from.scalars), scalars.begin());
    for (uint32_t i = 0; i < from.spec->n_operands; ++i) operands[i] = Operand(from.operands[i], i);
  }

  float f32(uint32_t scalar) const {
    float value;
    std::memcpy(&value, scalars.data() + scalar, sizeof value);
    return value;
  }
  uint32_t tile(uint32_t role) const { return dims[roles[role]].tile; }
};

// "<what>: word <at> of the parameter block is <value>; <accepted>"
[[noreturn]] inline void reject(const Setup& setup, uint32_t at, const std::string& what, const std::string& accepted,
                                od_status status = OD_PARAMETER_INVALID) {
  reject(what + ": word " + std::to_string(at) + " of the parameter block is " + std::to_string(setup.words[at]) + "; " + accepted, status);
}

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Rejects a tile that needs coordinates that its chunks do not hold. Comes before run(); constant time.
  virtual void check(const Call&) const {}
  virtual void run(const Call& call) const = 0;  // thread-safe
};

template <class Class>
std::unique_ptr<const Kernel> make(const Setup& setup) {
  return std::make_unique<const Class>(setup);
}

// ---- The border --------------------------------------------------------------------------------------

namespace border {

struct Plan {
  std::unique_ptr<const Kernel> kernel;
  uint32_t first_output = 0;
};

inline od_status say(od_error* error, od_status status, const char* text) noexcept {
  if (error != nullptr) {
    const size_t length = std::min<size_t>(std::strlen(text), sizeof error->text - 1);
    std::memcpy(error->text, text, length);
    error->text[length] = 0;
  }
  return status;
}

// The status of what is being handled.
[[gnu::cold, gnu::noinline]] inline od_status thrown(od_error* error) noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return say(error, refusal.status, refusal.what.c_str());
  } catch (const std::bad_alloc&) {
    return say(error, OD_OUT_OF_MEMORY, "no memory");
  } catch (const std::exception& other) {
    return say(error, OD_RUNTIME_FAILURE, other.what());
  } catch (...) {
    return say(error, OD_RUNTIME_FAILURE, "something was thrown that is no std::exception");
  }
}

// Runs `body`; what it throws becomes a status.
template <class Body>
od_status guarded(od_error* error, Body body) noexcept {
  try {
    body();
    return OD_OK;
  } catch (...) {
    return thrown(error);
  }
}

template <std::unique_ptr<const Kernel> (*factory)(const Setup&)>
od_status prepare(const od_setup* setup, void** plan, od_error* error) {
  return guarded(error, [&] {
    auto made = std::make_unique<Plan>();
    made->kernel = factory(Setup(*setup));
    while (made->first_output + 1 < setup->spec->n_operands && setup->spec->operands[made->first_output].role != OD_ROLE_OUTPUT) ++made->first_output;
    *plan = made.release();
  });
}

inline od_status check(const void* plan, const od_call* call, od_error* error) {
  const auto& made = *static_cast<const Plan*>(plan);
  return guarded(error, [&] { made.kernel->check(Call(*call, made.first_output)); });
}

inline od_status run(const void* plan, const od_call* call, od_error* error) {
  const auto& made = *static_cast<const Plan*>(plan);
  return guarded(error, [&] { made.kernel->run(Call(*call, made.first_output)); });
}

inline void release(void* plan) { delete static_cast<const Plan*>(plan); }

}  // namespace border

}  // namespace onedispatch::kernels

// Defines the od_kernel `symbol` of declaration `spec`; `factory` makes a Kernel of a Setup.
#define OD_KERNEL(symbol, spec, factory)                                                              \
  extern "C" const od_kernel symbol;                                                                  \
  extern "C" const od_kernel symbol = {&(spec), &::onedispatch::kernels::border::prepare<factory>,    \
                                       &::onedispatch::kernels::border::check,                        \
                                       &::onedispatch::kernels::border::run,                          \
                                       &::onedispatch::kernels::border::release};
