// SPDX-License-Identifier: Apache-2.0
#include "sim/record/kept_chunks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "onedispatch/text.h"
#include "sim/array/bytes.h"

namespace onedispatch::sim {

namespace {

constexpr uint32_t kAlignment = 16;  // words: that of vectors

uint64_t whole_vectors(uint64_t words) { return (words + kAlignment - 1) / kAlignment * kAlignment; }

bool same_block(const RunBlock& a, const RunBlock& b) {
  return a.space == b.space && a.first == b.first && a.local == b.local && a.run == b.run && a.steps == b.steps;
}

}  // namespace

KeptChunks::KeptChunks(const Dataflow& flow, const Recording& recording, uint32_t argument)
    : flow_(flow), recording_(recording), argument_(argument), chunks_(flow.units.size()) {
  for (uint32_t unit = 0; unit < flow.units.size(); ++unit) units_[flow.units[unit].occurrence].push_back(unit);
}

// Views of the recording are made in the order in which calls read them: those of a unit are there before it is read.
bool KeptChunks::same_view(uint32_t one, uint32_t other) const {
  if (one == other) return true;
  if (one == kNoView || other == kNoView || std::max(one, other) >= recording_.views.size()) return false;
  const Recording::View &a = recording_.views[one], &b = recording_.views[other];
  if (a.words != b.words || a.direct != b.direct || a.blocks != b.blocks) return false;
  if (a.direct) return a.space == b.space && a.first == b.first;
  const auto* const blocks = recording_.blocks.data();
  return std::equal(blocks + a.first_block, blocks + a.first_block + a.blocks, blocks + b.first_block, same_block);
}

// Whether two units of a tile compute the same.
bool KeptChunks::alike(uint32_t unit, uint32_t other) const {
  const Recording::Part &a = recording_.parts[unit], &b = recording_.parts[other];
  if (a.calls != b.calls) return false;
  for (uint32_t call = 0; call < a.calls; ++call) {
    const Recording::Call &one = recording_.calls[a.first_call + call], &two = recording_.calls[b.first_call + call];
    for (uint32_t port = 0; port < params::kOutPort; ++port)
      if (!same_view(one.views[port], two.views[port])) return false;
  }
  return true;
}

// Whether each word of a tensor is in one tile; `again` gets units that repeat a tile. Where some have no tile, as where only
// some cores' parts of an operation are an occurrence, chunks of their own take less memory.
bool KeptChunks::is_grid(const std::vector<uint32_t>& units, const OperationShape& shape, std::vector<uint32_t>& again) const {
  std::map<std::array<uint32_t, OD_MAX_DIMS>, uint32_t> first;
  for (const uint32_t unit : units) {
    const auto& origin = origin_of(unit);
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d)
      if (origin[d] % shape.dims[d].tile != 0) return false;
    const auto [at, added] = first.try_emplace(origin, unit);
    if (added) continue;
    if (!alike(unit, at->second)) return false;
    again.push_back(unit);
  }
  uint64_t tiles = 1;
  for (const auto& dim : shape.dims) tiles *= (dim.extent + dim.tile - 1) / dim.tile;
  return first.size() == tiles;
}

// None where rows are no whole words, or chunks no rows of their tensor.
std::optional<std::vector<KeptChunks::Output>> KeptChunks::outputs_of(const OperationShape& shape, uint32_t out_words) {
  std::vector<Output> outputs;
  for (const OperandShape& operand : shape.operands) {
    if (!operand.output) continue;
    Output output;
    std::array<bool, OD_MAX_DIMS> followed{};
    int64_t stride = operand.element, chunk = operand.element;  // bytes
    for (uint32_t i = operand.n_axes; i-- > 0;) {
      const od_axis& axis = operand.axes[i];
      const uint32_t dim = operand.along[i];
      const bool follows = dim < OD_MAX_DIMS;
      const int64_t extent = follows ? shape.dims[dim].extent : axis.extent;
      if (axis.chunk == 0 || (axis.chunk > 1 && axis.stride * operand.element != chunk)) return std::nullopt;
      if (follows) followed[dim] = true;
      if (extent == 1) continue;
      if (stride % 4 != 0 && !output.axes.empty()) return std::nullopt;
      const bool follow_each_other = chunk == stride;  // its members, in the chunk as in the tensor
      output.axes.insert(output.axes.begin(), {follows ? dim : OD_MAX_DIMS, static_cast<uint32_t>(axis.chunk), stride});
      chunk *= axis.chunk;
      if (follow_each_other) {
        output.row = static_cast<uint32_t>(chunk / 4);
        output.in_row = static_cast<uint32_t>(output.axes.size());
      }
      stride *= extent;
    }
    if (output.axes.empty() || output.axes.back().count * operand.element % 4 != 0 || operand.offset % 4 != 0 || stride % 4 != 0) return std::nullopt;
    for (uint32_t d = OD_MAX_DIMS; d-- > 0;) {
      if (followed[d] || shape.dims[d].extent == 1) continue;
      if (shape.dims[d].tile != 1) return std::nullopt;
      output.axes.insert(output.axes.begin(), {d, 1, stride});
      stride *= shape.dims[d].extent;
    }
    output.offset = operand.offset / 4;
    output.end = output.offset + static_cast<uint32_t>(chunk / 4);
    const uint64_t words = whole_vectors(static_cast<uint64_t>(stride / 4));
    output.base = room(words);
    output.words = static_cast<uint32_t>(words);
    outputs.push_back(std::move(output));
  }
  std::sort(outputs.begin(), outputs.end(), [](const Output& a, const Output& b) { return a.offset < b.offset; });
  uint32_t end = 0;
  for (const Output& output : outputs) {
    if (output.offset != end) return std::nullopt;
    end = output.end;
  }
  return end == out_words ? std::optional(std::move(outputs)) : std::nullopt;
}

