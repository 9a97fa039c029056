// SPDX-License-Identifier: Apache-2.0
// Writes a run down while the engine makes it and another executor does it.
#pragma once
#include <array>
#include <unordered_map>
#include <utility>

#include "sim/array/array.h"
#include "sim/execute/executor.h"
#include "sim/record/dataflow.h"
#include "sim/record/descriptors.h"
#include "sim/record/occurrences.h"

namespace onedispatch::sim {

// 128 bits that stand for a sequence of slices: chances that two of a run's are the same are below 2^-80.
using SlicesDigest = std::array<uint64_t, 2>;

class Recorder final : public Executor {
 public:
  // Takes the place of the array's executor, which does what this one writes down, for as long as it is there.
  Recorder(Array& array, const DdrRegions& arguments) : array_(array), does_(array.executor()), arguments_(arguments), bds_(array) { array.execute_by(this); }
  ~Recorder() override { array_.execute_by(nullptr); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void move(Channel& source, const Route& route, uint64_t words) override;
  void deliver(Channel& destination, const uint8_t* words, uint64_t count) override;
  void place(Channel& channel) override { does_.place(channel); }
  Words ahead(Channel& source, uint64_t most) override { return does_.ahead(source, most); }
  uint32_t peek(Channel& source) override { return does_.peek(source); }
  void take(Channel& source, uint32_t* to, uint64_t words) override;
  void write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) override;
  uint32_t read(const Tile& tile, uint32_t offset) override;
  void write_bd(const Tile& tile, uint32_t bd, uint32_t first, uint32_t words) override { bds_.write(tile, bd, first, words); }
  void read_bd(const Tile& tile, uint32_t bd, uint32_t word) override { bds_.read(tile, bd, word); }
  void load_bd(const Tile& tile, uint32_t bd) override { bds_.load(tile, bd); }
  void depends(const char* on) override { refuse(std::string("what it does depends on ") + on); }
  void begin(Core& core) override;
  uint64_t end(Core& core) override;
  void stop(const Core& core) override { does_.stop(core); }
  void explain_nonsense(const Core& core) const override { does_.explain_nonsense(core); }
  void settle() override { does_.settle(); }
  void reset() override { does_.reset(); }

  const std::string& refusal() const { return flow_.refusal; }
  // After the run.
  Descriptors descriptors() const { return bds_.take(); }
  // What it keeps apart is left: it is of no use without the flow, and large.
  Dataflow take() {
    flow_.occurrences = occurrences_.count();
    joined_.clear();
    views_.clear();
    pieces_.clear();
    return std::move(flow_);
  }

 private:
  struct CoreState {
    bool block_read = false;  // since the last call
    uint32_t occurrence = 0;
    Occurrences::Delivery delivered;  // of the block that it read last
    const CallableOperation* operation = nullptr;
    uint32_t unit = 0;
    KernelCall call;  // under way
  };

  bool refused() const { return !flow_.refusal.empty(); }
  void refuse(std::string why);
  uint32_t argument_of(const DdrRegion& region) const;
  uint32_t add_access(const Channel& channel, uint64_t words, bool write, Slice source);
  const MemoryPart& memory_of(const Core& core) const { return array_.tiles()[core.tile].memory; }
  void record_move(const Channel& source, const Route& route, uint64_t words);
  void record_decision(const Channel& source, uint64_t words);
  void record_block(const Core& core, MemoryRange block);
  void record_begin(const Core& core, const KernelCall* call);
  void record_end(const Core& core);
  Slice literals(const uint8_t* from, uint32_t words);
  Slice read(const Channel& source, uint64_t words);
  Slice read(const Memory& memory, uint64_t first, uint64_t words);
  Slice add_segment(uint32_t words);
  Slice joined(const std::vector<Slice>& slices);
  Slice join(const std::vector<Slice>& slices);
  void leave(const Slice& slice);
  void write(const Channel& channel, const Slice& slice);
  Pieces& pieces_of(const Memory& memory) { return pieces_.try_emplace(&memory, memory.valid.words()).first->second; }
  uint32_t view_of(const MemoryPart& memory, MemoryRange range);
  uint32_t occurrence_of(CoreState& state, uint32_t core, const KernelCall& call);
  uint32_t unit_of(CoreState& state, const Core& core, const KernelCall& call);
  bool holds(const MemoryPart& memory, MemoryRange range, uint32_t segment);
  void set(const MemoryPart& memory, MemoryRange range, uint32_t& segment, Space space);

  Array& array_;
  Executor& does_;
  const DdrRegions& arguments_;
  BdFollower bds_;
  Dataflow flow_;
  BlockBuilder builder_;
  std::vector<Slice> slices_;
  std::unordered_map<const Memory*, Pieces> pieces_;  // of memories that the run wrote to, or asked for
  std::unordered_map<uint32_t, CoreState> cores_;
  Occurrences occurrences_;
  struct SliceHash {
    size_t operator()(const Slice& s) const {
      return (s.segment * 0x9E3779B97F4A7C15ull ^ s.offset) * 0xC2B2AE3D27D4EB4Full ^ s.words;
    }
    size_t operator()(const SlicesDigest& digest) const { return digest[0]; }
  };
  std::unordered_map<SlicesDigest, Slice, SliceHash> joined_;  // what was sent before, and is sent again
  std::unordered_map<Slice, uint32_t, SliceHash> views_;
};

}  // namespace onedispatch::sim
