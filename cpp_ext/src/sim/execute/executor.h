// SPDX-License-Identifier: Apache-2.0
// What a run does once the engine has decided it: words move, memory is written, kernels are called. The engine has one
// executor at a time: one that does all of it (data_executor.h), one that leaves it out (clock_executor.h), or a recorder,
// which writes down what another one does (record/recorder.h). Asked per segment and per kernel call, never per event or word.
#pragma once
#include <cstdint>

namespace onedispatch::sim {

struct Channel;
struct Core;
struct Route;
struct Tile;

class Executor {
 public:
  struct Words {
    const uint8_t* at;
    uint64_t count;
  };

  virtual ~Executor() = default;

  // --- Streams. Cursors pass over the words that move. ---
  // The next `words` words of the source go to every channel of the route.
  virtual void move(Channel& source, const Route& route, uint64_t words) = 0;
  // Words that no channel sends go to the memory of one: a packet's header, say.
  virtual void deliver(Channel& destination, const uint8_t* words, uint64_t count) = 0;
  // Where the channel's BD lies in device memory has been found.
  virtual void place(Channel& channel) = 0;

  // --- Words that decide what happens: those of control packets. They are the source's next. ---
  // Those that lie together and can be read, at most `most`: none where the first can not. The cursor stays.
  virtual Words ahead(Channel& source, uint64_t most) = 0;
  virtual uint32_t peek(Channel& source) = 0;  // the cursor stays
  virtual void take(Channel& source, uint32_t* to, uint64_t words) = 0;

  // --- Data memory, by instructions and packets. ---
  virtual void write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) = 0;  // null: zeros
  virtual uint32_t read(const Tile& tile, uint32_t offset) = 0;
  // --- BDs: `words` words of one are written, from its `first` on; one of them is read; a channel loads all. ---
  virtual void write_bd(const Tile&, uint32_t /*bd*/, uint32_t /*first*/, uint32_t /*words*/) {}
  virtual void read_bd(const Tile&, uint32_t /*bd*/, uint32_t /*word*/) {}
  virtual void load_bd(const Tile&, uint32_t /*bd*/) {}
  // What happens depends on more than instructions and the words above.
  virtual void depends(const char*) {}

  // --- Cores: what the action says that the core's program waits for. ---
  virtual void begin(Core& core) = 0;
  virtual uint64_t end(Core& core) = 0;      // returns the nanoseconds that the call took of this machine, where it was timed
  virtual void stop(const Core& core) = 0;  // its call is of no use any more
  // Its program found nonsense in memory. Throws where it read what this executor left out.
  virtual void explain_nonsense(const Core&) const {}

  // Until no kernel call is under way; what any throws is of no interest.
  virtual void settle() = 0;
  virtual void reset() {}  // the array was reset, after settle()
};

}  // namespace onedispatch::sim
