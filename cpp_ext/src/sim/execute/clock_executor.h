// SPDX-License-Identifier: Apache-2.0
// A clock without data: the engine decides all that it decides in any run, so time passes as it always does, but no
// tensor moves and no kernel is called.
//
// Some words decide: those of control packets and parameter blocks, and those that the controller reads. So words that
// are known do move, on the chip: those that the host gave, and those that instructions and packets write. The map of
// an on-chip memory says which of its words are known, and known_ where to look at all: nearly nothing lies there.
// Words become unknown where unknown ones are moved to them, or a kernel writes. Device memory is not written; what
// would be is lost to the run. Where an unknown word decides, the run ends, and says so.
#pragma once
#include <vector>

#include "sim/array/array.h"
#include "sim/execute/executor.h"

namespace onedispatch::sim {

class ClockExecutor final : public Executor {
 public:
  explicit ClockExecutor(Array& array) : array_(array) { ClockExecutor::reset(); }

  void move(Channel& source, const Route& route, uint64_t words) override;
  void deliver(Channel& destination, const uint8_t* words, uint64_t count) override;
  void place(Channel& channel) override;
  Words ahead(Channel& source, uint64_t most) override;
  uint32_t peek(Channel& source) override;
  void take(Channel& source, uint32_t* to, uint64_t words) override;
  void write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) override;
  uint32_t read(const Tile& tile, uint32_t offset) override;
  void begin(Core& core) override;
  uint64_t end(Core& core) override;
  void stop(const Core&) override {}
  void explain_nonsense(const Core& core) const override;
  void settle() override {}
  void reset() override;

 private:
  const uint8_t* known_words(Channel& source, uint64_t words);
  bool may_know(const Channel& channel);
  void lose(Channel& channel, uint64_t words);
  void lose(const Tile& tile, MemoryRange range);
  void read_deciding(const Channel& source, Cursor& from, uint8_t* to, uint64_t words) const;
  template <typename Visit>
  void for_known_of(const Channel& channel, Visit visit);
  [[noreturn, gnu::cold]] void fail_unknown(const Channel& source, uint64_t word) const;
  [[noreturn, gnu::cold]] void fail_unknown(const Tile& tile, const char* what, uint64_t byte) const;

  Array& array_;
  std::vector<Span> known_;  // by tile, of the whole memory that it has a part of
  std::vector<uint8_t> scratch_;
};

}  // namespace onedispatch::sim
