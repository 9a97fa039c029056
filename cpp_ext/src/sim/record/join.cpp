// SPDX-License-Identifier: Apache-2.0
#include "sim/record/join.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace onedispatch::sim {

namespace {

bool is_within(const OperandShape& operand, uint32_t axis) { return operand.along[axis] >= OperandShape::kWithin; }

uint32_t along(const OperandShape& operand, uint32_t axis) { return operand.along[axis] - (is_within(operand, axis) ? OperandShape::kWithin : 0); }

// In a panel, from where the tile or step begins.
int64_t begin_of(const OperandShape& operand, uint32_t axis, const std::array<uint32_t, OD_MAX_DIMS>& origin, int64_t k) {
  const uint32_t dim = along(operand, axis);
  const int64_t at = dim == OperandShape::kReduction ? k : dim == OperandShape::kNothing ? 0 : origin[dim];
  return chunk_begin(operand.axes[axis], at) - (is_within(operand, axis) ? at : 0);
}

bool follows(const OperandShape& operand, uint32_t dim) {
  for (uint32_t i = 0; i < operand.n_axes; ++i)
    if (operand.along[i] == dim && (operand.axes[i].stride != 0 || operand.panels)) return true;
  return false;
}

// Axes of more than one element that lie apart.
bool spans(const od_axis& axis) { return axis.chunk > 1 && axis.stride != 0; }

// Finds the runs that words are in, which mostly follow one another.
class RunFinder {
 public:
  explicit RunFinder(const Patterns::Runs& runs) : runs_(runs), last_(runs.begin()) {}

  // Null where the word is in none.
  const Patterns::Run* find(uint32_t word) {
    if (!holds(last_, word) && (last_ == runs_.end() || !holds(++last_, word))) {
      const auto behind = std::upper_bound(runs_.begin(), runs_.end(), word, [](uint32_t one, const Patterns::Run& run) { return one < run.local; });
      last_ = behind == runs_.begin() ? runs_.end() : behind - 1;
      if (!holds(last_, word)) return nullptr;
    }
    return &*last_;
  }

 private:
  bool holds(Patterns::Runs::const_iterator run, uint32_t word) const { return run != runs_.end() && run->local <= word && word - run->local < run->words; }

  const Patterns::Runs& runs_;
  Patterns::Runs::const_iterator last_;
};

}  // namespace

Join::Join(const Recording& recording, const std::vector<uint32_t>& parts, Patterns& patterns, const DdrRegions& regions, unsigned threads)
    : recording_(recording), parts_(parts), patterns_(patterns), regions_(regions), least_tiles_(least_tiles(threads)), operation_(*recording.parts[parts[0]].operation), shape_(operation_.shape()) {}

bool Join::is_joined(const OperandShape& operand, uint32_t axis) const {
  const uint32_t dim = along(operand, axis);
  if (dim == OperandShape::kReduction) return joined_steps_;
  return dim == OperandShape::kNothing || joined_[dim];
}

// The byte of device memory that a byte of the chunk is.
std::optional<Join::Byte> Join::byte_at(const Chunk& chunk, int64_t byte) {
  const auto word = static_cast<uint32_t>(byte / 4);
  const Patterns::Run* const run = RunFinder(patterns_.runs(chunk.place.pattern)).find(word);
  if (run == nullptr) return std::nullopt;
  return Byte{run->argument, (int64_t{chunk.place.first} + run->first + (word - run->local)) * 4 + byte % 4};
}

// Base and strides, as far as one chunk shows them.
bool Join::measure(const OperandShape& operand, const Chunk& chunk, Layout& layout) {
  const std::optional<Byte> first = byte_at(chunk, operand.offset);
  if (!first) return false;
  layout.argument = first->argument;
  layout.base = first->at;
  for (uint32_t i = 0; i < operand.n_axes; ++i) {
    const od_axis& axis = operand.axes[i];
    layout.known[i] = axis.stride == 0;
    if (!spans(axis)) continue;
    const std::optional<Byte> next = byte_at(chunk, operand.offset + axis.stride * operand.element);
    if (!next || next->argument != first->argument) return false;
    layout.strides[i] = next->at - first->at;
    layout.known[i] = true;
    layout.base -= layout.strides[i] * chunk.begin[i];
  }
  return true;
}

