// SPDX-License-Identifier: Apache-2.0
#include "strided.h"

#include <algorithm>

#include "onedispatch/kernel_tables.h"


namespace onedispatch::kernels {

Strided::Strided(const Setup& setup, int n_in, uint32_t out)
    : n_in_(n_in), width_(od_dtypes[setup.operands[out].dtype].bytes), most_lacked_(width_ < 4 ? 4 / width_ - 1 : 0) {
  for (size_t i = 0; i < static_cast<size_t>(n_in); ++i) {
    input_[i] = setup.operands[i];
    for (const Axis& axis : input_[i].axes) fractional_ = fractional_ || (axis.den != 1 && axis.stride != 0);
  }
  for (size_t d = 0; d < kDims; ++d) {
    tile_[d] = setup.dims[d].tile;
    elements_ *= tile_[d];
    if (tile_[d] != 1) last_ = d;
  }
  full_ = collapsed(tile_);
}

// Drops dimensions of one and joins neighbours that all operands walk in one stride.
Box Strided::collapsed(const Sizes& sizes) const {
  Box found{};
  int64_t out_stride[kDims];
  int64_t below = 1;
  for (size_t d = kDims; d-- > 0;) {
    out_stride[d] = below;
    below *= tile_[d];
  }
  int rank = 0;
  for (size_t d = 0; d < kDims; ++d) {
    // The run keeps the output's stride of 1, also where inputs hold a single member of it.
    if (sizes[d] == 1 && (d != last_ || tile_[d] == 1)) continue;
    int64_t stride[kInputs + 1] = {};
    stride[kInputs] = out_stride[d];
    bool joins = rank > 0 && found.stride[kInputs][rank - 1] == stride[kInputs] * sizes[d];
    for (int i = 0; i < n_in_; ++i) {
      const Axis& axis = input_[static_cast<size_t>(i)].axes[d];
      stride[i] = axis.stride * axis.a;  // members are `a` coordinates apart
      joins = joins && found.stride[i][rank - 1] == stride[i] * sizes[d];
    }
    const int to = joins ? rank - 1 : rank++;
    found.size[to] = joins ? found.size[to] * sizes[d] : sizes[d];
    for (int i = 0; i <= kInputs; ++i) found.stride[i][to] = stride[i];
  }
  Box box{};
  for (int d = kDims - 1, from = rank - 1; d >= 0; --d, --from) {
    box.size[d] = from >= 0 ? found.size[from] : 1;
    for (int i = 0; i <= kInputs; ++i) box.stride[i][d] = from >= 0 ? found.stride[i][from] : 0;
  }
  return box;
}

// How many members of the tile the inputs have.
Sizes Strided::held(const Call& call) const {
  Sizes sizes = tile_;
  for (size_t i = 0; i < static_cast<size_t>(n_in_) && most_lacked_ > 0; ++i) {
    const Axis& axis = input_[i].axes[last_];
    if (axis.stride == 0 || axis.a == 0) continue;  // all members touch what the first one does
    const int64_t end = (axis.extent - axis.b) * axis.den;  // a * i of the first member that is not there
    const int64_t there = (end - axis.a * int64_t{call.origin[last_]} + axis.a - 1) / axis.a;
    sizes[last_] = std::max<int64_t>(std::min(sizes[last_], std::max(there, tile_[last_] - most_lacked_)), 0);
  }
  return sizes;
}

Bases Strided::bases(const Call& call, const Sizes& sizes) const {
  Bases at{};
  for (size_t i = 0; i < static_cast<size_t>(n_in_); ++i) {
    for (size_t d = 0; d < kDims; ++d) {
      const Axis& axis = input_[i].axes[d];
      const int64_t origin = call.origin[d], first = axis.first(origin);
      at[i] += axis.local(origin, first, axis.first(origin + sizes[d] - 1) - first + 1, "element-wise input");
    }
  }
  return at;
}

std::vector<int64_t> Strided::places(const Call& call, size_t input, size_t d, int64_t count) const {
  const Axis& axis = input_[input].axes[d];
  std::vector<int64_t> found(static_cast<size_t>(count), 0);
  if (axis.stride == 0) return found;
  const int64_t begins = axis.origin(call.origin[d]);
  for (int64_t i = 0; i < count; ++i) found[static_cast<size_t>(i)] = (axis.first(call.origin[d] + i) - begins) * axis.stride;
  return found;
}

const Box& Strided::box(const Call& call, Box& own) const {
  const Sizes sizes = held(call);
  if (sizes == tile_) return full_;
  std::memset(call.out, 0, static_cast<size_t>(elements_) * width_);
  own = collapsed(sizes);
  return own;
}

}  // namespace onedispatch::kernels
