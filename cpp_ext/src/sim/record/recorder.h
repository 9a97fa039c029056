// SPDX-License-Identifier: Apache-2.0
// Writes a run down while the engine makes it.
#pragma once
#include <map>
#include <unordered_map>
#include <utility>

#include "sim/array/array.h"
#include "sim/array/observer.h"
#include "sim/record/dataflow.h"

namespace onedispatch::sim {

class Recorder final : public Observer {
 public:
  Recorder(const DdrRegions& arguments, const std::vector<Channel>& channels) : arguments_(arguments), channels_(channels) {}

  void moves(const Channel& source, const Route& route, uint64_t words) override;
  void decides(const Channel& source, uint64_t words) override;
  void decides(const Core& core, const MemoryPart& memory, MemoryRange block) override;
  void writes(const Channel& channel, uint32_t word) override;
  void writes(const MemoryPart& memory, uint32_t offset, const uint8_t* data, uint64_t bytes) override;
  void begins(const Core& core, const MemoryPart& memory, const KernelCall* call) override;
  void ends(const Core& core, const MemoryPart& memory) override;
  void depends(const char* on) override { refuse(std::string("what it does depends on ") + on); }

  const std::string& refusal() const { return flow_.refusal; }
  Dataflow take() {
    flow_.occurrences = static_cast<uint32_t>(occurrences_.size());
    return std::move(flow_);
  }

 private:
  struct CoreState {
    bool block_read = false;  // since the last call
    uint32_t occurrence = 0;
    const CallableOperation* operation = nullptr;
    uint32_t unit = 0;
    KernelCall call;  // under way
    std::unordered_map<const CallableOperation*, uint32_t> begun;
  };

  bool refused() const { return !flow_.refusal.empty(); }
  void refuse(std::string why);
  uint32_t argument_of(const DdrRegion& region) const;
  uint32_t add_access(const Channel& channel, uint64_t words, bool write, Slice source);
  Slice read(const Channel& source, uint64_t words);
  Slice read(const Memory& memory, uint64_t first, uint64_t words);
  Slice add_segment(uint32_t words);
  Slice joined(const std::vector<Slice>& slices);
  void leave(const Slice& slice);
  void write(const Channel& channel, const Slice& slice);
  uint32_t view_of(const MemoryPart& memory, MemoryRange range);
  uint32_t occurrence_of(CoreState& core, const KernelCall& call);
  uint32_t unit_of(CoreState& state, const MemoryPart& memory, const KernelCall& call);
  bool holds(const MemoryPart& memory, MemoryRange range, uint32_t segment);
  void set(const MemoryPart& memory, MemoryRange range, uint32_t& segment, Space space);

  const DdrRegions& arguments_;
  const std::vector<Channel>& channels_;
  Dataflow flow_;
  BlockBuilder builder_;
  std::vector<Slice> slices_;
  std::unordered_map<const Memory*, Pieces> pieces_;
  std::unordered_map<uint32_t, CoreState> cores_;
  std::map<std::pair<const CallableOperation*, uint32_t>, uint32_t> occurrences_;
  struct SliceHash {
    size_t operator()(const Slice& s) const {
      return (s.segment * 0x9E3779B97F4A7C15ull ^ s.offset) * 0xC2B2AE3D27D4EB4Full ^ s.words;
    }
  };
  std::unordered_map<Slice, uint32_t, SliceHash> views_;
};

}  // namespace onedispatch::sim