// The strides along axes of which each chunk has one element, from how chunks lie to each other.
bool Join::derive(const OperandShape& operand, const std::vector<Chunk>& chunks, Layout& layout) {
  const Chunk& first = chunks[0];
  std::vector<int64_t> places;
  for (const Chunk& chunk : chunks) {
    const std::optional<Byte> place = byte_at(chunk, operand.offset);
    if (!place || place->argument != layout.argument) return false;
    places.push_back(place->at);
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t n = 0; n < chunks.size(); ++n) {
      const Chunk& chunk = chunks[n];
      uint32_t unknown = OD_MAX_AXES, count = 0;
      int64_t distance = places[n] - places[0];
      for (uint32_t i = 0; i < operand.n_axes; ++i) {
        const int64_t further = chunk.begin[i] - first.begin[i];
        if (layout.known[i]) {
          distance -= layout.strides[i] * further;
        } else if (further != 0) {
          unknown = i;
          ++count;
        }
      }
      if (count != 1) continue;
      const int64_t further = chunk.begin[unknown] - first.begin[unknown];
      if (distance % further != 0) return false;
      layout.strides[unknown] = distance / further;
      layout.known[unknown] = more = true;
      layout.base -= layout.strides[unknown] * first.begin[unknown];
    }
  }
  return true;
}

// Whether every element of the chunks lies where the layout says. Those of one pattern do in one place alone.
bool Join::proves(const OperandShape& operand, const std::vector<Chunk>& chunks, const Layout& layout) {
  std::unordered_map<uint32_t, int64_t> proven;
  return std::all_of(chunks.begin(), chunks.end(), [&](const Chunk& chunk) {
    int64_t first = layout.base - int64_t{4} * chunk.place.first;  // byte of the first element, from the chunk's place
    for (uint32_t i = 0; i < operand.n_axes; ++i) first += layout.strides[i] * chunk.begin[i];
    const auto [at, added] = proven.try_emplace(chunk.place.pattern, first);
    return added ? proves(operand, patterns_.runs(chunk.place.pattern), layout, first) : at->second == first;
  });
}

bool Join::proves(const OperandShape& operand, const Patterns::Runs& runs, const Layout& layout, int64_t first) {
  std::array<int64_t, OD_MAX_AXES> count{}, at{};
  uint32_t row = OD_MAX_AXES;  // the axis along which elements lie together
  for (uint32_t i = 0; i < operand.n_axes; ++i) {
    const od_axis& axis = operand.axes[i];
    if (axis.chunk == 0) return false;
    count[i] = spans(axis) ? axis.chunk : 1;
    if (spans(axis) && axis.stride == 1 && layout.strides[i] == operand.element) row = i;
  }
  const int64_t length = row == OD_MAX_AXES ? operand.element : count[row] * operand.element;
  if (row != OD_MAX_AXES) count[row] = 1;
  RunFinder finder(runs);
  int64_t local = operand.offset, expected = first;
  for (;;) {
    const auto word = static_cast<uint32_t>(local / 4), last = static_cast<uint32_t>((local + length - 1) / 4);
    const Patterns::Run* const run = finder.find(word);
    if (run == nullptr || last - run->local >= run->words || run->argument != layout.argument) return false;
    if (expected != (int64_t{run->first} + (word - run->local)) * 4 + local % 4) return false;
    uint32_t axis = operand.n_axes;
    while (axis-- > 0) {
      local += operand.axes[axis].stride * operand.element;
      expected += layout.strides[axis];
      if (++at[axis] < count[axis]) break;
      local -= operand.axes[axis].stride * operand.element * count[axis];
      expected -= layout.strides[axis] * count[axis];
      at[axis] = 0;
    }
    if (axis == ~0u) return true;
  }
}

