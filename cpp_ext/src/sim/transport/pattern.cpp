// SPDX-License-Identifier: Apache-2.0
#include "sim/transport/pattern.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "sim/array/bytes.h"

namespace onedispatch::sim {
Shape resolve(Shape shape) {
  uint64_t inner = 1;
  unsigned used = 0;
  for (; used < shape.count; ++used) {
    Dimension& dim = shape.dims[used];
    const bool outermost = used + 1 == shape.count || dim.size == 0;
    if (outermost) {
      dim.size = std::max<uint64_t>(1, (shape.length + inner - 1) / inner);
      ++used;
      break;
    }
    inner *= dim.size;
  }
  shape.count = used;
  return shape;
}

Shape resolve_padded(Shape shape) {
  std::array<uint64_t, kMaxDimensions> block{}, data{};  // stream words and data words below a dimension
  uint64_t inner = 1, inside = 1;
  unsigned used = 0;
  for (bool outermost = false; used < shape.count && !outermost; ++used) {
    Dimension& dim = shape.dims[used];
    outermost = used + 1 == shape.count || dim.size == 0;
    if (outermost) dim.size = std::max<uint64_t>(1, (shape.length + inner - 1) / inner);
    block[used] = inner;
    data[used] = inside;
    inner *= dim.size + dim.before + dim.after;
    inside *= dim.size;
  }
  shape.count = used;
  uint64_t words = 0, left = shape.length;
  for (unsigned d = used; d-- > 0;) {
    const Dimension& dim = shape.dims[d];
    const uint64_t at = left / block[d];  // whole blocks of this dimension
    words += std::min(at - std::min<uint64_t>(at, dim.before), dim.size) * data[d];
    if (at < dim.before || at >= dim.before + dim.size) break;  // what is left lies in padding
    left %= block[d];
  }
  shape.length = words;
  return shape;
}

uint64_t furthest_word(const Shape& resolved) {
  if (resolved.length == 0) return 0;
  uint64_t block = 1, reach = 0;  // of the dimensions below the outermost one
  for (unsigned d = 0; d + 1 < resolved.count; ++d) {
    block *= resolved.dims[d].size;
    reach += (resolved.dims[d].size - 1) * resolved.dims[d].step;
  }
  const Dimension& outermost = resolved.dims[resolved.count - 1];
  if (block * outermost.size == resolved.length) return reach + (outermost.size - 1) * outermost.step;
  uint64_t best = 0;
  uint64_t prefix = 0;  // offset of the partial block that the walk has entered so far
  uint64_t left = resolved.length;
  for (unsigned d = resolved.count; d-- > 0 && left > 0;) {
    uint64_t inner = 1;
    uint64_t inner_furthest = 0;
    for (unsigned k = 0; k < d; ++k) {
      inner *= resolved.dims[k].size;
      inner_furthest += (resolved.dims[k].size - 1) * resolved.dims[k].step;
    }
    const uint64_t whole = left / inner;
    if (whole > 0) best = std::max(best, prefix + (whole - 1) * resolved.dims[d].step + inner_furthest);
    prefix += whole * resolved.dims[d].step;
    left %= inner;
  }
  return best;
}

bool has_padding(const Shape& shape) {
  for (unsigned d = 0; d < kMaxDimensions; ++d)
    if (shape.dims[d].before || shape.dims[d].after) return true;
  return false;
}

Cursor::Cursor(const Shape& resolved, uint8_t* memory, ValidMap* valid, uint32_t pad_value) {
  memory_ = memory;
  valid_ = valid;
  origin_ = resolved.base;
  padded_ = has_padding(resolved);
  pad_value_ = pad_value;
  if (padded_) {
    outer_ = resolved.dims;
    outer_count_ = resolved.count;
    run_ = resolved.dims[0].size;
    return;
  }
  unsigned d = 0;
  // Merge dimensions into the run as long as they continue it without a gap.
  while (d < resolved.count && (resolved.dims[d].size == 1 || resolved.dims[d].step == run_)) {
    run_ *= resolved.dims[d].size;
    ++d;
  }
  for (; d < resolved.count; ++d) {
    const Dimension& dim = resolved.dims[d];
    if (dim.size == 1) continue;
    if (outer_count_ > 0) {
      Dimension& last = outer_[outer_count_ - 1];
      if (dim.step == last.size * last.step) {
        last.size *= dim.size;
        continue;
      }
    }
    outer_[outer_count_++] = dim;
  }
}

// Whole runs from here on along the innermost outer dimension, of which `words` hold.
uint64_t Cursor::whole_runs(uint64_t words) const {
  if (position_ != 0 || outer_count_ == 0 || words < 2 * run_) return 0;
  return std::min(words / run_, outer_[0].size - index_[0]);
}

void Cursor::skip_runs(uint64_t runs) {
  index_[0] += runs - 1;
  offset_ += (runs - 1) * outer_[0].step;
  next_run();
}

uint64_t Cursor::bursts_of_runs(uint64_t words, uint64_t first, unsigned shift) {
  const uint64_t inside = (uint64_t{1} << shift) - 1;
  uint64_t count = 0;
  while (words > 0) {
    const uint64_t here = std::min(words, run_ - position_);
    const uint64_t begin = first + 4 * address(), end = begin + 4 * here;
    const uint64_t touched = ((end - 1) >> shift) - (begin >> shift) + 1;
    count += touched;
    if (begin == burst_end_ && (begin & inside) != 0) --count;
    burst_end_ = end;
    const uint64_t runs = whole_runs(words);
    if (runs > 1 && outer_[0].step != run_) {
      const uint64_t pitch = 4 * outer_[0].step;
      if ((pitch & inside) == 0) {  // they all lie alike
        count += (runs - 1) * touched;
      } else {
        uint64_t at = begin;
        for (uint64_t i = 1; i < runs; ++i) {
          at += pitch;
          count += ((at + 4 * run_ - 1) >> shift) - (at >> shift) + 1;
        }
      }
      burst_end_ += (runs - 1) * pitch;
      words -= runs * run_;
      skip_runs(runs);
      continue;
    }
    words -= here;
    position_ += here;
    if (position_ == run_) next_run();
  }
  return count;
}

// Whole one-word runs along the innermost outer dimension: the case of a transposing pattern.
template <typename Byte>
uint64_t Cursor::strided(Byte* data, uint64_t words, uint64_t step, uint64_t* done) {
  const uint64_t count = std::min(words, outer_[0].size - index_[0]);
  uint64_t at = address();
  uint64_t unwritten = kAllWritten;
  const bool written = !std::is_const_v<Byte> && valid_->all_written(at, (count - 1) * step + 1);
  for (uint64_t i = 0; i < count; ++i, at += step) {
    if constexpr (!std::is_const_v<Byte>) {
      if (!written && unwritten == kAllWritten && !valid_->all_written(at, 1)) unwritten = at;
      store32(data + 4 * i, load32(memory_ + 4 * at));
    } else {
      store32(memory_ + 4 * at, load32(data + 4 * i));
      valid_->mark(at, 1);
    }
  }
  skip_runs(count);
  *done = count;
  return unwritten;
}

// Whole runs that lie in memory of which all is written, what is between them too. Returns how many words that were.
uint64_t Cursor::gather_runs(uint8_t* data, uint64_t words) {
  const uint64_t runs = whole_runs(words), step = outer_[0].step;
  if (runs < 2 || !valid_->all_written(address(), (runs - 1) * step + run_)) return 0;
  const uint8_t* from = memory_ + 4 * address();
  const uint64_t ahead = 4 * 4 * step;  // four runs: what lies apart is fetched in time
  for (uint64_t i = 0; i < runs; ++i, from += 4 * step, data += 4 * run_) {
    for (uint64_t line = 0; line < 4 * run_; line += 64) __builtin_prefetch(from + ahead + line);
    copy_words(data, from, run_);
  }
  skip_runs(runs);
  return runs * run_;
}

template <typename Byte>
uint64_t Cursor::walk(Byte* data, uint64_t words) {
  uint64_t unwritten = kAllWritten;
  while (words > 0) {
    uint64_t here = 0;
    uint64_t bad = kAllWritten;
    if (run_ == 1 && outer_count_ > 0) {
      bad = strided(data, words, outer_[0].step, &here);
    } else {
      if constexpr (!std::is_const_v<Byte>) here = gather_runs(data, words);
      if (here != 0) {
        data += 4 * here;
        words -= here;
        continue;
      }
      here = std::min(words, run_ - position_);
      const uint64_t at = address();
      if constexpr (!std::is_const_v<Byte>) {
        const uint64_t found = valid_->first_unwritten(at, here);
        if (found != at + here) bad = found;
        copy_words(data, memory_ + 4 * at, here);
      } else {
        copy_words(memory_ + 4 * at, data, here);
        valid_->mark(at, here);
      }
      position_ += here;
      if (position_ == run_) next_run();
    }
    if (unwritten == kAllWritten) unwritten = bad;
    data += 4 * here;
    words -= here;
  }
  return unwritten;
}

uint64_t Cursor::gather_padded(uint8_t* out, uint64_t words) {
  uint64_t unwritten = kAllWritten;
  const auto data = [&](uint64_t at, uint64_t count) {
    const uint64_t found = valid_->first_unwritten(at, count);
    if (unwritten == kAllWritten && found != at + count) unwritten = found;
    copy_words(out, memory_ + 4 * at, count);
    out += 4 * count;
  };
  const auto padding = [&](uint64_t count) {
    for (; count > 0; --count, out += 4) store32(out, pad_value_);
  };
  walk_padded(words, data, padding);
  return unwritten;
}

uint64_t Cursor::gather(uint8_t* out, uint64_t words) {
  return padded_ ? gather_padded(out, words) : walk(out, words);
}

void Cursor::scatter(const uint8_t* in, uint64_t words) { walk(in, words); }

uint8_t* Cursor::contiguous(uint64_t words) const {
  if (padded_ || words > run_ - position_) return nullptr;
  return memory_ + 4 * address();
}

uint64_t Cursor::skip_read(uint64_t words) {
  const uint64_t at = address();
  const uint64_t found = valid_->first_unwritten(at, words);
  position_ += words;
  if (position_ == run_) next_run();
  return found == at + words ? kAllWritten : found;
}

void Cursor::skip(uint64_t words) {
  if (padded_) {
    padded_position_ += words;
    return;
  }
  while (words > 0) {
    const uint64_t runs = whole_runs(words);
    if (runs != 0) {
      words -= runs * run_;
      skip_runs(runs);
      continue;
    }
    const uint64_t here = std::min(words, run_ - position_);
    words -= here;
    position_ += here;
    if (position_ == run_) next_run();
  }
}

void Cursor::skip_written(uint64_t words) {
  valid_->mark(address(), words);
  position_ += words;
  if (position_ == run_) next_run();
}

}  // namespace onedispatch::sim
