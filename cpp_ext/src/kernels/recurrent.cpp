// SPDX-License-Identifier: Apache-2.0
// od::recurrent: one step of a recurrent layer. Out chunk [T_part][T_b][T_n]; the sums of all gates, [T_b][gates][T_n],
// wait at the beginning of the scratch for the last step of the reduction.
#include <algorithm>
#include <cstring>

#include "kernel.h"
#include "simd/simd.h"

namespace onedispatch::kernels {

namespace {

namespace operand = params::recurrent::operand;
namespace scalar = params::recurrent::scalar;
namespace cells = params::recurrent_cell;

class Recurrent final : public Kernel {
 public:
  explicit Recurrent(const Setup& setup)
      : dim_b_(setup.roles[1]),
        dim_n_(setup.roles[2]),
        rows_(setup.tile(1)),
        n_(setup.tile(2)),
        out_row_(rows_ > 1 ? setup.operands[operand::out].axes[1].stride : n_),
        out_part_(setup.tile(0) > 1 ? setup.operands[operand::out].axes[0].stride : rows_ * n_),
        cell_(setup.scalars[scalar::cell]),
        clip_(setup.f32(scalar::clip)),
        h_(setup.operands[operand::h]),
        r_(setup.operands[operand::r]),
        x_(setup.operands[operand::x]),
        prev_(setup.operands[operand::prev]),
        more_(setup.operands[operand::more]),
        k_panels_(setup, r_, 0),
        n_panels_(setup, r_, 2),
        f_(setup, scalar::f),
        g_(setup, scalar::g),
        h_act_(setup, scalar::h_act) {
    static constexpr int64_t kGates[] = {1, 3, 2, 1, 4, 4}, kMade[] = {1, 1, 3, 1, 2, 2}, kRead[] = {0, 1, 1, 2, 1, 1};
    gates_ = kGates[cell_];
    expect(setup, operand::r, 1, r_.axes[1].chunk == gates_, "the gates of the cell");
    expect(setup, operand::x, 1, x_.axes[1].chunk == gates_, "the gates of the cell");
    const bool lstm = cell_ >= cells::lstm_;
    if (setup.tile(0) != kMade[cell_]) reject(setup, params::header::dims + params::dim::kWords * setup.roles[0] + 1, "part: tile", "accepted: " + std::to_string(kMade[cell_]) + " of this cell");
    const int64_t read = prev_.present ? prev_.axes[0].chunk : 0;
    if (read != kRead[cell_]) reject(setup, setup.spec->operands[operand::prev].at, "parts of prev", "accepted: " + std::to_string(kRead[cell_]) + " of this cell");
    const bool bias = cell_ == cells::gru_ && more_.axes[0].chunk == 1, peepholes = lstm && more_.axes[0].chunk == 3;
    if (more_.present) expect(setup, operand::more, 0, bias || peepholes, "1 of a GRU whose reset gate scales the product, 3 of an LSTM");
    if (n_ > 1 && setup.operands[operand::out].axes[2].stride != 1) reject("recurrent: out; accepted: rows whose elements are neighbours");
    if ((k_panels_ || n_panels_) && n_ > 1 && r_.axes[2].stride != 1) reject("recurrent: panels of r; accepted: of columns that are neighbours");
    const uint64_t k = std::min(setup.k_tile, setup.k_extent);
    const bool in_core = h_.bytes <= params::kCoreMemoryBytes;  // else operands lie anywhere
    if (in_core && static_cast<uint64_t>(std::max(rows_, n_ * gates_)) * k > params::kCoreMemoryBytes) {
      reject(setup, params::header::k_tile, "reduction tile", "its product with a tile side must be at most 65536");
    }
  }

  void check(const Call& call) const override { offsets_of(call); }

  void run(const Call& call) const override {
    const ChunkOffsets at = offsets_of(call);
    auto* sums = reinterpret_cast<float*>(call.scratch);
    add_products(call, at, sums);
    if (call.k_last == 0) return;
    if (gates_together()) sums = by_gate(sums);
    auto* out = reinterpret_cast<float*>(call.out);
    for (int64_t b = 0; b < rows_; ++b) finish(call, at, b, sums + b * gates_ * n_, out + b * out_row_);
  }

 private:
  // Offsets into the chunks, in elements.
  struct ChunkOffsets {
    int64_t h = 0, r = 0, x = 0, prev = 0, more = 0;
  };

  static void expect(const Setup& setup, uint32_t which, uint32_t axis, bool holds, const char* accepted) {
    if (!holds) reject(setup, setup.spec->operands[which].at + 1 + params::kAxisWords * axis, setup.spec->operands[which].name, std::string("accepted: ") + accepted);
  }

