// SPDX-License-Identifier: Apache-2.0
#include "sim/execute/data_executor.h"

#include <algorithm>
#include <cstring>

#include "sim/array/bytes.h"
#include "sim/engine/interrupt.h"

namespace onedispatch::sim {

namespace {

// Handing a shorter kernel call to another thread costs more than it saves. Host time decides only
// where a call runs, never what it does or how long it takes in the simulation.
constexpr uint64_t kWorthAThread = 20'000;  // nanoseconds

bool overlap(const MemoryRange& range, uint64_t first, uint64_t bytes) {
  return range.bytes > 0 && bytes > 0 && range.offset < first + bytes &&
         first < uint64_t{range.offset} + range.bytes;
}

// Whether two BDs touch the same bytes of a core's memory or of the memory tiles.
bool touch_the_same(const Channel& a, const Channel& b) {
  return a.memory != nullptr && a.memory == b.memory && a.first_byte < b.first_byte + b.span_bytes &&
         b.first_byte < a.first_byte + a.span_bytes;
}

}  // namespace

// --- Streams -------------------------------------------------------------------------------------------------

uint8_t* DataExecutor::scratch(uint64_t words) {
  if (scratch_.size() < 4 * words) scratch_.resize(4 * words);
  return scratch_.data();
}

void DataExecutor::move(Channel& s, const Route& route, uint64_t words) {
  std::vector<Channel>& channels = array_.channels();
  settle(s);
  bool shares_memory = false;
  for (const Destination& d : route.destinations) {
    const Channel& c = channels[d.channel];
    settle(c);
    shares_memory = shares_memory || touch_the_same(s, c) || (c.region && s.region);
  }
  const uint8_t* from = shares_memory ? nullptr : s.cursor.contiguous(words);
  uint64_t unwritten;
  size_t first = 0;
  if (from != nullptr) {
    unwritten = s.cursor.skip_read(words);
  } else {
    Channel& c = channels[route.destinations[0].channel];
    uint8_t* to = shares_memory ? nullptr : c.cursor.contiguous(words);
    if (to != nullptr) {
      // Gather straight into the first destination, and serve the others from there.
      c.cursor.skip_written(words);
      first = 1;
    } else {
      to = scratch(words);
    }
    unwritten = s.cursor.gather(to, words);
    from = to;
  }
  if (unwritten != Cursor::kAllWritten) fail_unwritten(s, unwritten);
  for (size_t i = first; i < route.destinations.size(); ++i) channels[route.destinations[i].channel].cursor.scatter(from, words);
}

void DataExecutor::deliver(Channel& c, const uint8_t* words, uint64_t count) {
  settle(c);
  c.cursor.scatter(words, count);
}

// What channels read of memory that the host lent, and that this one will write, they read from a copy from then on.
void DataExecutor::place(Channel& c) {
  if (c.mm2s || c.region->copied == nullptr) return;
  own(array_.regions(), *c.region);
  for (Channel& other : array_.channels())
    if (other.region != nullptr) other.cursor.follow(other.region->data);
}

Executor::Words DataExecutor::ahead(Channel& s, uint64_t most) {
  settle(s);
  const uint64_t count = std::min(most, s.cursor.left_of_run());
  const uint8_t* const at = s.cursor.readable(count);
  return {at, at == nullptr ? 0 : count};
}

void DataExecutor::read_deciding(const Channel& s, Cursor& from, uint8_t* to, uint64_t words) {
  settle(s);
  const uint64_t unwritten = from.gather(to, words);
  if (unwritten != Cursor::kAllWritten) fail_unwritten(s, unwritten);
}

uint32_t DataExecutor::peek(Channel& s) {
  uint8_t bytes[4];
  Cursor ahead = s.cursor;
  read_deciding(s, ahead, bytes, 1);
  return load32(bytes);
}

void DataExecutor::take(Channel& s, uint32_t* to, uint64_t words) {
  read_deciding(s, s.cursor, reinterpret_cast<uint8_t*>(to), words);
}

void DataExecutor::fail_unwritten(const Channel& s, uint64_t word) const {
  array_.fail(s, "memory",
              {array_.channel_name(s) + " BD " + std::to_string(s.bd_id) + " (written by op " +
                   std::to_string(array_.tiles()[s.tile].bd_writers[s.bd_id].index) + ") reads",
               array_.place_of(s, word) + ", which was never written", "memory that the host, a DMA or a core wrote before",
               "Check the BD's address and length, the locks that order it, and that the host synced the buffer."});
}

// --- Data memory ---------------------------------------------------------------------------------------------

void DataExecutor::write(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes) {
  join_overlapping(tile, offset, bytes, true);
  tile.memory.set(offset, data, bytes);
}

uint32_t DataExecutor::read(const Tile& tile, uint32_t offset) {
  join_overlapping(tile, offset, 4, false);
  return load32(tile.memory.data() + offset);
}

// --- Kernel calls --------------------------------------------------------------------------------------------

void DataExecutor::check_reads(const Core& core) const {
  const MemoryPart& memory = array_.tiles()[core.tile].memory;
  for (const MemoryRange& range : core.action->reads) {
    const uint64_t byte = memory.unwritten_byte(range.offset, range.bytes);
    if (byte == MemoryPart::kAllWritten) continue;
    array_.fail(core,
                "a kernel call that reads byte " + hex(byte) + " of its data memory (range " +
                    hex(range.offset) + " +" + std::to_string(range.bytes) + "), which was never written",
                "memory that a DMA, the host or a kernel wrote before");
  }
}

void DataExecutor::begin(Core& core) {
  check_reads(core);
  if (core.action->job != nullptr) call(core);
}

// Makes the call here at once, or on another thread. Calls that no other thread may make are not timed.
void DataExecutor::call(Core& core) {
  Work* const work = core.action->job;
  const Options& options = array_.options();
  if (options.threads == 1 && !options.trace) {
    try {
      work->run();
    } catch (...) {
      fail_call(core, std::current_exception());
    }
    return;
  }
  if (calls_.size() <= core.index) calls_.resize(core.index + size_t{1});
  std::shared_ptr<Job>& job = calls_[core.index].job;
  job = std::make_shared<Job>();
  ++under_way_;
  job->work = [work] { work->run(); };
  if (options.threads == 1 || nanoseconds_ < kWorthAThread) {
    join(core);
  } else {
    WorkerPool::shared().submit(job);
  }
}

uint64_t DataExecutor::end(Core& core) {
  join(core);
  const MemoryPart& memory = array_.tiles()[core.tile].memory;
  for (const MemoryRange& range : core.action->writes)
    if (range.bytes > 0) memory.mark(range.offset / 4, (uint64_t{range.offset} % 4 + range.bytes + 3) / 4);
  return core.index < calls_.size() ? calls_[core.index].nanoseconds : 0;
}

void DataExecutor::join(const Core& core) {
  if (!is_under_way(core.index)) return;
  Call& call = calls_[core.index];
  const std::shared_ptr<Job> job = std::move(call.job);
  call.job.reset();
  --under_way_;
  WorkerPool::shared().wait(*job);
  call.nanoseconds = job->nanoseconds;
  nanoseconds_ += job->nanoseconds / 16;
  nanoseconds_ -= nanoseconds_ / 16;
  if (job->error) fail_call(core, job->error);
}

void DataExecutor::fail_call(const Core& core, const std::exception_ptr& thrown) const {
  try {
    std::rethrow_exception(thrown);
  } catch (const ProgramError& error) {
    array_.fail(core, error, "a kernel call that its memory can serve");
  } catch (const CallInterrupted& left) {
    check_interrupt();  // on the thread that Ctrl-C is for: what its handler raises
    array_.fail(core, left.what, "a run that is not interrupted");
  } catch (const std::exception& error) {
    array_.fail(core, error.what(), "a kernel call that its memory can serve");
  }
  std::rethrow_exception(thrown);
}

void DataExecutor::settle(const Channel& c) {
  if (under_way_ != 0 && c.memory_tile != kNone)
    join_overlapping(array_.tiles()[c.memory_tile], c.first_byte, c.span_bytes, !c.mm2s);
}

void DataExecutor::join_overlapping(const Tile& tile, uint64_t first_byte, uint64_t bytes, bool writing) {
  if (!is_under_way(tile.core)) return;
  const Core& core = array_.cores()[tile.core];
  const auto touches = [&](const MemoryRange& range) { return overlap(range, first_byte, bytes); };
  const auto& writes = core.action->writes;
  const auto& reads = core.action->reads;
  if (std::any_of(writes.begin(), writes.end(), touches) ||
      (writing && std::any_of(reads.begin(), reads.end(), touches)))
    join(core);
}

void DataExecutor::settle() {
  for (const Call& call : calls_)
    if (call.job) WorkerPool::shared().wait(*call.job);
  calls_.clear();
  under_way_ = 0;
}

}  // namespace onedispatch::sim
