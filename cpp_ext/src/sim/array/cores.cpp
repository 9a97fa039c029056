// SPDX-License-Identifier: Apache-2.0
// Cores: starts the program that program memory names, and performs what it says.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "sim/array/observer.h"
#include "sim/engine/interrupt.h"
#include "onedispatch/hash.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

namespace {

// A program may do this many things in no time before time must pass.
constexpr unsigned kActionsAtOnce = 256;

// Handing a shorter kernel call to another thread costs more than it saves. Host time decides only
// where a call runs, never what it does or how long it takes in the simulation.
constexpr uint64_t kWorthAThread = 20'000;  // nanoseconds

constexpr const char* kBlock = "the parameter block";

bool overlap(const MemoryRange& range, uint64_t first, uint64_t bytes) {
  return range.bytes > 0 && bytes > 0 && range.offset < first + bytes &&
         first < uint64_t{range.offset} + range.bytes;
}

}  // namespace

void Array::fail(const Core& core, const std::string& given, const std::string& accepted) const {
  fail(core, ProgramError{given}, accepted);
}

void Array::fail(const Core& core, const ProgramError& program, const std::string& accepted) const {
  const Tile& tile = tiles_[core.tile];
  SimulationError error("core",
                        {"program of " + tile_name(core.tile), program.what, accepted,
                         "Check the overlay that loaded it and the parameter block that it read."},
                        static_cast<int>(tile.column), static_cast<int>(tile.row));
  error.op = current_op;
  error.status = program.status;
  error.cause = program.cause;
  throw error;
}

void Array::write_core_control(Core& core, uint32_t value) {
  core.control = value;
  changed(core.tile);
  if (reg::core_control::reset.get(value)) return stop_core(core);
  if (!reg::core_control::enable.get(value)) return;
  if (!core.program) return start_core(core);
  if (core.woken_while_disabled) {
    core.woken_while_disabled = false;
    events.push(now, EventKind::kCore, core.index, core.generation);
  }
}

void Array::stop_core(Core& core) {
  join(core);
  if (core.state == Core::State::kAcquire) {
    for (Tile& tile : tiles_)
      for (Lock& lock : tile.locks)
        lock.waiters.erase(std::remove_if(lock.waiters.begin(), lock.waiters.end(),
                                          [&core](const Waiter& w) {
                                            return w.kind == Waiter::Kind::kCore && w.index == core.index;
                                          }),
                           lock.waiters.end());
  }
  core.program.reset();
  core.action = nullptr;
  core.state = Core::State::kStopped;
  core.woken_while_disabled = false;
  core.home_lock = kNone;
  core.owed_cycles = 0;
  ++core.generation;
}

void Array::start_core(Core& core) {
  Tile& tile = tiles_[core.tile];
  const CoreView view{tile.memory.data(), tile.column, tile.row - reg::FIRST_CORE_ROW, options_.kernel_limit, &prints_[core.index], operation_cache_, options_.clock};
  try {
    core.program =
        start_program(tile.program.data(), static_cast<uint32_t>(tile.program.size()), view, device_);
  } catch (const ProgramError& error) {
    fail(core, error, "a program image in program memory before the core is enabled");
  }
  if (!core.program) fail(core, "no program", "a program image that names a known program");
  core.image = hash_words(tile.program.data(), size_t{4} * tile.program.size());
  core.state = Core::State::kRunning;
  events.push(now, EventKind::kCore, core.index, core.generation);
}

void Array::resume_core(Core& core) {
  if (core.state == Core::State::kCompute) finish_compute(core);
  if (!reg::core_control::enable.get(core.control)) {
    core.woken_while_disabled = true;
    return;
  }
  for (unsigned i = 0; i < kActionsAtOnce; ++i) {
    try {
      core.action = &core.program->resume();
    } catch (const CallInterrupted& left) {
      check_interrupt();
      fail(core, left.what, "a run that is not interrupted");
    } catch (const ProgramError& error) {
      if (options_.clock) check_known(tiles_[core.tile], kBlock, 0);
      fail(core, error, "a sound parameter block and memory contents");
    }
    if (!perform(core)) return;
  }
  const uint64_t delay = std::max<uint64_t>(1, core.owed_cycles);
  core.owed_cycles = 0;
  events.push(now + delay, EventKind::kCore, core.index, core.generation);
}

