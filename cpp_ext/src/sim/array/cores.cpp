// SPDX-License-Identifier: Apache-2.0
// Cores: starts the program that program memory names, and performs what it says.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "sim/engine/interrupt.h"
#include "onedispatch/hash.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

namespace {

// A program may do this many things in no time before time must pass.
constexpr unsigned kActionsAtOnce = 256;

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
    schedule(core, 0, {});
  }
}

void Array::stop_core(Core& core) {
  executor_->stop(core);
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
  schedule(core, 0, {});
}

void Array::schedule(Core& core, uint64_t delay, std::initializer_list<Spent> spent) {
  if (options_.profile) profile_.schedule_core(core.index, spent);
  events.push(now + delay, EventKind::kCore, core.index, core.generation);
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
      executor_->explain_nonsense(core);
      fail(core, error, "a sound parameter block and memory contents");
    }
    if (!perform(core)) return;
  }
  const uint64_t delay = std::max<uint64_t>(1, core.owed_cycles);
  core.owed_cycles = 0;
  schedule(core, delay, {{Part::kLock, delay}});
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
  if (core.action->lock != core.home_lock) {
    core.locked += now - core.blocked_at;
    if (options_.trace) trace_.add(Traced::kLock, {tiles_[core.tile].column, tiles_[core.tile].row}, core.blocked_at, now);
  }
  core.state = Core::State::kRunning;
  schedule(core, 0, {});
}

void Array::refuse_cycles(const Core& core, uint64_t cycles) const {
  fail(core, "a kernel call of " + std::to_string(cycles) + " cycles at cycle " + std::to_string(now),
       "what ends before cycle " + std::to_string(kMaxCycles));
}

void Array::begin_compute(Core& core) {
  const Action& action = *core.action;
  check_bounds(core);
  ++core.calls;
  core.busy += action.cycles;
  core.state = Core::State::kCompute;
  const uint64_t owed = core.owed_cycles, cycles = std::max<uint64_t>(1, action.cycles + owed);
  core.owed_cycles = 0;
  if (now + cycles > kMaxCycles) refuse_cycles(core, cycles);
  prints_[core.index].note(now);
  if (options_.trace) trace_.begin(core.index, tiles_[core.tile].column, tiles_[core.tile].row, action.kernel);
  executor_->begin(core);
  if (options_.profile) profile_.compute(tiles_[core.tile].column, now + owed, action.cycles);
  schedule(core, cycles, {{Part::kLock, owed}, {action.kernel != 0 ? Part::kCompute : Part::kBlock, cycles - owed}});
}

void Array::finish_compute(Core& core) {
  const uint64_t nanoseconds = executor_->end(core);
  prints_[core.index].note(now);
  if (options_.trace) trace_.end(core.index, now, core.action->cycles, nanoseconds);
  core.state = Core::State::kRunning;
  changed(core.tile);
}

void Array::refuse_bounds(const Core& core, const MemoryRange& range) const {
  fail(core, "bytes " + hex(range.offset) + " +" + std::to_string(range.bytes),
       "own data memory, 0x0 to " + hex(tiles_[core.tile].memory.bytes - 1));
}

void Array::check_bounds(const Core& core) const {
  for (const RangesView& ranges : {core.action->writes, core.action->reads})
    for (const MemoryRange& range : ranges)
      if (uint64_t{range.offset} + range.bytes > tiles_[core.tile].memory.bytes) refuse_bounds(core, range);
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
