// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace onedispatch::kernels {

namespace {

constexpr int64_t kMaxPlane = params::limit::window_plane;
constexpr int64_t kMaxTaps = params::limit::window_taps;

// Throws unless [first, last] without what lies outside the tensor is in the chunk.
void require_held(const Axis& axis, int64_t extent, int64_t tile_origin, int64_t first, int64_t last, const char* name) {
  const int64_t from = std::max<int64_t>(first, 0), to = std::min(last, extent - 1);
  if (from > to) return;
  const int64_t origin = axis.origin(tile_origin);
  if (from < origin || to >= origin + axis.chunk) {
    reject(std::string(name) + ": the windows need coordinates " + extent_of(from, to) + ", the chunk holds " + std::to_string(axis.chunk) + " from " + std::to_string(origin));
  }
}

}  // namespace

Window::Window(const Setup& setup, uint32_t kh_scalar)
    : dim_c(setup.roles[0]),
      dim_h(setup.roles[1]),
      dim_w(setup.roles[2]),
      tile_c(static_cast<int>(setup.tile(0))),
      rows(static_cast<int>(setup.tile(1))),
      columns(static_cast<int>(setup.tile(2))),
      x(setup.operands[0]),
      x_c(x.axes[0]),
      x_h(x.axes[1]),
      x_w(x.axes[2]) {
  int* const steps[] = {&kh, &kw, &sh, &sw, &dh, &dw};
  for (uint32_t i = 0; i < 6; ++i) *steps[i] = static_cast<int>(setup.scalars[kh_scalar + i]);
  const uint32_t given = setup.scalars[kh_scalar + 6];
  width = given == 0 ? x_w.extent : given;
  if (width > x_w.extent) reject(setup, setup.spec->scalars[kh_scalar + 6].at, "width", "accepted: 0, or up to the extent of x, " + std::to_string(x_w.extent));
  require_steps(setup);
  const int64_t plane_rows = int64_t{rows - 1} * sh + int64_t{kh - 1} * dh + 1;
  const int64_t plane_columns = int64_t{columns - 1} * sw + int64_t{kw - 1} * dw + 1;
  const int64_t phase_columns = (plane_columns + sw - 1) / sw;
  if (plane_rows > kMaxPlane || plane_rows * phase_columns * sw > kMaxPlane || int64_t{kh} * kw > kMaxTaps) {
    reject("the tile's windows cover " + std::to_string(plane_rows) + " x " +
           std::to_string(plane_columns) + " input elements; accepted: " + std::to_string(kMaxPlane));
  }
  plane_rows_ = static_cast<int>(plane_rows);
  phase_columns_ = static_cast<int>(phase_columns);
  row_used_.assign(static_cast<size_t>(plane_rows_), 0);
  phase_used_.assign(static_cast<size_t>(sw), 0);
  for (int y = 0; y < kh; ++y) {
    for (int r = 0; r < rows; ++r) row_used_[static_cast<size_t>(r * sh + y * dh)] = 1;
    for (int c = 0; c < kw; ++c) {
      const int phase = c * dw % sw;
      phase_used_[static_cast<size_t>(phase)] = 1;
      offsets_.push_back((y * dh * sw + phase) * phase_columns_ + c * dw / sw);
      const int64_t direct = y * dh * x_h.stride + c * dw * x_w.stride;
      if (direct == static_cast<int32_t>(direct)) direct_offsets_.push_back(static_cast<int32_t>(direct));
    }
  }
}

// The windows of outputs that a chunk serves follow its axes: coordinates are o * stride + b.
void Window::require_steps(const Setup& setup) const {
  const uint32_t at = setup.spec->operands[0].at + 1;
  for (const auto& [axis, step, word] : {std::tuple{&x_h, sh, at + params::kAxisWords + 3}, std::tuple{&x_w, sw, at + 2 * params::kAxisWords + 3}}) {
    if (x.present && axis->stride != 0 && (axis->a != step || axis->den != 1)) {
      reject(setup, word, "x: access", "accepted: a as the window's stride, " + std::to_string(step) + ", and denominator 1");
    }
  }
}

int64_t Window::channel(const Call& call) const {
  const int64_t at = call.origin[dim_c];
  return x_c.local(at, at, tile_c, "window input channels");
}

