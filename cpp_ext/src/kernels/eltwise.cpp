// SPDX-License-Identifier: Apache-2.0
// od::eltwise: a function of up to three strided inputs over a box of rank 5, for every element type.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernel.h"
#include "onedispatch/kernel_tables.h"
#include "simd/simd.h"
#include "strided.h"

namespace onedispatch::kernels {

namespace {

namespace scalar = params::eltwise::scalar;
namespace fn = params::eltwise_func;
namespace act = params::activation;

constexpr int64_t kShort = 16;  // elements of a run that are too few for a call

bool is_half(uint32_t dtype) { return dtype == params::dtype::bf16 || dtype == params::dtype::f16; }

// A number as an element: integers saturate.
template <class T>
T element_of(float value) {
  if constexpr (std::is_same_v<T, float>) return value;
  const double wide = value;
  if (wide != wide) return 0;
  if (wide <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (wide >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(wide);
}

class Eltwise final : public Kernel {
 public:
  explicit Eltwise(const Setup& setup);

  void check(const Call& call) const override { strided_.check(call); }

  void run(const Call& call) const override {
    switch (od_dtypes[dtype_].bytes) {
      case 1: run_as<uint8_t>(call); break;
      case 2: run_as<uint16_t>(call); break;
      default: run_as<uint32_t>(call); break;
    }
  }

 private:
  template <class T>
  void run_as(const Call& call) const;
  bool activate_at_once(const Call& call, const Box& box) const;
  template <class T>
  void walk(const Call& call, const Box& box, T* out) const;
  template <class T>
  void walk_short(const Call& call, const Box& box, T* out) const;
  template <class T>
  void look_up(const Call& call, T* out) const;
  template <class T>
  bool transpose(const Call& call, const Box& box, T* out) const;
  template <class T>
  void compute(const T* const* x, const int* strides, T* out, size_t n) const;
  void compute_f32(const float* const* x, const int* strides, float* out, size_t n) const;
  void compute_half(const uint16_t* const* x, const int* strides, uint16_t* out, size_t n) const;
  template <class T>
  void fill(T* out) const;
  template <class T>
  void activate(T* out, size_t n) const;

  uint32_t func_;
  int n_in_;
  float alpha_, beta_;
  Activation activation_;
  uint32_t dtype_;
  std::array<Operand, kInputs> input_;
  Strided strided_;
};

Eltwise::Eltwise(const Setup& setup)
    : func_(setup.scalars[scalar::func]),
      n_in_(fn::kInputs[func_]),
      alpha_(setup.f32(scalar::alpha)),
      beta_(setup.f32(scalar::beta)),
      activation_(setup, scalar::act),
      dtype_(setup.operands[params::eltwise::operand::out].dtype),
      strided_(setup, n_in_, params::eltwise::operand::out) {
  for (int i = 0; i < kInputs; ++i) {
    input_[static_cast<size_t>(i)] = setup.operands[static_cast<size_t>(i)];
    const uint32_t at = setup.spec->operands[i].at;
    if (input_[static_cast<size_t>(i)].present != (i < n_in_)) {
      reject(setup, at, setup.spec->operands[i].name, "the function reads " + std::to_string(n_in_) + " inputs");
    }
  }
  const bool scaled = func_ == fn::add_ && (alpha_ != 1.0f || beta_ != 1.0f);
  if (scaled && dtype_ != params::dtype::f32 && !is_half(dtype_)) {
    reject(setup, params::eltwise::alpha, "alpha", "integers are added as they are: alpha and beta of 1");
  }
}

template <class T>
void Eltwise::run_as(const Call& call) const {
  T* out = reinterpret_cast<T*>(call.out);
  if (func_ == fn::fill_) {
    fill(out);
  } else if (strided_.fractional()) {
    look_up(call, out);
  } else {
    Box own;
    const Box& box = strided_.box(call, own);
    if (activate_at_once(call, box)) return;
    // Powers look at exponents that are repeated along a run; copies of few elements cost no more one by one.
    const bool together = box.size[kDims - 1] < kShort && func_ != fn::pow_ && func_ != fn::copy_;
    if (together) {
      walk_short(call, box, out);
    } else if (!transpose(call, box, out)) {
      walk(call, box, out);
    }
  }
  activate(out, static_cast<size_t>(strided_.elements()));
}

// A function of one input alone reads it where it lies. False where that is not all.
bool Eltwise::activate_at_once(const Call& call, const Box& box) const {
  const int64_t n = box.size[kDims - 1];
  const bool runs = box.along_run(0) == 1 && n >= kShort;
  if (func_ != fn::copy_ || dtype_ != params::dtype::f32 || activation_.code == act::none_ || !runs) return false;
  int64_t elements = 1;
  for (const int64_t size : box.size) elements *= size;
  if (elements != strided_.elements()) return false;
  const float* x = input_[0].f32_in(call);
  auto* out = reinterpret_cast<float*>(call.out);
  for_each_run(box, strided_.bases(call), [&](const Bases& from, int64_t to) {
    simd().unary(activation_.code, activation_.alpha, activation_.beta, x + from[0], out + to, static_cast<size_t>(n));
  });
  return true;
}

template <class T>
void Eltwise::fill(T* out) const {
  uint8_t image[4] = {};
  if (is_half(dtype_)) {
    simd().narrow(dtype_, &alpha_, image, 1);
  } else {
    const auto put = [&](auto element) { std::memcpy(image, &element, sizeof element); };
    switch (dtype_) {
      case params::dtype::i8: put(element_of<int8_t>(alpha_)); break;
      case params::dtype::u8: put(element_of<uint8_t>(alpha_)); break;
      case params::dtype::i16: put(element_of<int16_t>(alpha_)); break;
      case params::dtype::u16: put(element_of<uint16_t>(alpha_)); break;
      case params::dtype::i32: put(element_of<int32_t>(alpha_)); break;
      case params::dtype::u32: put(element_of<uint32_t>(alpha_)); break;
      case params::dtype::boolean: put(static_cast<uint8_t>(alpha_ != 0.0f)); break;
      default: put(alpha_); break;
    }
  }
  T value;
  std::memcpy(&value, image, sizeof value);
  std::fill(out, out + strided_.elements(), value);
}

template <class T>
void Eltwise::activate(T* out, size_t n) const {
  if (activation_.code == act::none_) return;
  if (dtype_ == params::dtype::f32) {
    activation_.apply(reinterpret_cast<float*>(out), n);
  } else if (is_half(dtype_)) {
    float wide[kBlock];
    for (size_t at = 0; at < n; at += kBlock) {
      const size_t count = std::min<size_t>(kBlock, n - at);
      simd().widen(dtype_, out + at, wide, count);
      activation_.apply(wide, count);
      simd().narrow(dtype_, wide, out + at, count);
    }
  } else {
    simd().unary_int(activation_.code, activation_.alpha, activation_.beta, dtype_, out, out, n);
  }
}

void Eltwise::compute_f32(const float* const* x, const int* s, float* out, size_t n) const {
  const SimdLevel& level = simd();
  switch (func_) {
    case fn::add_:
      if (alpha_ == 1.0f && beta_ == 1.0f) {
        level.binary(func_, x[0], s[0], x[1], s[1], out, n);
      } else {
        level.add_scaled(x[0], s[0], alpha_, x[1], s[1], beta_, out, n);
      }
      break;
    case fn::muladd_: level.muladd(x[0], s[0], x[1], s[1], x[2], s[2], out, n); break;
    case fn::pow_:
      if (s[1] == 0 && x[1][0] == 2.0f) {
        level.binary(fn::mul_, x[0], s[0], x[0], s[0], out, n);
      } else {
        level.binary(func_, x[0], s[0], x[1], s[1], out, n);
      }
      break;
    default: level.binary(func_, x[0], s[0], x[1], s[1], out, n); break;
  }
}

// In float32, rounded once.
void Eltwise::compute_half(const uint16_t* const* x, const int* s, uint16_t* out, size_t n) const {
  float wide[kInputs][kBlock], result[kBlock];
  const float* from[kInputs] = {wide[0], wide[1], wide[2]};
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t count = std::min<size_t>(kBlock, n - at);
    for (int i = 0; i < n_in_; ++i) simd().widen(dtype_, x[i] + (s[i] != 0 ? at : 0), wide[i], s[i] != 0 ? count : 1);
    compute_f32(from, s, result, count);
    simd().narrow(dtype_, result, out + at, count);
  }
}

template <class T>
void Eltwise::compute(const T* const* x, const int* s, T* out, size_t n) const {
  if (func_ == fn::copy_) {
    if (s[0] == 0) {
      std::fill(out, out + n, x[0][0]);
    } else {
      std::memcpy(out, x[0], n * sizeof *out);
    }
    return;
  }
  if constexpr (sizeof(T) == 4) {
    if (dtype_ == params::dtype::f32) {
      const float* from[kInputs] = {};
      for (int i = 0; i < n_in_; ++i) from[i] = reinterpret_cast<const float*>(x[i]);
      compute_f32(from, s, reinterpret_cast<float*>(out), n);
      return;
    }
  }
  if constexpr (sizeof(T) == 2) {
    if (is_half(dtype_)) {
      compute_half(x, s, out, n);
      return;
    }
  }
  simd().binary_int(func_, dtype_, x[0], s[0], x[1], s[1], out, n);
}

template <class T>
void Eltwise::walk(const Call& call, const Box& box, T* out) const {
  int kind[kInputs] = {};
  bool plain = true;
  for (int i = 0; i < n_in_; ++i) {
    kind[i] = box.along_run(i) != 0;
    plain = plain && box.along_run(i) <= 1;
  }
  const T* chunk[kInputs] = {};
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) chunk[i] = reinterpret_cast<const T*>(input_[i].in(call));
  const int64_t n = box.size[kDims - 1];
  for_each_run(box, strided_.bases(call), [&](const Bases& from, int64_t to) {
    const T* x[kInputs] = {};
    for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) x[i] = chunk[i] + from[i];
    if (plain) {
      compute(x, kind, out + to, static_cast<size_t>(n));
      return;
    }
    T gathered[kInputs][kBlock];
    for (int64_t at = 0; at < n; at += kBlock) {
      const int count = static_cast<int>(std::min<int64_t>(kBlock, n - at));
      const T* part[kInputs] = {};
      for (int i = 0; i < n_in_; ++i) {
        const int64_t stride = box.along_run(i);
        part[i] = x[i] + at * stride;
        if (stride <= 1) continue;
        gather(part[i], stride, gathered[i], count);
        part[i] = gathered[i];
      }
      compute(part, kind, out + to + at, static_cast<size_t>(count));
    }
  });
}

template <class T>
void Eltwise::walk_short(const Call& call, const Box& box, T* out) const {
  const int each[kInputs] = {1, 1, 1};
  const T* chunk[kInputs] = {};
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) chunk[i] = reinterpret_cast<const T*>(input_[i].in(call));
  for_runs_together(box, strided_.bases(call), chunk, n_in_, 0, [&](const T* const* x, int64_t to, int64_t count) {
    compute(x, each, out + to, static_cast<size_t>(count));
  });
}

