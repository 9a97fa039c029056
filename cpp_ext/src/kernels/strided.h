// SPDX-License-Identifier: Apache-2.0
// How element-wise kernels walk: strided inputs and a row-major output over a box of five dimensions.
//
// Elements are counted, not bytes. Inputs may lack the last members of the last dimension where these only
// fill up the words of the output's rows (fewer than a word): those become zeros.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

constexpr int kInputs = 3;
constexpr int kBlock = 512;  // elements of a strided run that are gathered at a time

// A box to walk; dimensions are right-aligned, the innermost run is always dimension 4. stride[kInputs]
// is the output's.
struct Box {
  int64_t size[kDims];
  int64_t stride[kInputs + 1][kDims];

  // 0: one element for the whole run, 1: element by element, else as far apart.
  int64_t along_run(int input) const { return stride[input][kDims - 1]; }
};

using Bases = std::array<int64_t, kInputs>;
using Sizes = std::array<int64_t, kDims>;

class Strided {
 public:
  Strided(const Setup& setup, int n_in, uint32_t out);

  // Rejects a call whose chunks do not hold what it needs.
  void check(const Call& call) const { bases(call, held(call)); }
  int64_t elements() const { return elements_; }
  // Where the first member of the tile lies in the chunk of each input.
  Bases bases(const Call& call) const { return bases(call, held(call)); }
  // The box of a call; where inputs lack members, `out` is zeroed first.
  const Box& box(const Call& call, Box& own) const;
  // Whether members of an input lie at fractions, so that no strides lead from one to the next.
  bool fractional() const { return fractional_; }
  // Instead of a box: calls body(first member of the output's run, members in it, where each input's run begins,
  // where each input's elements lie in it) run by run, and zeroes `out` first where inputs lack members.
  template <class Body>
  void look_up(const Call& call, Body body) const;

 private:
  Sizes held(const Call& call) const;
  Bases bases(const Call& call, const Sizes& sizes) const;
  Box collapsed(const Sizes& sizes) const;
  // Where the members of dimension d lie in the chunk of an input, the first `count` of them.
  std::vector<int64_t> places(const Call& call, size_t input, size_t d, int64_t count) const;

  int n_in_;
  bool fractional_ = false;
  uint32_t width_;       // bytes of an output element
  int64_t most_lacked_;  // members of the last dimension that may be missing
  size_t last_ = 0;      // the last dimension of more than one member
  std::array<Operand, kInputs> input_;
  Sizes tile_{};
  int64_t elements_ = 1;
  Box full_{};
};

template <class Body>
void Strided::look_up(const Call& call, Body body) const {
  const Sizes sizes = held(call);
  if (sizes != tile_) std::memset(call.out, 0, static_cast<size_t>(elements_) * width_);
  std::array<std::array<std::vector<int64_t>, kDims>, kInputs> place;
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) {
    for (size_t d = 0; d < kDims; ++d) place[i][d] = places(call, i, d, sizes[d]);
  }
  // Runs go along the last dimension of more than one member; those behind it have one.
  Sizes at{};
  std::array<const int64_t*, kInputs> run{};
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) run[i] = place[i][last_].data();
  for (;;) {
    int64_t to = 0;
    for (size_t d = 0; d < kDims; ++d) to = to * tile_[d] + at[d];
    Bases from{};
    for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) {
      for (size_t d = 0; d < kDims; ++d) from[i] += d == last_ ? 0 : place[i][d][static_cast<size_t>(at[d])];
    }
    body(to, sizes[last_], from, run);
    size_t d = last_;
    while (d-- > 0 && ++at[d] == sizes[d]) at[d] = 0;
    if (d == static_cast<size_t>(-1)) return;
  }
}

// An element of two words: chunks begin with words, so that it lies at a multiple of four bytes.
struct Wide {
  uint32_t low, high;
};

// Calls body(first element of every input's run, first of the output's) for every run of the box.
template <class Body>
void for_each_run(const Box& box, const Bases& bases, Body body) {
  constexpr int kLast = kDims - 2;  // of the dimensions around a run
  int64_t at[kLast];
  for (at[0] = 0; at[0] < box.size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < box.size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < box.size[2]; ++at[2]) {
        Bases from = bases;
        int64_t to = 0;
        for (int d = 0; d < kLast; ++d) {
          for (int i = 0; i < kInputs; ++i) from[static_cast<size_t>(i)] += at[d] * box.stride[i][d];
          to += at[d] * box.stride[kInputs][d];
        }
        for (int64_t last = 0; last < box.size[kLast]; ++last) {
          body(std::as_const(from), to);
          for (int i = 0; i < kInputs; ++i) from[static_cast<size_t>(i)] += box.stride[i][kLast];
          to += box.stride[kInputs][kLast];
        }
      }
    }
  }
}

