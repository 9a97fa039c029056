// SPDX-License-Identifier: Apache-2.0
// What sees the data of a run move: called when a segment has passed and a kernel call begins or ends, never per
// event or word.
#pragma once
#include <cstdint>
#include <string>

#include "onedispatch/core_program.h"

namespace onedispatch::sim {

struct Channel;
struct Core;
struct Memory;
struct MemoryPart;
struct Route;

class Observer {
 public:
  virtual ~Observer() = default;
  // The next `words` words of the source are about to be copied to each channel of the route.
  virtual void moves(const Channel& source, const Route& route, uint64_t words) = 0;
  // The next `words` words of the source are taken as packets: what is done depends on them.
  virtual void decides(const Channel& source, uint64_t words) = 0;
  // A range of a core's memory is read as a parameter block.
  virtual void decides(const Core& core, const MemoryPart& memory, MemoryRange block) = 0;
  // A packet's header passes on into the channel's memory.
  virtual void writes(const Channel& channel, uint32_t word) = 0;
  // An instruction, or a packet, writes words; null: zeros.
  virtual void writes(const MemoryPart& memory, uint32_t offset, const uint8_t* data, uint64_t bytes) = 0;
  // `call`: null where a call can be made by its core alone.
  virtual void begins(const Core& core, const MemoryPart& memory, const KernelCall* call) = 0;
  virtual void ends(const Core& core, const MemoryPart& memory) = 0;
  // What happens depends on more than instructions and the words that decides() names.
  virtual void depends(const char* on) = 0;
};

}  // namespace onedispatch::sim
