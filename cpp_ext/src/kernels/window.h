// SPDX-License-Identifier: Apache-2.0
// Sliding windows: what conv, dwconv and pool have in common: their dimensions (channel, oh, ow), their
// operand x along (channel or reduction, oh, ow), and seven scalars kh, kw, sh, sw, dh, dw, width in a row.
//
// One channel of the chunk is copied into a plane that holds every coordinate the tile's windows
// touch, padding included. Columns are split by their phase modulo the horizontal stride, so that a
// tap's values for neighbouring outputs are neighbours in memory whatever the stride.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

// What moves the bits of elements of so many bytes.
template <size_t Bytes>
struct MovedAs {
  using Type = float;
};
template <>
struct MovedAs<1> {
  using Type = uint8_t;
};

class Window {
 public:
  // `kh` is the first of the scalars.
  Window(const Setup& setup, uint32_t kh);

  uint32_t dim_c = 0, dim_h = 0, dim_w = 0;  // index dimensions; dim_c is the output channel for conv
  int tile_c = 1, rows = 1, columns = 1;     // tile of those
  int kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1;
  int64_t width = 1;  // columns of x; what its rows hold beyond only fills up words
  Operand x;
  Axis x_c, x_h, x_w;

  int taps() const { return kh * kw; }
  int pixels() const { return rows * columns; }
  // Coordinates of the first tap of the tile's first output.
  int64_t first_row(const Call& call) const { return int64_t{call.origin[dim_h]} * sh + x_h.b; }
  int64_t first_column(const Call& call) const { return int64_t{call.origin[dim_w]} * sw + x_w.b; }
  // First channel of the call's chunk, in elements; throws as Axis::local.
  int64_t channel(const Call& call) const;
  // Throws ProgramError unless the chunk holds all coordinates that are not padding.
  void check(const Call& call) const;
  // No padding: windows read the chunk where it lies, by these offsets from their first tap. Null where they need planes.
  // `first` becomes the position of the first output's in its channel.
  const int32_t* without_planes(const Call& call, int64_t& first) const;
  // The same of one tap: outputs are input elements.
  bool single_tap(const Call& call, int64_t& first) const { return taps() == 1 && without_planes(call, first) != nullptr; }
  // Elements from a channel of the output to the next: they may lie apart, but not what is in one.
  size_t channels_apart(const Operand& out) const;
  // With a single tap: the outputs of a channel lie together in the chunk.
  bool contiguous() const {
    return sw * x_w.stride == 1 && (rows == 1 || sh * x_h.stride == columns);
  }

  // Elements from the first of a channel in the chunk to the last of `channels` of them.
  int64_t channels_reach(int64_t channels) const {
    return (channels - 1) * x_c.stride + (x_h.chunk - 1) * x_h.stride + (x_w.chunk - 1) * x_w.stride + 1;
  }

  // Calls use(channel index, taps over its plane) for `channels` channels of elements that start at `first`.
  template <class Element, class Use>
  void for_channels(const Call& call, const Element* first, int channels, Element padding, Use use) const {
    for_each_channel(call, channels, padding, [&](int c) { return first + c * x_c.stride; }, use);
  }
  // The same of channels that begin at channel(index), which may be overwritten when the next one is asked for.
  // Two planes in scratch take turns: the next one is filled before the last is used, so that its
  // stores have left the core's store buffer by then.
  template <class Element, class Channel, class Use>
  void for_each_channel(const Call& call, int channels, Element padding, Channel channel, Use use) const {
    using Moved = typename MovedAs<sizeof(Element)>::Type;  // copies move elements of any type
    Moved bits;
    std::memcpy(&bits, &padding, sizeof bits);
    fill_border(call, bits);
    const Plan plan = plan_copies(call);
    Moved* const planes[2] = {plane<Moved>(0), plane<Moved>(1)};
    const TapsOf<Element> taps[2] = {taps_of(reinterpret_cast<const Element*>(planes[0])), taps_of(reinterpret_cast<const Element*>(planes[1]))};
    for (int c = 0; c <= channels; ++c) {
      if (c < channels) fill_channel(plan, reinterpret_cast<const Moved*>(channel(c)), planes[c % 2]);
      if (c > 0) use(c - 1, taps[(c - 1) % 2]);
    }
  }

  // Planes of `channels` channels that start at `first`, one behind the other in scratch, with zeros around.
  Taps planes(const Call& call, const float* first, ptrdiff_t stride, int channels) const {
    const size_t elements = plane_elements();
    auto* made = static_cast<float*>(scratch(kScratchPlane, (elements * static_cast<size_t>(channels) + kOverrun) * sizeof(float)));
    if (has_border(call)) std::fill_n(made, elements * static_cast<size_t>(channels), 0.0f);
    const Plan plan = plan_copies(call);
    for (int c = 0; c < channels; ++c) fill_channel(plan, first + c * stride, made + static_cast<size_t>(c) * elements);
    return taps_of<float>(made);
  }
  size_t plane_elements() const {
    return static_cast<size_t>(plane_rows_) * static_cast<size_t>(sw) * static_cast<size_t>(phase_columns_);
  }

 private:
  struct Range {  // outputs of a plane line that lie inside the tensor
    int64_t first, end;
  };
  struct Copy {  // rows of one phase that go from a channel to its plane in one go
    ptrdiff_t source, target, source_row, target_row;
    int rows, columns;
  };
  struct Plan {  // the same for all channels of a call; lies in scratch
    const Copy* copies;
    int count;
  };
  void require_steps(const Setup& setup) const;
  Range inside(int64_t coordinate, int64_t step, int64_t count, int64_t extent) const;
  template <class Moved>
  Moved* plane(int slot) const {
    const size_t elements = plane_elements() + kOverrun;
    return static_cast<Moved*>(scratch(kScratchPlane, elements * 2 * sizeof(Moved))) + static_cast<size_t>(slot) * elements;
  }
  template <class Element>
  TapsOf<Element> taps_of(const Element* plane) const {
    TapsOf<Element> taps{};
    taps.plane = plane;
    taps.plane_row = static_cast<ptrdiff_t>(sh) * sw * phase_columns_;
    taps.offsets = offsets_.data();
    taps.taps = this->taps();
    taps.rows = rows;
    taps.columns = columns;
    return taps;
  }
  template <class Moved>
  void fill_border(const Call& call, Moved padding) const {
    if (!has_border(call)) return;
    for (int slot = 0; slot < 2; ++slot) std::fill_n(plane<Moved>(slot), plane_elements(), padding);
  }
  bool has_border(const Call& call) const;
  Plan plan_copies(const Call& call) const;
  template <class Moved>
  void fill_channel(const Plan& plan, const Moved* channel, Moved* plane) const {
    const ptrdiff_t stride = sw * x_w.stride;
    for (int i = 0; i < plan.count; ++i) {
      const Copy& c = plan.copies[i];
      if constexpr (sizeof(Moved) == 1) {
        simd().copy_byte_rows(channel + c.source, c.source_row, stride, plane + c.target, c.target_row, c.rows, c.columns);
      } else {
        simd().copy_rows(channel + c.source, c.source_row, stride, plane + c.target, c.target_row, c.rows, c.columns);
      }
    }
  }

  int plane_rows_ = 1;
  int phase_columns_ = 1;  // columns of one phase
  std::vector<int32_t> offsets_, direct_offsets_;  // in planes; in the chunk
  std::vector<uint8_t> row_used_, phase_used_;
};

}  // namespace onedispatch::kernels