// True when the action is complete and no time passes.
bool Array::perform(Core& core) {
  const Action& action = *core.action;
  uint32_t id = 0;
  switch (action.kind) {
    case Action::Kind::kAcquire: {
      Lock* lock = lock_of_core(core, action.lock, &id);
      if (action.value < 1) fail(core, "an acquire of " + std::to_string(action.value), "1 or more");
      if (core.home_lock == kNone) core.home_lock = action.lock;
      if (lock->waiters.empty() && can_acquire(*lock, -action.value)) {
        core.owed_cycles += timing_.core_lock;
        take_lock(*lock, core.tile, -action.value);
        return true;
      }
      core.state = Core::State::kAcquire;
      core.blocked_at = now;
      lock->waiters.push_back(Waiter{Waiter::Kind::kCore, core.index, -action.value});
      changed(core.tile);
      if (lock->waiters.size() > 1) wake(*lock, core.tile);
      return false;
    }
    case Action::Kind::kRelease: {
      Lock* lock = lock_of_core(core, action.lock, &id);
      core.owed_cycles += timing_.core_lock;
      add_to_lock(*lock, core.tile, id, action.value, Releaser{nullptr, &core});
      return true;
    }
    case Action::Kind::kCompute: return begin_compute(core), false;
    case Action::Kind::kHalt: break;
  }
  core.state = Core::State::kHalted;
  changed(core.tile);
  return false;
}

// A lock that the core waited for is its own: what it owed before has passed while it waited.
void Array::end_acquire(Core& core) {
  core.owed_cycles -= std::min(core.owed_cycles, now - core.blocked_at);
  core.owed_cycles += timing_.core_lock;
  core.state = Core::State::kRunning;
  events.push(now, EventKind::kCore, core.index, core.generation);
}

void Array::refuse_cycles(const Core& core, uint64_t cycles) const {
  fail(core, "a kernel call of " + std::to_string(cycles) + " cycles at cycle " + std::to_string(now),
       "what ends before cycle " + std::to_string(kMaxCycles));
}

void Array::begin_compute(Core& core) {
  const Action& action = *core.action;
  check_ranges(core);
  ++core.calls;
  core.busy += action.cycles;
  core.state = Core::State::kCompute;
  const uint64_t cycles = std::max<uint64_t>(1, action.cycles + core.owed_cycles);
  core.owed_cycles = 0;
  if (now + cycles > kMaxCycles) refuse_cycles(core, cycles);
  prints_[core.index].note(now);
  if (observer != nullptr) observe_begin(core);
  if (options_.trace) trace_.begin(core.index, tiles_[core.tile].column, tiles_[core.tile].row, action.kernel);
  if (action.job != nullptr && !options_.clock) run_job(core);
  events.push(now + cycles, EventKind::kCore, core.index, core.generation);
}

void Array::observe_begin(const Core& core) {
  const Action& action = *core.action;
  const MemoryPart& memory = tiles_[core.tile].memory;
  if (action.job != nullptr) return observer->begins(core, memory, action.job->call());
  for (const MemoryRange& block : action.reads) observer->decides(core, memory, block);
}

// Runs the call here at once, or on another thread. Calls that no other thread may make are not timed.
void Array::run_job(Core& core) {
  Work* const work = core.action->job;
  if (options_.threads == 1 && !options_.trace) {
    try {
      work->run();
    } catch (...) {
      fail_job(core, std::current_exception());
    }
    return;
  }
  core.job = std::make_shared<Job>();
  ++jobs_;
  core.job->work = [work] { work->run(); };
  if (options_.threads == 1 || job_nanoseconds_ < kWorthAThread) {
    join(core);
  } else {
    WorkerPool::shared().submit(core.job);
  }
}

void Array::finish_compute(Core& core) {
  join(core);
  const Action& action = *core.action;
  prints_[core.index].note(now);
  if (options_.trace) trace_.end(core.index, now, action.cycles, core.job_nanoseconds);
  const MemoryPart& memory = tiles_[core.tile].memory;
  for (const MemoryRange& range : action.writes) {
    if (options_.clock) {
      lose(tiles_[core.tile], range);
    } else if (range.bytes > 0) {
      memory.mark(range.offset / 4, (uint64_t{range.offset} % 4 + range.bytes + 3) / 4);
    }
  }
  if (observer != nullptr && action.job != nullptr) observer->ends(core, memory);
  core.state = Core::State::kRunning;
  changed(core.tile);
}