  ChunkOffsets offsets_of(const Call& call) const {
    const int64_t b = call.origin[dim_b_], n = call.origin[dim_n_], k = call.k_first;
    ChunkOffsets at;
    if (call.k_count != 0) {
      at.h = h_.axes[0].local(b, b, rows_, "recurrent: h along b") + h_.axes[1].local(k, k, call.k_count, "recurrent: h along k");
      at.r = local(r_.axes[0], k_panels_, k, call.k_count, "recurrent: r along k") + local(r_.axes[2], n_panels_, n, n_, "recurrent: r along n");
    }
    at.x = x_.axes[0].local(b, b, rows_, "recurrent: x along b") + x_.axes[2].local(n, n, n_, "recurrent: x along n");
    if (prev_.present) at.prev = prev_.axes[1].local(b, b, rows_, "recurrent: prev along b") + prev_.axes[2].local(n, n, n_, "recurrent: prev along n");
    if (more_.present) at.more = more_.axes[1].local(n, n, n_, "recurrent: more along n");
    return at;
  }

  void add_products(const Call& call, const ChunkOffsets& at, float* sums) const {
    const int64_t columns = gates_ * n_;
    if (call.k_count == 0) {
      if (call.k_index == 0) std::fill_n(sums, rows_ * columns, 0.0f);
      return;
    }
    const float* r = r_.f32_in(call) + at.r;
    const Axis &along_k = r_.axes[0], &gate = r_.axes[1], &along_n = r_.axes[2];
    if (gates_together()) return add_product(call, at, r, along_k.stride, sums, columns);
    if (n_panels_ || k_panels_ || (gates_ > 1 && gate.stride != n_ && along_n.stride == 1 && along_k.stride >= n_)) {
      for (int64_t g = 0; g < gates_; ++g) add_product(call, at, r + g * gate.stride, along_k.stride, sums + g * n_, n_);
      return;
    }
    const bool lies = (n_ == 1 || along_n.stride == 1) && (gates_ == 1 || gate.stride == n_) && along_k.stride >= columns;
    if (lies) return add_product(call, at, r, along_k.stride, sums, columns);
    // Made so: the gates of a member of k side by side.
    auto* packed = static_cast<float*>(scratch(kScratchColumns, static_cast<size_t>(call.k_count * columns) * sizeof(float)));
    for (int64_t g = 0; g < gates_; ++g) {
      for (int64_t n = 0; n < n_; ++n) {
        const float* from = r + g * gate.stride + n * along_n.stride;
        float* to = packed + g * n_ + n;
        for (int64_t k = 0; k < call.k_count; ++k) to[k * columns] = from[k * along_k.stride];
      }
    }
    add_product(call, at, packed, columns, sums, columns);
  }

  // Adds what n columns of r, whose members of k are r_k apart, make of h to theirs of the sums.
  void add_product(const Call& call, const ChunkOffsets& at, const float* r, int64_t r_k, float* sums, int64_t n) const {
    GemmF32 product{};
    product.a_m = h_.axes[0].stride;
    product.a_k = h_.axes[1].stride;
    product.b_k = r_k;
    product.c = sums;
    product.c_m = gates_ * n_;
    product.m = static_cast<int>(rows_);
    product.n = static_cast<int>(n);
    product.width = static_cast<int>(gates_together() ? n_panels_.length * gates_ : n_panels_.length);
    product.next = n_panels_.stride;
    product.accumulate = call.k_index != 0;
    for (int64_t done = 0; done < call.k_count; product.accumulate = true) {
      const Panels::Run run = k_panels_.run(done, static_cast<int>(call.k_count - done));
      product.a = h_.f32_in(call) + at.h + done * product.a_k;
      product.b = r + run.panel * k_panels_.stride;
      product.k = run.members;
      product.more_panels = run.more;
      product.a_panel = run.members * product.a_k;
      product.b_panel = k_panels_.stride;
      simd().gemm_f32(product);
      done += run.all();
    }
  }

  // Whether the columns of all gates are neighbours in each panel, and every panel is whole: their sums wait by panel.
  bool gates_together() const {
    const int64_t length = n_panels_.length;
    return n_panels_ && n_ % length == 0 && (length == 1 || r_.axes[2].stride == 1) && (gates_ == 1 || r_.axes[1].stride == length) && r_.axes[0].stride >= gates_ * length;
  }

  // Sums [b][panels][gates][n of a panel] as [b][gates][n].
  float* by_gate(const float* sums) const {
    const int64_t length = n_panels_.length, panels = n_ / length;
    auto* made = static_cast<float*>(scratch(kScratchColumns, static_cast<size_t>(rows_ * gates_ * n_) * sizeof(float)));
    for (int64_t b = 0; b < rows_; ++b)
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t g = 0; g < gates_; ++g, sums += length) std::copy_n(sums, length, made + (b * gates_ + g) * n_ + panel * length);
    return made;
  }

