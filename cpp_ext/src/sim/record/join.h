// SPDX-License-Identifier: Apache-2.0
// Joins the tiles of an operation's occurrence to larger ones, whose operands are read where they lie in device
// memory: where the words of all of its chunks prove to lie there with the same strides.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/record/patterns.h"
#include "sim/record/recording.h"

namespace onedispatch::sim {

// A tile of a joined operation.
struct JoinedPart {
  std::shared_ptr<const CallableOperation> operation;
  uint32_t group = 0;  // of tiles, one of which it is named after
  std::array<uint32_t, OD_MAX_DIMS> origin{};
  uint32_t steps = 1;
  std::vector<Recording::Base> bases;  // of its operands, for each step
  std::vector<Recording::Base> outputs;  // those of them that lie in the out chunk
  uint32_t out_bytes = 0;
  std::vector<Stored> stored;  // `part` is of no meaning
  // The same operation that writes all of `stored` itself, from the first of them on; null where it can't.
  std::shared_ptr<const CallableOperation> in_place;
};

class Join {
 public:
  // `parts` are the units of one occurrence, which have one operation. Tiles are made for so many threads; 0: several.
  Join(const Recording& recording, const std::vector<uint32_t>& parts, Patterns& patterns, const DdrRegions& regions, unsigned threads);

  // Empty where the tiles stay as they are.
  std::vector<JoinedPart> make();
  // Whether tiles along what was not joined overlap, as the last one does that was shifted back into the tensor.
  bool overlaps() const;
  // By tile: its group.
  std::map<uint32_t, uint32_t> groups() const;

 private:
  using Origin = std::array<uint32_t, OD_MAX_DIMS>;
  using Strides = std::array<int64_t, OD_MAX_AXES>;  // bytes

  // Where an operand's tensor lies, by the coordinates along its axes.
  struct Layout {
    uint32_t argument = 0;
    int64_t base = 0;  // byte of the argument
    Strides strides{};
    std::array<bool, OD_MAX_AXES> known{};
  };
  struct Reach {  // bytes of an argument
    uint32_t argument;
    int64_t first, end;
  };
  struct Steps {  // that become one
    uint32_t first, end;
  };
  struct Laid {  // an operand of a group
    OperandShape shape;
    std::vector<Layout> layouts;  // by joined steps; the output has one
    const Layout& of_step(size_t step) const { return layouts.size() == 1 ? layouts[0] : layouts[step]; }
  };
  struct Group {  // tiles that differ along joined dimensions alone
    std::vector<uint32_t> parts;
    std::vector<Laid> operands;
    std::array<uint32_t, OD_MAX_DIMS> first{}, end{};
  };
  struct Byte {
    uint32_t argument;
    int64_t at;
  };
  struct Chunk {  // of a call
    Patterns::Place place;
    std::array<int64_t, OD_MAX_AXES> begin{};  // coordinates
  };

  bool split();
  bool lay_out(Group& group);
  bool concede(const OperandShape& operand, const Group& group);
  uint32_t evenly_spaced(const OperandShape& operand, const Group& group, uint32_t d);
  void separate_steps(uint32_t together);
  bool lay_out(const OperandShape& operand, const Group& group, Laid& laid);
  bool lay_out_as(const OperandShape& operand, const Group& group, Laid& laid);
  bool lay_out(const OperandShape& operand, const Group& group, Steps steps, Layout& layout);
  std::vector<Chunk> chunks_of(const OperandShape& operand, const Group& group, Steps steps);
  bool divide(const OperandShape& operand, bool reduction, bool tiles, OperandShape& divided) const;
  bool is_joined(const OperandShape& operand, uint32_t axis) const;
  bool measure(const OperandShape& operand, const Chunk& chunk, Layout& layout);
  bool derive(const OperandShape& operand, const std::vector<Chunk>& chunks, Layout& layout);
  bool proves(const OperandShape& operand, const std::vector<Chunk>& chunks, const Layout& layout);
  static bool proves(const OperandShape& operand, const Patterns::Runs& runs, const Layout& layout, int64_t first);
  bool covers(Group& group) const;
  std::optional<Byte> byte_at(const Chunk& chunk, int64_t byte);
  uint32_t whole_words(const Group& group, uint32_t dim) const;
  bool has_narrow_panels() const;
  uint32_t panels_together(uint32_t members, uint32_t panels) const;
  int64_t elements_of(const Origin& tile) const;
  static uint32_t least_tiles(unsigned threads);
  uint32_t units_of(uint32_t whole, uint32_t most, uint32_t step, int64_t elements) const;
  Origin tile_of(const Group& group) const;
  bool make(const Group& group, std::vector<JoinedPart>& made);
  bool make(const Group& group, const Origin& origin, const Origin& tile, JoinedPart& part);
  bool enlarge(OperandShape& operand, const Layout& layout, const Origin& tile, uint32_t k_tile) const;
  bool lie(const OperandShape& operand, const Layout& layout, uint32_t step, JoinedPart& part);
  void place(OperationShape shape, const Group& group, const Origin& tile, JoinedPart& part);
  uint32_t first_member(uint32_t step) const { return steps_[step].first * shape_->k_tile; }
  bool store(OperandShape& operand, const Layout& layout, const Origin& tile, JoinedPart& part) const;
  std::shared_ptr<const CallableOperation> operation_of(const OperationShape& shape, const Origin& tile);

  const Recording& recording_;
  const std::vector<uint32_t>& parts_;
  Patterns& patterns_;
  const DdrRegions& regions_;
  uint32_t least_tiles_;
  const CallableOperation& operation_;
  std::unique_ptr<const OperationShape> shape_;
  std::array<bool, OD_MAX_DIMS> joined_{};
  bool joined_steps_ = false;
  std::array<bool, OD_MAX_DIMS> divided_{};  // dimensions along which operands lie in panels
  Origin together_{};                        // tiles along a dimension that are joined; 0: all
  std::vector<Steps> steps_;
  std::vector<Group> groups_;
  std::vector<Reach> read_;  // by the part that is made
  std::map<std::vector<int64_t>, std::shared_ptr<const CallableOperation>> operations_;
};

}  // namespace onedispatch::sim