void Array::join(Core& core) {
  if (!core.job) return;
  const std::shared_ptr<Job> job = std::move(core.job);
  core.job.reset();
  --jobs_;
  WorkerPool::shared().wait(*job);
  core.job_nanoseconds = job->nanoseconds;
  job_nanoseconds_ += job->nanoseconds / 16;
  job_nanoseconds_ -= job_nanoseconds_ / 16;
  if (job->error) fail_job(core, job->error);
}

void Array::fail_job(const Core& core, const std::exception_ptr& thrown) const {
  try {
    std::rethrow_exception(thrown);
  } catch (const ProgramError& error) {
    fail(core, error, "a kernel call that its memory can serve");
  } catch (const CallInterrupted& left) {
    check_interrupt();  // on the thread that Ctrl-C is for: what its handler raises
    fail(core, left.what, "a run that is not interrupted");
  } catch (const std::exception& error) {
    fail(core, error.what(), "a kernel call that its memory can serve");
  }
  std::rethrow_exception(thrown);
}

void Array::join_overlapping(uint32_t tile, uint64_t first_byte, uint64_t bytes, bool writing) {
  const uint32_t index = tiles_[tile].core;
  if (index == kNone || !cores_[index].job) return;
  Core& core = cores_[index];
  const auto touches = [&](const MemoryRange& range) { return overlap(range, first_byte, bytes); };
  const auto& writes = core.action->writes;
  const auto& reads = core.action->reads;
  if (std::any_of(writes.begin(), writes.end(), touches) ||
      (writing && std::any_of(reads.begin(), reads.end(), touches)))
    join(core);
}

void Array::refuse_bounds(const Core& core, const MemoryRange& range) const {
  fail(core, "bytes " + hex(range.offset) + " +" + std::to_string(range.bytes),
       "own data memory, 0x0 to " + hex(tiles_[core.tile].memory.bytes - 1));
}

void Array::refuse_unwritten(const Core& core, const MemoryRange& range, uint64_t byte) const {
  if (options_.clock) fail_unknown(tiles_[core.tile], kBlock, byte);
  fail(core,
       "a kernel call that reads byte " + hex(byte) + " of its data memory (range " +
           hex(range.offset) + " +" + std::to_string(range.bytes) + "), which was never written",
       "memory that a DMA, the host or a kernel wrote before");
}

void Array::check_ranges(const Core& core) const {
  const MemoryPart& memory = tiles_[core.tile].memory;
  const auto check_bounds = [&](const MemoryRange& range) {
    if (uint64_t{range.offset} + range.bytes > memory.bytes) refuse_bounds(core, range);
  };
  for (const MemoryRange& range : core.action->writes) check_bounds(range);
  for (const MemoryRange& range : core.action->reads) {
    check_bounds(range);
    if (range.bytes == 0 || (options_.clock && core.action->job != nullptr)) continue;
    const uint64_t first = range.offset / 4;
    const uint64_t count = (range.offset % 4 + range.bytes + 3) / 4;
    const uint64_t bad = memory.first_unwritten(first, count);
    if (bad != first + count) refuse_unwritten(core, range, bad * 4);
  }
}

void Array::refuse_lock(const Core& core, uint32_t view_id) const {
  fail(core, "lock " + std::to_string(view_id), "own locks, 48 to 63 in the core's view");
}

Lock* Array::lock_of_core(const Core& core, uint32_t view_id, uint32_t* id) {
  constexpr uint32_t kOwnSide = 3;
  if (view_id / reg::core::kLocks != kOwnSide) refuse_lock(core, view_id);
  *id = view_id % reg::core::kLocks;
  return &tiles_[core.tile].locks[*id];
}

uint32_t Array::core_status(const Core& core) const {
  uint32_t word =
      reg::core_status::enabled.set(0, static_cast<int64_t>(reg::core_control::enable.get(core.control)));
  word = reg::core_status::reset.set(word, static_cast<int64_t>(reg::core_control::reset.get(core.control)));
  if (core.state == Core::State::kAcquire) word = reg::core_status::lock_stall.set(word, 8);  // own = east
  if (core.state == Core::State::kHalted) word = reg::core_status::done.set(word, 1);
  return word;
}

}  // namespace onedispatch::sim