// The operand with a further axis for each of those that panels divide; false where none does. What has no axis along a
// dimension, or the reduction, may be there once for each of its panels.
bool Join::divide(const OperandShape& operand, bool reduction, bool tiles, OperandShape& divided) const {
  divided = operand;
  const auto add = [&](uint32_t dim, uint32_t panel, int64_t extent, uint32_t along) {
    if (divided.n_axes == OD_MAX_AXES) return false;
    divided.axes[divided.n_axes] = {(extent + panel - 1) / panel, 1, 1, 1, panel, 1, 0, panel, static_cast<uint16_t>(along), 0};
    divided.along[divided.n_axes++] = dim;
    return true;
  };
  std::array<bool, OD_MAX_DIMS> has{};
  bool has_steps = operand.finishes;
  for (uint32_t i = 0; i < operand.n_axes; ++i) {
    const od_axis& axis = operand.axes[i];
    const uint32_t dim = operand.along[i];
    if (dim < OD_MAX_DIMS) has[dim] = true;
    has_steps = has_steps || dim == OperandShape::kReduction;
    const bool wanted = dim == OperandShape::kReduction ? reduction : dim < OD_MAX_DIMS && tiles && divided_[dim];
    if (!wanted) continue;
    const uint32_t panel = dim == OperandShape::kReduction ? shape_->k_tile : shape_->dims[dim].tile;
    const bool is_one = axis.stride == 0 && dim < OD_MAX_DIMS;  // of each panel
    if (!is_one && (axis.stride == 0 || axis.a != 1 || axis.den != 1 || axis.b != 0 || axis.align != 1 || axis.chunk != panel)) continue;
    if (add(dim, panel, dim == OperandShape::kReduction ? shape_->k_extent : shape_->dims[dim].extent, i)) divided.along[i] += OperandShape::kWithin;
  }
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d)
    if (tiles && divided_[d] && !has[d]) add(d, shape_->dims[d].tile, shape_->dims[d].extent, operand.n_axes);
  if (reduction && !has_steps) add(OperandShape::kReduction, shape_->k_tile, shape_->k_extent, operand.n_axes + 1);
  return divided.n_axes != operand.n_axes;
}

bool Join::lay_out(const OperandShape& operand, const Group& group, Laid& laid) {
  if (lay_out_as(operand, group, laid)) return true;
  if (!operand.panels) return false;
  const bool whole = joined_steps_ && steps_[0].end * shape_->k_tile <= shape_->k_extent;
  OperandShape divided;
  for (const auto& [reduction, tiles] : {std::pair{true, false}, {false, true}, {true, true}})
    if (divide(operand, reduction && whole, tiles, divided) && lay_out_as(divided, group, laid)) return true;
  return false;
}

bool Join::lay_out_as(const OperandShape& operand, const Group& group, Laid& laid) {
  laid.shape = operand;
  laid.layouts.assign(operand.output ? 1 : steps_.size(), {});
  for (size_t i = 0; i < laid.layouts.size(); ++i) {
    Layout& layout = laid.layouts[i];
    Steps steps = operand.output ? Steps{0, 1} : steps_[i];
    if (operand.finishes) steps.first = steps.end - 1;
    if (!lay_out(operand, group, steps, layout)) return false;
    for (uint32_t axis = 0; axis < operand.n_axes; ++axis)
      if (layout.known[axis] && laid.layouts[0].known[axis] && layout.strides[axis] != laid.layouts[0].strides[axis]) return false;
  }
  return true;
}

bool Join::lay_out(const OperandShape& operand, const Group& group, Steps steps, Layout& layout) {
  const std::vector<Chunk> chunks = chunks_of(operand, group, steps);
  if (chunks.empty() || !measure(operand, chunks[0], layout)) return false;
  const bool all_known = std::all_of(layout.known.begin(), layout.known.begin() + operand.n_axes, [](bool one) { return one; });
  return (all_known || derive(operand, chunks, layout)) && proves(operand, chunks, layout);
}