void Window::check(const Call& call) const {
  const int64_t h = first_row(call), w = first_column(call);
  require_held(x_h, x_h.extent, call.origin[dim_h], h, h + plane_rows_ - 1, "window input rows");
  require_held(x_w, width, call.origin[dim_w], w, w + int64_t{columns - 1} * sw + int64_t{kw - 1} * dw, "window input columns");
}

const int32_t* Window::without_planes(const Call& call, int64_t& first) const {
  const int64_t h = first_row(call), w = first_column(call);
  first = (h - x_h.origin(call.origin[dim_h])) * x_h.stride + (w - x_w.origin(call.origin[dim_w])) * x_w.stride;
  const int64_t last = w + int64_t{columns - 1} * sw + int64_t{kw - 1} * dw;
  const bool inside = h >= 0 && w >= 0 && h + plane_rows_ <= x_h.extent && last < width;
  return inside && direct_offsets_.size() == offsets_.size() ? direct_offsets_.data() : nullptr;
}

// Those i in [0, count) with 0 <= coordinate + i * step < extent.
Window::Range Window::inside(int64_t coordinate, int64_t step, int64_t count, int64_t extent) const {
  const int64_t first = coordinate >= 0 ? 0 : (-coordinate + step - 1) / step;
  const int64_t end = coordinate >= extent ? 0 : (extent - coordinate + step - 1) / step;
  const int64_t bounded = std::min(end, count);
  return first < bounded ? Range{first, bounded} : Range{0, 0};
}

// Whether the windows reach beyond the tensor.
bool Window::has_border(const Call& call) const {
  const int64_t h = first_row(call), w = first_column(call);
  const Range all_rows = inside(h, 1, plane_rows_, x_h.extent);
  bool any = all_rows.end - all_rows.first < plane_rows_;
  for (int p = 0; p < sw; ++p) {
    const Range r = inside(w + p, sw, phase_columns_, width);
    any = any || r.end - r.first < phase_columns_;
  }
  return any;
}

Window::Plan Window::plan_copies(const Call& call) const {
  const int64_t h = first_row(call), w = first_column(call);
  const int64_t origin_h = x_h.origin(call.origin[dim_h]), origin_w = x_w.origin(call.origin[dim_w]);
  const Range lines = inside(h, 1, plane_rows_, x_h.extent);
  const ptrdiff_t line = static_cast<ptrdiff_t>(sw) * phase_columns_;
  const int step = kh == 1 ? sh : 1;  // one-line windows use every sh-th row, others most rows
  auto* copies = static_cast<Copy*>(
      scratch(kScratchPlan, sizeof(Copy) * static_cast<size_t>(sw) * static_cast<size_t>(plane_rows_)));
  int count = 0;
  for (int p = 0; p < sw; ++p) {
    if (phase_used_[static_cast<size_t>(p)] == 0) continue;
    // Columns past the last tap may not be in the chunk: they are never read.
    const int64_t needed = (int64_t{columns - 1} * sw + int64_t{kw - 1} * dw - p) / sw + 1;
    const Range r = inside(w + p, sw, needed, width);
    if (r.end == r.first) continue;
    const int64_t from = (h - origin_h) * x_h.stride + (w + p + r.first * sw - origin_w) * x_w.stride;
    for (int64_t y = lines.first; y < lines.end;) {
      if (row_used_[static_cast<size_t>(y)] == 0) {
        ++y;
        continue;
      }
      int64_t end = y + step;
      while (end < lines.end && row_used_[static_cast<size_t>(end)] != 0) end += step;
      copies[count++] = {from + y * x_h.stride, p * ptrdiff_t{phase_columns_} + r.first + y * line,
                         step * x_h.stride, step * line,
                         static_cast<int>((end - y) / step), static_cast<int>(r.end - r.first)};
      y = end;
    }
  }
  return {copies, count};
}

size_t Window::channels_apart(const Operand& out) const {
  const auto &channels = out.axes[0], &lines = out.axes[1], &neighbours = out.axes[2];
  if ((columns > 1 && neighbours.stride != 1) || (rows > 1 && lines.stride != columns)) reject("windows: out; accepted: channels whose rows lie together");
  return static_cast<size_t>(tile_c > 1 ? channels.stride : pixels());
}

}  // namespace onedispatch::kernels