// Every element on its own: their distances differ. A run of the elements that the one before was made of is the same.
template <class T>
void Eltwise::look_up(const Call& call, T* out) const {
  const int each[kInputs] = {1, 1, 1};
  Bases before{};
  const T* made = nullptr;
  strided_.look_up(call, [&](int64_t to, int64_t n, const Bases& from, const std::array<const int64_t*, kInputs>& places) {
    if (made != nullptr && from == before) {
      std::memcpy(out + to, made, static_cast<size_t>(n) * sizeof(T));
      return;
    }
    T gathered[kInputs][kBlock];
    const T* const parts[kInputs] = {gathered[0], gathered[1], gathered[2]};
    for (int64_t at = 0; at < n; at += kBlock) {
      const int64_t count = std::min<int64_t>(kBlock, n - at);
      for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) {
        const T* chunk = reinterpret_cast<const T*>(input_[i].in(call)) + from[i];
        const int64_t* place = places[i] + at;
        for (int64_t j = 0; j < count; ++j) gathered[i][j] = chunk[place[j]];
      }
      compute(parts, each, out + to + at, static_cast<size_t>(count));
    }
    before = from;
    made = out + to;
  });
}

// A copy whose runs are strided while another dimension is contiguous in the input: that one becomes the
// column of 2-D transposes. False where it is no such copy.
template <class T>
bool Eltwise::transpose(const Call& call, const Box& box, T* out) const {
  if (func_ != fn::copy_ || box.along_run(0) <= 1) return false;
  int unit = -1;
  for (int d = kDims - 2; d >= 0; --d) {
    if (box.stride[0][d] == 1 && box.size[d] >= 4) unit = d;
  }
  if (unit < 0) return false;
  Box outer = box;
  outer.size[unit] = 1;
  const T* x = reinterpret_cast<const T*>(input_[0].in(call));
  for_each_run(outer, strided_.bases(call), [&](const Bases& from, int64_t to) {
    transpose_block(x + from[0], box.along_run(0), box.size[kDims - 1], box.size[unit], out + to, box.stride[kInputs][unit]);
  });
  return true;
}

}  // namespace

ONEDISPATCH_KERNEL(eltwise, make<Eltwise>)

}  // namespace onedispatch::kernels