// Empty where a call has none.
std::vector<Join::Chunk> Join::chunks_of(const OperandShape& operand, const Group& group, Steps steps) {
  std::vector<Chunk> chunks;
  chunks.reserve(group.parts.size() * (steps.end - steps.first));
  for (const uint32_t part : group.parts) {
    const Recording::Part& own = recording_.parts[part];
    const Recording::Call* last = nullptr;
    Chunk chunk;
    for (uint32_t call = steps.first; call < steps.end; ++call) {
      const Recording::Call& made = recording_.calls[own.first_call + call];
      const uint32_t view = operand.output ? kNoView : made.views[operand.port];
      if (!operand.output && view == kNoView) return {};
      chunk.place = operand.output ? patterns_.of_out(part) : patterns_.of_view(view);
      const bool further = last != nullptr && last->origin == made.origin;
      last = &made;
      for (uint32_t axis = 0; axis < operand.n_axes; ++axis) {
        if (further && along(operand, axis) != OperandShape::kReduction) continue;
        // What is not joined has layouts of its own.
        if (is_joined(operand, axis)) chunk.begin[axis] = begin_of(operand, axis, made.origin, int64_t{made.step} * shape_->k_tile);
      }
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

// Tiles of the group are all of a box, each of them once or more.
bool Join::covers(Group& group) const {
  std::array<std::set<uint32_t>, OD_MAX_DIMS> origins;
  std::set<std::array<uint32_t, OD_MAX_DIMS>> tiles;
  for (const uint32_t part : group.parts) {
    const auto& origin = recording_.calls[recording_.parts[part].first_call].origin;
    tiles.insert(origin);
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) origins[d].insert(origin[d]);
  }
  size_t all = 1;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    all *= origins[d].size();
    group.first[d] = group.end[d] = *origins[d].begin();
    for (const uint32_t origin : origins[d]) {
      if (origin > group.end[d]) return false;
      group.end[d] = origin + shape_->dims[d].tile;
    }
  }
  return all == tiles.size();
}

bool Join::split() {
  std::map<std::array<uint32_t, OD_MAX_DIMS>, Group> groups;
  for (const uint32_t part : parts_) {
    auto key = recording_.calls[recording_.parts[part].first_call].origin;
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
      const bool shifted = divided_[d] && key[d] % shape_->dims[d].tile != 0;  // it lies by itself
      if (!joined_[d] || shifted) continue;
      key[d] = together_[d] == 0 ? 0 : key[d] - key[d] % (together_[d] * shape_->dims[d].tile);
    }
    groups[key].parts.push_back(part);
  }
  groups_.clear();
  for (auto& [key, group] : groups) {
    if (!covers(group)) return false;
    groups_.push_back(std::move(group));
  }
  return true;
}

// How many chunks of an operand along d lie evenly spaced, before there is another distance: those that cores of a column
// read in turn. 0 where all do, or not always as many.
uint32_t Join::evenly_spaced(const OperandShape& operand, const Group& group, uint32_t d) {
  std::map<uint32_t, int64_t> places;  // by where panels begin
  const auto& first = recording_.calls[recording_.parts[group.parts[0]].first_call].origin;
  for (const uint32_t part : group.parts) {
    const Recording::Call& call = recording_.calls[recording_.parts[part].first_call];
    auto origin = call.origin;
    origin[d] = first[d];
    const uint32_t view = call.views[operand.port];
    if (origin != first || view == kNoView || call.origin[d] % shape_->dims[d].tile != 0) continue;
    const std::optional<Byte> byte = byte_at({patterns_.of_view(view), {}}, operand.offset);
    if (!byte) return 0;
    places.emplace(call.origin[d], byte->at);
  }
  std::vector<int64_t> distances;
  for (auto at = places.begin(), next = at; at != places.end() && ++next != places.end(); at = next) distances.push_back(next->second - at->second);
  const auto other = std::find_if(distances.begin(), distances.end(), [&](int64_t distance) { return distance != distances[0]; });
  if (other == distances.end()) return 0;
  const auto count = static_cast<size_t>(other - distances.begin()) + 1;
  for (size_t i = 0; i < distances.size(); ++i)
    if (distances[i] != distances[0] && (i + 1) % count != 0) return 0;
  return static_cast<uint32_t>(count);
}

