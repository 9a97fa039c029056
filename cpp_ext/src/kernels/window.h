// SPDX-License-Identifier: Apache-2.0
// Sliding windows: what CONV, DWCONV and POOL have in common (their argument words 41..65 agree).
//
// One channel of the chunk is copied into a plane that holds every coordinate the tile's windows
// touch, padding included. Columns are split by their phase modulo the horizontal stride, so that a
// tap's values for neighbouring outputs are neighbours in memory whatever the stride.
#pragma once
#include <vector>

#include "kernel.h"
#include "simd.h"

namespace onedispatch::kernels {

class Window {
 public:
  // Whether channels follow an index dimension (word 41) or the reduction (CONV, where 41 is dim_co).
  enum class Channels { kIndex, kReduction };
  Window(const Setup& setup, const char* name, Channels channels);

  uint32_t dim_c = 0, dim_h = 0, dim_w = 0;  // dim_c is dim_co for CONV
  int tile_c = 1, rows = 1, columns = 1;     // tile of those
  int kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1;
  PortRef x;
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
  // The tile is the chunk itself, row by row: no plane is needed (1x1, stride 1, no padding).
  bool direct(const Call& call) const;

  // Fills the plane of one channel in scratch and describes its taps. The border is written once
  // per call, by `fill_border`.
  Taps plane_taps() const;
  void fill_border(const Call& call, float padding) const;
  void fill_channel(const Call& call, const float* channel) const;

 private:
  struct Range {  // outputs of a plane line that lie inside the tensor
    int64_t first, end;
  };
  Range inside(int64_t coordinate, int64_t step, int64_t count, int64_t extent) const;
  float* plane() const;

  int plane_rows_ = 1;
  int phase_columns_ = 1;  // columns of one phase
  std::vector<int32_t> offsets_;
  std::vector<uint8_t> row_used_, phase_used_;
};

}  // namespace onedispatch::kernels
