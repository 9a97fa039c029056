// SPDX-License-Identifier: Apache-2.0
#include "sim/transport/bd.h"

#include "onedispatch/txn_format.h"

namespace onedispatch::sim {
namespace {

// Inlined, so that fields, which are constants, settle when this is compiled.
template <typename Number = uint32_t>
[[gnu::always_inline]] inline Number get(const Field& field, const BdWords& words) {
  return static_cast<Number>(field.get(words[field.word]));
}

// Fields that all three kinds have, under the same names in three namespaces.
#define ONEDISPATCH_COMMON_FIELDS(ns)                    \
  bd.shape.length = get(ns::length, w);                  \
  bd.shape.dims[0].step = get(ns::d0_step, w);           \
  bd.shape.dims[0].size = get(ns::d0_wrap, w);           \
  bd.shape.dims[1].step = get(ns::d1_step, w);           \
  bd.shape.dims[1].size = get(ns::d1_wrap, w);           \
  bd.shape.dims[2].step = get(ns::d2_step, w);           \
  bd.valid = get(ns::valid, w) != 0;                     \
  bd.acquire = get(ns::acquire_enable, w) != 0;          \
  bd.acquire_lock = get(ns::acquire_lock, w);            \
  bd.acquire_value = get<int32_t>(ns::acquire_value, w); \
  bd.release_lock = get(ns::release_lock, w);            \
  bd.release_value = get<int32_t>(ns::release_value, w); \
  bd.use_next = get(ns::use_next, w) != 0;               \
  bd.next = get(ns::next_bd, w);                         \
  bd.packet = get(ns::enable_packet, w) != 0;            \
  bd.packet_id = get(ns::packet_id, w);                  \
  bd.packet_type = get(ns::packet_type, w);              \
  bd.suppress_tlast = get(ns::suppress_tlast, w) != 0;   \
  bd.iteration_step = get<uint64_t>(ns::iteration_step, w); \
  bd.iteration = get(ns::iteration_current, w);          \
  bd.iterations = get(ns::iteration_wrap, w);            \
  const uint64_t iteration = bd.iteration * bd.iteration_step

Bd decode_shim(const BdWords& w) {
  Bd bd;
  ONEDISPATCH_COMMON_FIELDS(bd::shim);
  bd.shape.count = 3;
  bd.byte_address = (get<uint64_t>(bd::shim::address_high, w) << 32) +
                    (get<uint64_t>(bd::shim::address_low, w) << 2) + iteration * 4;
  return bd;
}

Bd decode_mem(const BdWords& w) {
  Bd bd;
  ONEDISPATCH_COMMON_FIELDS(bd::mem);
  bd.shape.count = 4;
  bd.shape.base = get(bd::mem::base, w) + iteration;
  bd.shape.dims[2].size = get(bd::mem::d2_wrap, w);
  bd.shape.dims[3].step = get(bd::mem::d3_step, w);
  bd.shape.dims[0].before = get(bd::mem::d0_zeros_before, w);
  bd.shape.dims[1].before = get(bd::mem::d1_zeros_before, w);
  bd.shape.dims[2].before = get(bd::mem::d2_zeros_before, w);
  bd.shape.dims[0].after = get(bd::mem::d0_zeros_after, w);
  bd.shape.dims[1].after = get(bd::mem::d1_zeros_after, w);
  bd.shape.dims[2].after = get(bd::mem::d2_zeros_after, w);
  bd.compression = get(bd::mem::enable_compression, w) != 0;
  return bd;
}

Bd decode_core(const BdWords& w) {
  Bd bd;
  ONEDISPATCH_COMMON_FIELDS(bd::core);
  bd.shape.count = 3;
  bd.shape.base = get(bd::core::base, w) + iteration;
  bd.compression = get(bd::core::enable_compression, w) != 0;
  return bd;
}

#undef ONEDISPATCH_COMMON_FIELDS

[[gnu::always_inline]] inline void advance(const Field& current, const Field& wrap, BdWords& words) {
  uint32_t& word = words[current.word];
  const int64_t next = current.get(word) + 1;
  word = current.set(word, next >= wrap.get(words[wrap.word]) ? 0 : next);
}

}  // namespace

Bd decode_bd(TileKind kind, const BdWords& words) {
  switch (kind) {
    case TileKind::kShim: return decode_shim(words);
    case TileKind::kMem: return decode_mem(words);
    case TileKind::kCore: break;
  }
  return decode_core(words);
}

void step_iteration(TileKind kind, BdWords& words) {
  switch (kind) {
    case TileKind::kShim: return advance(bd::shim::iteration_current, bd::shim::iteration_wrap, words);
    case TileKind::kMem: return advance(bd::mem::iteration_current, bd::mem::iteration_wrap, words);
    case TileKind::kCore: return advance(bd::core::iteration_current, bd::core::iteration_wrap, words);
  }
}

void step_iteration(TileKind kind, Bd& bd) {
  const uint32_t next = bd.iteration + 1 >= bd.iterations ? 0 : bd.iteration + 1;
  const uint64_t moved = bd.iteration_step * (uint64_t{next} - bd.iteration);  // perhaps back, modulo 2^64
  bd.iteration = next;
  if (kind == TileKind::kShim) {
    bd.byte_address += 4 * moved;
  } else {
    bd.shape.base += moved;
  }
}

}  // namespace onedispatch::sim