// Joins less, since the operand does not lie as the tensor would; false where nothing is left to give up. First panels
// are tried, then tiles that lie evenly spaced, then tiles are given up before steps, whose sums would be loaded
// and stored again.
bool Join::concede(const OperandShape& operand, const Group& group) {
  const bool reduces = !operand.output && joined_steps_ && shape_->steps > 1 && follows(operand, OperandShape::kReduction);
  bool changed = false;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    if (!joined_[d] || !follows(operand, d)) continue;
    if (operand.panels && !divided_[d]) {
      divided_[d] = changed = true;
    } else if (!operand.output && together_[d] == 0) {
      together_[d] = evenly_spaced(operand, group, d);
      changed = changed || together_[d] > 1;
    }
  }
  if (operand.panels && reduces && steps_.size() == 1 && shape_->k_extent % shape_->k_tile != 0) {
    separate_steps(shape_->k_extent / shape_->k_tile);
    changed = true;
  }
  if (changed) return true;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    if (!joined_[d] || (reduces && !divided_[d]) || !follows(operand, d)) continue;
    joined_[d] = divided_[d] = false;
    changed = true;
  }
  if (changed) return true;
  if (reduces) separate_steps(1);
  return reduces;
}

// The first so many steps become one, and so on.
void Join::separate_steps(uint32_t together) {
  joined_steps_ = together > 1 || shape_->steps == 1;
  steps_.clear();
  for (uint32_t step = 0; step < shape_->steps; step += together) steps_.push_back({step, std::min(step + together, shape_->steps)});
}

// False where an operand of the group lies otherwise: then less is to be joined.
bool Join::lay_out(Group& group) {
  group.operands.assign(shape_->operands.size(), {});
  for (size_t i = 0; i < shape_->operands.size(); ++i) {
    if (lay_out(shape_->operands[i], group, group.operands[i])) continue;
    if (!concede(shape_->operands[i], group)) joined_.fill(false);
    return false;
  }
  return true;
}

std::vector<JoinedPart> Join::make() {
  if (shape_ == nullptr || (parts_.size() < 2 && shape_->steps == 1)) return {};
  for (const uint32_t part : parts_) {
    const Recording::Part& own = recording_.parts[part];
    if (own.calls != shape_->steps || own.direct) return {};
  }
  joined_ = shape_->tiled;
  separate_steps(shape_->joins_steps ? shape_->steps : 1);
  for (bool laid_out = false; !laid_out;) {
    if (std::none_of(joined_.begin(), joined_.end(), [](bool one) { return one; }) || !split()) return {};
    laid_out = std::all_of(groups_.begin(), groups_.end(), [this](Group& group) { return lay_out(group); });
  }
  std::vector<JoinedPart> made;
  for (const Group& group : groups_)
    if (!make(group, made)) return {};
  return made;
}

bool Join::overlaps() const {
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    std::map<uint32_t, uint32_t> ends;  // by where groups begin
    for (const Group& group : groups_) ends[group.first[d]] = std::max(ends[group.first[d]], group.end[d]);
    uint32_t end = 0;
    for (const auto& [first, own] : ends) {
      if (first < end) return true;
      end = own;
    }
  }
  return false;
}

std::map<uint32_t, uint32_t> Join::groups() const {
  std::map<uint32_t, uint32_t> found;
  for (const Group& group : groups_)
    for (const uint32_t part : group.parts) found.emplace(part, group.parts[0]);
  return found;
}

