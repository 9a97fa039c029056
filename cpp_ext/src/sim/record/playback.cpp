// SPDX-License-Identifier: Apache-2.0
#include "sim/record/playback.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "sim/array/bytes.h"
#include "sim/engine/workers.h"

namespace onedispatch::sim {

namespace {

constexpr unsigned kSpins = 20'000;  // some tens of microseconds: what a level takes at least

uint8_t* at(uint8_t* base, int64_t words) { return base + 4 * words; }

// Between a chunk and the space of a block, whose word 0 lies at `space`.
void gather(const RunBlock& block, uint8_t* chunk, uint8_t* space) {
  block.for_runs([&](int64_t first, int64_t local) { copy_words(at(chunk, local), at(space, first), block.run); });
}

void scatter(const RunBlock& block, uint8_t* chunk, uint8_t* space) {
  block.for_runs([&](int64_t first, int64_t local) { copy_words(at(space, first), at(chunk, local), block.run); });
}

void pad(const RunBlock& block, uint8_t* chunk) {
  block.for_runs([&](int64_t value, int64_t local) {
    for (uint32_t i = 0; i < block.run; ++i) store32(at(chunk, local + i), static_cast<uint32_t>(value));
  });
}

// Spins a while, then gives the processor away, until `done` says so.
template <typename Done>
void wait_until(Done done) {
  for (unsigned spin = 0; !done(); ++spin) {
    if (spin < kSpins) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

Playback::Playback(const Recording& recording, const DdrRegions& regions, std::vector<uint8_t>& kept, unsigned threads)
    : recording_(recording),
      threads_(threads == 0 ? std::max(1u, std::thread::hardware_concurrency()) : threads),
      progress_(new Progress[recording.levels.size()]) {
  for (const WordRange& range : recording.written) own(regions, *regions[range.argument]);
  for (const auto& region : regions) arguments_.push_back(region->data + (region->address - region->origin));
  if (recording.kept_words != 0) kept.resize(std::max(kept.size(), size_t{4} * recording.kept_words + host::VECTOR_BYTES));
  arguments_.push_back(kept.data());
}

uint8_t* Playback::place(Space space, uint32_t first) const {
  switch (space.kind()) {
    case Space::kDdr: return arguments_[space.id()] + size_t{4} * first;
    default: return reinterpret_cast<uint8_t*>(const_cast<uint32_t*>(recording_.literals.data() + first));
  }
}

const uint8_t* Playback::chunk(uint32_t index, uint32_t port, Workspace& space) const {
  const Recording::View& view = recording_.views[index];
  if (view.direct) return place(view.space, view.first);
  std::vector<uint8_t>& made = space.chunks[port];
  if (space.held[port] == index) return made.data();
  if (made.empty()) made.resize(size_t{4} * recording_.most_words + host::VECTOR_BYTES);
  for (uint32_t i = 0; i < view.blocks; ++i) {
    const RunBlock& block = recording_.blocks[view.first_block + i];
    if (block.space.kind() == Space::kPadding) {
      pad(block, made.data());
    } else {
      gather(block, made.data(), place(block.space, 0));
    }
  }
  space.held[port] = index;
  return made.data();
}

void Playback::store(const Recording::Part& part, const uint8_t* chunk) const {
  for (uint32_t i = 0; i < part.blocks; ++i) {
    const RunBlock& block = recording_.blocks[part.first_block + i];
    scatter(block, const_cast<uint8_t*>(chunk), place(block.space, 0));
  }
}

void Playback::make(const Recording::Part& part, Workspace& space) const {
  if (part.operation == nullptr) return store(part, chunk(part.view, 0, space));
  CallMemory memory;
  if (space.out.empty()) space.out.resize(recording_.most_out_bytes + host::VECTOR_BYTES);
  if (space.scratch.empty() && recording_.most_scratch_bytes != 0) space.scratch.resize(recording_.most_scratch_bytes + host::VECTOR_BYTES);
  uint8_t* const out = part.direct ? place(part.space, part.first) : space.out.data();
  memory.chunks[params::kOutPort] = out;
  memory.scratch = part.scratch_bytes != 0 ? space.scratch.data() : nullptr;
  KernelCall call;
  for (uint32_t i = 0; i < part.calls; ++i) {
    const Recording::Call& made = recording_.calls[part.first_call + i];
    call.origin = made.origin;
    call.step = made.step;
    for (uint32_t base = 0; base < part.bases; ++base) {
      const Recording::Base& lies = recording_.bases[part.first_base + i * part.bases + base];
      memory.operands[lies.operand] = (lies.argument == Recording::Base::kOutChunk ? out : arguments_[lies.argument]) + lies.byte;
    }
    for (uint32_t port = 0; port < params::kOutPort; ++port)
      memory.chunks[port] = made.views[port] == kNoView ? nullptr : const_cast<uint8_t*>(chunk(made.views[port], port, space));
    part.operation->run(call, memory);
  }
  store(part, out);
}

void Playback::stop(std::exception_ptr why) {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (!failure_) failure_ = std::move(why);
  stopped_.store(true, std::memory_order_release);
}

// Makes parts of the level until none is left to begin with; whether the run goes on.
bool Playback::work(uint32_t level, Workspace& space, InterruptPace* pace) {
  const Recording::Level& own = recording_.levels[level];
  Progress& progress = progress_[level];
  space.held.fill(kNoView);
  // Neighbours share operands, so a thread takes some at once, but fewer as the level ends.
  for (;;) {
    uint32_t first = progress.next.load(std::memory_order_relaxed), count = 0;
    do {
      if (first >= own.parts || stopped_.load(std::memory_order_acquire)) return !stopped_.load();
      count = std::max(1u, (own.parts - first) / (4 * threads_));
    } while (!progress.next.compare_exchange_weak(first, first + count));
    for (uint32_t i = 0; i < count; ++i) {
      if (pace != nullptr) (*pace)();
      make(recording_.parts[own.first + first + i], space);
    }
    progress.done.fetch_add(count, std::memory_order_acq_rel);
  }
}

// On another thread: level by level, as far as the run has come. It ends early where a fork must not find it here.
void Playback::help() {
  Workspace space;
  try {
    uint32_t level = level_.load(std::memory_order_acquire);
    while (level < recording_.levels.size() && work(level, space, nullptr)) {
      uint32_t now = level;
      bool leaves = false;
      wait_until([&] {
        now = level_.load(std::memory_order_acquire);
        leaves = stopped_.load(std::memory_order_acquire) || WorkerPool::shared().pausing();
        return now != level || leaves;
      });
      if (leaves) return;
      level = now;
    }
  } catch (...) {
    stop(std::current_exception());
  }
}

bool Playback::run() {
  std::vector<std::shared_ptr<Job>> helpers;
  for (unsigned i = 1; i < threads_; ++i) {
    helpers.push_back(std::make_shared<Job>());
    helpers.back()->work = [this] { help(); };
    WorkerPool::shared().submit(helpers.back());
  }
  Workspace space;
  InterruptPace pace;
  const auto levels = static_cast<uint32_t>(recording_.levels.size());
  std::exception_ptr interrupted;
  try {
    for (uint32_t level = 0; level < levels && work(level, space, &pace); ++level) {
      const uint32_t parts = recording_.levels[level].parts;
      wait_until([&] { return progress_[level].done.load(std::memory_order_acquire) == parts || stopped_.load(std::memory_order_acquire); });
      if (stopped_.load(std::memory_order_acquire)) break;
      level_.store(level + 1, std::memory_order_release);
    }
  } catch (const ProgramError&) {
    stop(std::current_exception());
  } catch (...) {
    interrupted = std::current_exception();
    stop(interrupted);
  }
  level_.store(levels, std::memory_order_release);
  for (const std::shared_ptr<Job>& helper : helpers) WorkerPool::shared().wait(*helper);
  if (interrupted) std::rethrow_exception(interrupted);
  if (!failure_) return true;
  try {
    std::rethrow_exception(failure_);
  } catch (const ProgramError&) {
    return false;
  }
}

}  // namespace onedispatch::sim