// Puts short runs side by side: calls use(elements of each input, the first result that they are of, how many) for many
// runs at once. Where at most `between` results lie between two runs, zeros stand for what they are made of.
template <class T, class Use>
void for_runs_together(const Box& box, const Bases& bases, const T* const* chunks, int n_in, int64_t between, Use use) {
  const int64_t n = box.size[kDims - 1];
  T gathered[kInputs][kBlock];
  const T* const parts[kInputs] = {gathered[0], gathered[1], gathered[2]};
  int64_t first = 0, count = 0;
  const auto flush = [&] {
    if (count != 0) use(parts, first, count);
  };
  for_each_run(box, bases, [&](const Bases& from, int64_t to) {
    int64_t at = to - first;
    if (count == 0 || at - count > between || at + n > kBlock) {
      flush();
      first = to;
      at = count = 0;
    }
    for (int i = 0; i < n_in; ++i) {
      const T* const x = chunks[i] + from[static_cast<size_t>(i)];
      const int64_t stride = box.along_run(i);
      for (int64_t j = count; j < at; ++j) gathered[i][j] = T{};
      T* const y = gathered[i] + at;
      if (n == 3) {  // pixels
        y[0] = x[0], y[1] = x[stride], y[2] = x[2 * stride];
      } else {
        for (int64_t j = 0; j < n; ++j) y[j] = x[j * stride];
      }
    }
    count = at + n;
  });
  flush();
}

template <class T>
void gather(const T* x, int64_t stride, T* y, int n) {
  if constexpr (sizeof(T) == 4) {
    simd().copy_strided(reinterpret_cast<const float*>(x), stride, reinterpret_cast<float*>(y), n);
  } else {
    for (int i = 0; i < n; ++i) y[i] = x[i * stride];
  }
}

using Bytes = uint8_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

// Elements of a and b in turn.
inline void interleave(Bytes a, Bytes b, Bytes& first, Bytes& second) {
  first = __builtin_shuffle(a, b, Bytes{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
  second = __builtin_shuffle(a, b, Bytes{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}
inline void interleave(Halves a, Halves b, Halves& first, Halves& second) {
  first = __builtin_shuffle(a, b, Halves{0, 8, 1, 9, 2, 10, 3, 11});
  second = __builtin_shuffle(a, b, Halves{4, 12, 5, 13, 6, 14, 7, 15});
}

// A square of as many elements as a vector has: rows in turn with those half a square further, until columns are rows.
template <class T>
void transpose_square(const T* x, int64_t x_row, T* y, int64_t y_row) {
  constexpr int kSide = 16 / sizeof(T);
  std::conditional_t<sizeof(T) == 1, Bytes, Halves> v[kSide], turned[kSide];
  for (int i = 0; i < kSide; ++i) std::memcpy(&v[i], x + i * x_row, sizeof v[i]);
  for (int step = 1; step < kSide; step *= 2) {
    for (int i = 0; i < kSide / 2; ++i) interleave(v[i], v[i + kSide / 2], turned[2 * i], turned[2 * i + 1]);
    std::copy(turned, turned + kSide, v);
  }
  for (int i = 0; i < kSide; ++i) std::memcpy(y + i * y_row, &v[i], sizeof v[i]);
}

// y[c * y_row + r] = x[r * x_row + c]
template <class T>
void transpose_block(const T* x, int64_t x_row, int64_t rows, int64_t columns, T* y, int64_t y_row) {
  if constexpr (sizeof(T) == 4) {
    simd().transpose(reinterpret_cast<const float*>(x), x_row, static_cast<int>(rows), static_cast<int>(columns),
                     reinterpret_cast<float*>(y), y_row);
  } else {
    constexpr int64_t kSide = 16 / sizeof(T);
    const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
    for (int64_t r = 0; r < whole_rows; r += kSide) {
      for (int64_t c = 0; c < whole_columns; c += kSide) transpose_square(x + r * x_row + c, x_row, y + c * y_row + r, y_row);
    }
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) y[c * y_row + r] = x[r * x_row + c];
    }
  }
}

}  // namespace onedispatch::kernels