bool Join::make(const Group& group, std::vector<JoinedPart>& made) {
  const auto tile = tile_of(group);
  auto origin = group.first;
  for (;;) {
    std::array<uint32_t, OD_MAX_DIMS> here = tile;
    for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
      const uint32_t left = group.end[d] - origin[d];
      here[d] = left < tile[d] + shape_->least[d] ? left : tile[d];
    }
    JoinedPart part;
    part.group = group.parts[0];
    if (!make(group, origin, here, part)) return false;
    made.push_back(std::move(part));
    uint32_t d = OD_MAX_DIMS;
    while (d-- > 0) {
      if (!joined_[d]) continue;
      origin[d] += here[d];
      if (origin[d] < group.end[d]) break;
      origin[d] = group.first[d];
    }
    if (d == ~0u) return true;
  }
}

bool Join::make(const Group& group, const Origin& origin, const Origin& tile, JoinedPart& part) {
  OperationShape shape = *shape_;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) shape.dims[d].tile = tile[d];
  shape.steps = static_cast<uint32_t>(steps_.size());
  if (joined_steps_) shape.k_tile = std::max(shape.steps == 1 ? shape.k_extent : first_member(1), 1u);
  part.origin = origin;
  part.steps = shape.steps;
  read_.clear();
  for (size_t i = 0; i < shape.operands.size(); ++i) {
    const Laid& laid = group.operands[i];
    OperandShape& operand = shape.operands[i] = laid.shape;
    if (operand.output ? !store(operand, laid.layouts[0], tile, part) : !enlarge(operand, laid.layouts[0], tile, shape.k_tile)) return false;
  }
  for (uint32_t step = 0; step < shape.steps; ++step) {
    part.bases.insert(part.bases.end(), part.outputs.begin(), part.outputs.end());
    for (size_t i = 0; i < shape.operands.size(); ++i)
      if (!shape.operands[i].output && !lie(shape.operands[i], group.operands[i].of_step(step), step, part)) return false;
  }
  part.operation = operation_of(shape, tile);
  if (part.operation != nullptr) place(std::move(shape), group, tile, part);
  return part.operation != nullptr;
}

// Lets the operation write its results where they go, unless it reads what lies there.
void Join::place(OperationShape shape, const Group& group, const Origin& tile, JoinedPart& part) {
  if (part.outputs.size() != 1) return;
  for (size_t i = 0; i < shape.operands.size(); ++i) {
    OperandShape& out = shape.operands[i];
    if (!out.output) continue;
    const Layout& layout = group.operands[i].layouts[0];
    const int64_t first = int64_t{4} * part.stored.front().first;
    int64_t end = first + out.element;
    bool fits = out.in_place;
    for (uint32_t k = 0; k < out.n_axes; ++k) {
      const int64_t stride = layout.strides[k];
      if (out.axes[k].chunk < 2) continue;
      fits = fits && stride > 0 && stride % out.element == 0;
      out.axes[k].stride = stride / out.element;
      end += stride * (out.axes[k].chunk - 1);
    }
    const bool overlaps = std::any_of(read_.begin(), read_.end(), [&](const Reach& one) { return one.argument == layout.argument && one.first < end && first < one.end; });
    if (fits && !overlaps) part.in_place = operation_of(shape, tile);
  }
}

// Gives the operand the chunk that the joined tile needs, where the tensor lies.
bool Join::enlarge(OperandShape& operand, const Layout& layout, const Origin& tile, uint32_t k_tile) const {
  for (uint32_t k = 0; k < operand.n_axes; ++k) {
    od_axis& axis = operand.axes[k];
    const uint32_t dim = along(operand, k);
    if (axis.stride == 0) continue;
    if (dim != OperandShape::kNothing && !is_within(operand, k) && is_joined(operand, k)) {
      const bool reduction = dim == OperandShape::kReduction;
      const int64_t more = reduction ? int64_t{k_tile} - shape_->k_tile : int64_t{tile[dim]} - shape_->dims[dim].tile;
      // Rounded up: fractions may begin anywhere.
      axis.chunk = std::min(axis.extent, axis.chunk + (more > 0 ? (axis.a * more + axis.den - 1) / axis.den : axis.a * more / axis.den));
    }
    if (axis.chunk == 1) continue;  // its stride leads nowhere, but kernels may want a certain one
    // No kernel expects elements that come in reverse order.
    if (layout.strides[k] < 0 || layout.strides[k] % operand.element != 0) return false;
    axis.stride = layout.strides[k] / operand.element;
    if (axis.stride == 0) return false;
  }
  return true;
}

