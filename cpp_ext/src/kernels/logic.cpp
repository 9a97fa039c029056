// SPDX-License-Identifier: Apache-2.0
// od::compare, od::select, od::binary: element-wise functions whose operands or results are of several types.
#include "mapped.h"
#include "simd/simd.h"
#include "words.h"

namespace onedispatch::kernels {

namespace {

// As many inputs as the function reads.
void require_inputs(const Setup& setup, int reads, int declared) {
  for (int i = 0; i < declared; ++i) {
    if (setup.operands[static_cast<size_t>(i)].present != (i < reads)) {
      reject(setup, setup.spec->operands[i].at, setup.spec->operands[i].name, "the function reads " + std::to_string(reads) + " inputs");
    }
  }
}

bool is_half(uint32_t dtype) { return is_float(dtype) && !is_word(dtype); }

// Calls use(first, last, at, count) for blocks of floats of two bytes, as float32, which has all of their values.
template <class Use>
void widened(uint32_t dtype, int n_in, const void* const* x, const int* steps, size_t n, Use use) {
  float wide[2][kBlock];
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t count = std::min<size_t>(kBlock, n - at);
    for (int i = 0; i < n_in; ++i) {
      const auto* from = static_cast<const uint16_t*>(x[i]) + (steps[i] != 0 ? at : 0);
      simd().widen(dtype, from, wide[i], steps[i] != 0 ? count : 1);
    }
    use(wide[0], wide[n_in - 1], at, count);
  }
}

class Compare final : public Kernel {
 public:
  explicit Compare(const Setup& setup)
      : func_(setup.scalars[params::compare::scalar::func]),
        n_in_(params::comparison::kInputs[func_]),
        dtype_(setup.operands[params::compare::operand::x0].dtype),
        mapped_(setup, n_in_, params::compare::operand::out) {
    require_inputs(setup, n_in_, 2);
  }

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      if (!is_half(dtype_)) {
        simd().compare(func_, dtype_, x[0], steps[0], x[n_in_ - 1], steps[n_in_ - 1], out, n);
        return;
      }
      widened(dtype_, n_in_, x, steps, n, [&](const float* a, const float* b, size_t at, size_t count) {
        simd().compare(func_, params::dtype::f32, a, steps[0], b, steps[n_in_ - 1], out + at, count);
      });
    });
  }

 private:
  uint32_t func_;
  int n_in_;
  uint32_t dtype_;
  Mapped mapped_;
};

class Select final : public Kernel {
 public:
  explicit Select(const Setup& setup)
      : bytes_(od_dtypes[setup.operands[params::select::operand::out].dtype].bytes), mapped_(setup, 3, params::select::operand::out) {}

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      simd().select_elements(bytes_, static_cast<const uint8_t*>(x[0]), steps[0], x[1], steps[1], x[2], steps[2], out, n);
    });
  }

 private:
  uint32_t bytes_;
  Mapped mapped_;
};

class Binary final : public Kernel {
 public:
  explicit Binary(const Setup& setup)
      : func_(setup.scalars[params::binary::scalar::func]),
        n_in_(params::binary_func::kInputs[func_]),
        dtype_(setup.operands[params::binary::operand::out].dtype),
        mapped_(setup, n_in_, params::binary::operand::out) {
    require_inputs(setup, n_in_, 2);
  }

  void check(const Call& call) const override { mapped_.check(call); }

  void run(const Call& call) const override {
    mapped_.run(call, [&](const void* const* x, const int* steps, uint8_t* out, size_t n) {
      if (!is_half(dtype_)) {
        simd().binary_func(func_, dtype_, x[0], steps[0], x[n_in_ - 1], steps[n_in_ - 1], out, n);
        return;
      }
      widened(dtype_, n_in_, x, steps, n, [&](const float* a, const float* b, size_t at, size_t count) {
        float result[kBlock];
        simd().binary_func(func_, params::dtype::f32, a, steps[0], b, steps[n_in_ - 1], result, count);
        simd().narrow(dtype_, result, out + 2 * at, count);
      });
    });
  }

 private:
  uint32_t func_;
  int n_in_;
  uint32_t dtype_;
  Mapped mapped_;
};

}  // namespace

ONEDISPATCH_KERNEL(compare, make<Compare>)
ONEDISPATCH_KERNEL(select, make<Select>)
ONEDISPATCH_KERNEL(binary, make<Binary>)

}  // namespace onedispatch::kernels