  // What a gate's function is given.
  void clipped(float* values, int64_t count) const {
    if (clip_ == 0.0f) return;
    for (int64_t i = 0; i < count; ++i) values[i] = std::min(std::max(values[i], -clip_), clip_);
  }
  void apply(const Activation& function, float* values, int64_t count) const {
    clipped(values, count);
    function.apply(values, static_cast<size_t>(count));
  }
  void add(const float* x, int64_t step, float* to) const {
    for (int64_t i = 0; i < n_; ++i) to[i] += x[i * step];
  }

  void finish(const Call& call, const ChunkOffsets& at, int64_t b, float* s, float* out) const {
    const float* x = x_.f32_in(call) + at.x + b * x_.axes[0].stride;
    const bool scaled = cell_ == cells::gru_;  // the last gate's sum waits for the reset gate
    for (int64_t g = 0; g < gates_ - (scaled ? 1 : 0); ++g) add(x + g * x_.axes[1].stride, x_.axes[2].stride, s + g * n_);
    const float* prev = prev_.present ? prev_.f32_in(call) + at.prev + b * prev_.axes[1].stride : nullptr;
    switch (cell_) {
      case cells::rnn_:
        apply(g_, s, n_);
        std::copy_n(s, n_, out);
        return;
      case cells::gru_:
        gru(call, at, x + 2 * x_.axes[1].stride, prev, s, out);
        return;
      case cells::gru_gates_:
        apply(f_, s, 2 * n_);
        for (int64_t i = 0; i < n_; ++i) {
          const float h = prev[i * prev_.axes[2].stride];
          out[i] = s[n_ + i] * h;
          out[out_part_ + i] = s[i] * h;
          out[2 * out_part_ + i] = 1.0f - s[i];
        }
        return;
      case cells::gru_update_:
        apply(g_, s, n_);
        for (int64_t i = 0; i < n_; ++i) {
          const float* at_i = prev + i * prev_.axes[2].stride;
          out[i] = at_i[0] + at_i[prev_.axes[0].stride] * s[i];
        }
        return;
      default:
        lstm(call, at, prev, s, out);
    }
  }

  void gru(const Call& call, const ChunkOffsets& at, const float* x, const float* prev, float* s, float* out) const {
    apply(f_, s, 2 * n_);
    float* last = s + 2 * n_;
    if (more_.present) add(more_.f32_in(call) + at.more, more_.axes[1].stride, last);
    for (int64_t i = 0; i < n_; ++i) last[i] = x[i * x_.axes[2].stride] + s[n_ + i] * last[i];
    apply(g_, last, n_);
    for (int64_t i = 0; i < n_; ++i) out[i] = (1.0f - s[i]) * last[i] + s[i] * prev[i * prev_.axes[2].stride];
  }

  void add_peeped(const Call& call, const ChunkOffsets& at, int64_t which, const float* c, int64_t step, float* to) const {
    if (!more_.present) return;
    const float* p = more_.f32_in(call) + at.more + which * more_.axes[0].stride;
    for (int64_t i = 0; i < n_; ++i) to[i] += p[i * more_.axes[1].stride] * c[i * step];
  }

  // Gates are input, output, forget and cell, as ONNX orders them; peepholes input, output, forget.
  void lstm(const Call& call, const ChunkOffsets& at, const float* prev, float* s, float* out) const {
    float *in = s, *o = s + n_, *forget = s + 2 * n_, *fresh = s + 3 * n_, *c = out + out_part_;
    const int64_t step = prev_.axes[2].stride;
    add_peeped(call, at, 0, prev, step, in);
    apply(f_, in, n_);
    if (cell_ == cells::lstm_coupled_) {
      for (int64_t i = 0; i < n_; ++i) forget[i] = 1.0f - in[i];
    } else {
      add_peeped(call, at, 2, prev, step, forget);
      apply(f_, forget, n_);
    }
    apply(g_, fresh, n_);
    for (int64_t i = 0; i < n_; ++i) c[i] = forget[i] * prev[i * step] + in[i] * fresh[i];
    add_peeped(call, at, 1, c, 1, o);
    apply(f_, o, n_);
    std::copy_n(c, n_, fresh);
    h_act_.apply(fresh, static_cast<size_t>(n_));  // of the cell, which is not bounded: what onnxruntime does
    for (int64_t i = 0; i < n_; ++i) out[i] = o[i] * fresh[i];
  }

  uint32_t dim_b_, dim_n_;
  int64_t rows_, n_, gates_ = 1;
  int64_t out_row_, out_part_;  // from a row or part of the results to the next
  uint32_t cell_;
  float clip_;
  Operand h_, r_, x_, prev_, more_;
  Panels k_panels_, n_panels_;  // of r
  Activation f_, g_, h_act_;
};

}  // namespace

ONEDISPATCH_KERNEL(recurrent, make<Recurrent>)

}  // namespace onedispatch::kernels