void KeptChunks::lay_out(uint32_t occurrence) {
  if (!laid_out_.insert(occurrence).second) return;
  const std::vector<uint32_t>& units = units_[occurrence];
  const std::unique_ptr<const OperationShape> shape = flow_.units[units[0]].operation->shape();
  std::vector<uint32_t> again;
  if (shape == nullptr || !is_grid(units, *shape, again)) return;
  auto outputs = outputs_of(*shape, out_words(units[0]));
  if (!outputs) return;  // each has words of its own, those that repeat a tile too
  tensors_[occurrence] = std::move(*outputs);
  repeated_.insert(again.begin(), again.end());
}

// Reserves words that fit an index, with a gap behind them: no run of words continues into the next piece.
uint32_t KeptChunks::room(uint64_t words) {
  const uint64_t first = words_;
  words_ += words + kAlignment;
  if (words_ > UINT32_MAX) throw NotRecordable{"what stays on the chip has " + counted(words_, "word")};
  return static_cast<uint32_t>(first);
}

const KeptChunks::Chunk& KeptChunks::place(uint32_t unit) {
  const uint32_t occurrence = flow_.units[unit].occurrence;
  lay_out(occurrence);
  Chunk& chunk = chunks_[unit];
  chunk.known = true;
  const auto tensor = tensors_.find(occurrence);
  if (tensor != tensors_.end()) {
    chunk.apart = false;
    chunk.outputs = &tensor->second;
    chunk.origin = origin_of(unit);
  } else {
    const uint64_t words = whole_vectors(out_words(unit));
    chunk.base = room(words);
    chunk.words = static_cast<uint32_t>(words);
  }
  return chunk;
}

KeptChunks::Piece KeptChunks::piece_at(const Chunk& chunk, uint32_t local) {
  if (chunk.apart) return {chunk.base + local, ~0u};
  const auto output = std::find_if(chunk.outputs->begin(), chunk.outputs->end(), [local](const Output& one) { return local < one.end; });
  uint32_t row = (local - output->offset) / output->row;
  const uint32_t inside = (local - output->offset) % output->row;
  int64_t at = 0;  // bytes
  for (size_t i = output->axes.size(); i-- > 0;) {
    const Output::Axis& axis = output->axes[i];
    const bool inside_row = i + output->in_row >= output->axes.size();
    const uint32_t member = inside_row ? 0 : row % axis.count;
    if (!inside_row) row /= axis.count;
    at += axis.stride * (member + (axis.dim < OD_MAX_DIMS ? chunk.origin[axis.dim] : 0));
  }
  Piece piece{output->base + static_cast<uint32_t>(at / 4) + inside, output->row - inside};
  if (output->axes.size() > output->in_row) {
    const Output::Axis& axis = output->axes[output->axes.size() - output->in_row - 1];
    piece.row = output->row;
    piece.step = static_cast<uint32_t>(axis.stride / 4);
    piece.more = axis.count - 1 - (local - output->offset) / output->row % axis.count;
  }
  return piece;
}

std::vector<KeptChunks::Moved> KeptChunks::all() {
  std::vector<Moved> pieces;
  for (auto& [occurrence, outputs] : tensors_)
    for (Output& output : outputs) pieces.push_back({occurrence, output.base, output.words, &output.base});
  for (uint32_t unit = 0; unit < chunks_.size(); ++unit) {
    Chunk& chunk = chunks_[unit];
    if (chunk.known && chunk.apart) pieces.push_back({flow_.units[unit].occurrence, chunk.base, chunk.words, &chunk.base});
  }
  return pieces;
}

// Places the largest first, each where none lies that is there at the same time; returns where the last ends.
uint32_t KeptChunks::fit(std::vector<Life*> lives) {
  std::stable_sort(lives.begin(), lives.end(), [](const Life* a, const Life* b) { return a->words > b->words; });
  uint32_t end = 0;
  for (size_t i = 0; i < lives.size(); ++i) {
    Life& life = *lives[i];
    std::vector<std::pair<uint32_t, uint32_t>> taken;
    for (size_t k = 0; k < i; ++k) {
      const Life& other = *lives[k];
      if (other.first_level <= life.last_level && life.first_level <= other.last_level) taken.emplace_back(other.first, other.first + other.words);
    }
    std::sort(taken.begin(), taken.end());
    for (const auto& [from, to] : taken) {
      if (life.first + life.words <= from) break;
      life.first = std::max(life.first, to);
    }
    end = std::max(end, life.first + life.words);
  }
  return end;
}

void KeptChunks::reuse(const std::vector<uint32_t>& levels, const std::vector<Order::Handed>& handed) {
  const std::vector<Moved> pieces = all();
  std::map<uint32_t, Life> lives;  // by occurrence
  for (const Moved& piece : pieces) {
    const uint32_t level = levels[piece.occurrence];
    lives.try_emplace(piece.occurrence, Life{level, level}).first->second.words += piece.words;
  }
  for (const auto& [from, to] : handed) {
    Life& life = lives.at(from);
    life.last_level = std::max(life.last_level, levels[to]);
  }
  std::vector<Life*> unplaced;
  for (auto& [occurrence, life] : lives) unplaced.push_back(&life);
  words_ = fit(std::move(unplaced));
  for (const Moved& piece : pieces) {
    uint32_t& first = lives.at(piece.occurrence).first;
    moved_.emplace(piece.from, first);
    *piece.base = first;
    first += piece.words;
  }
}

uint32_t KeptChunks::moved(uint32_t first) const {
  const auto piece = std::prev(moved_.upper_bound(first));
  return piece->second + (first - piece->first);
}

}  // namespace onedispatch::sim