// Where the operand's chunk of a step lies, all of it in its argument.
bool Join::lie(const OperandShape& operand, const Layout& layout, uint32_t step, JoinedPart& part) {
  int64_t at = layout.base, first = 0, last = 0;
  for (uint32_t k = 0; k < operand.n_axes; ++k) {
    const od_axis& axis = operand.axes[k];
    if (axis.stride == 0) continue;
    if (is_joined(operand, k) && !is_within(operand, k)) at += layout.strides[k] * begin_of(operand, k, part.origin, first_member(step));
    const int64_t reach = layout.strides[k] * (axis.chunk - 1);
    (reach < 0 ? first : last) += reach;
  }
  if (at + first < 0 || at + last + operand.element > static_cast<int64_t>(regions_[layout.argument]->bytes)) return false;
  part.bases.push_back({operand.index, layout.argument, static_cast<uint64_t>(at)});
  read_.push_back({layout.argument, at + first, at + last + operand.element});
  return true;
}

// Lays an output out behind those before it in the out chunk, row-major, and says where its runs go.
bool Join::store(OperandShape& operand, const Layout& layout, const Origin& tile, JoinedPart& part) const {
  int64_t elements = 1, length = 1, base = layout.base;
  uint32_t outer = 0;  // axes of runs; what is behind them lies together
  for (uint32_t k = operand.n_axes; k-- > 0;) {
    od_axis& axis = operand.axes[k];
    const uint32_t dim = operand.along[k];
    axis.chunk = dim < OD_MAX_DIMS ? tile[dim] : axis.chunk;
    axis.stride = elements;
    const bool together = outer == 0 && (axis.chunk == 1 || layout.strides[k] == length * operand.element);
    if (together) length *= axis.chunk;
    if (!together && outer == 0) outer = k + 1;
    elements *= axis.chunk;
    base += is_joined(operand, k) ? layout.strides[k] * begin_of(operand, k, part.origin, 0) : 0;
  }
  if (length * operand.element % 4 != 0) return false;
  const uint32_t first = part.out_bytes / 4;
  part.outputs.push_back({operand.index, Recording::Base::kOutChunk, part.out_bytes});
  part.out_bytes += static_cast<uint32_t>(elements * operand.element);
  const auto words = [&](int64_t count) { return static_cast<uint32_t>(count * operand.element / 4); };
  std::array<int64_t, OD_MAX_AXES> index{};
  for (int64_t local = 0; local < elements; local += length) {
    int64_t to = base;
    for (uint32_t k = 0; k < outer; ++k) to += layout.strides[k] * index[k];
    if (to % 4 != 0) return false;
    part.stored.push_back({0, 0, layout.argument, static_cast<uint32_t>(to / 4), first + words(local), words(length)});
    for (uint32_t k = outer; k-- > 0;) {
      if (++index[k] < operand.axes[k].chunk) break;
      index[k] = 0;
    }
  }
  return true;
}

// Plans are the same for tiles of one size whose operands lie alike.
std::shared_ptr<const CallableOperation> Join::operation_of(const OperationShape& shape, const Origin& tile) {
  std::vector<int64_t> key(tile.begin(), tile.end());
  for (const OperandShape& operand : shape.operands)
    for (uint32_t i = 0; i < operand.n_axes; ++i) key.insert(key.end(), {operand.axes[i].chunk, operand.axes[i].stride});
  std::shared_ptr<const CallableOperation>& made = operations_[key];
  if (made == nullptr) made = operation_.joined(shape);
  return made;
}

}  // namespace onedispatch::sim
