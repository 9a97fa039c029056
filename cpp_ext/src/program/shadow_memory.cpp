// SPDX-License-Identifier: Apache-2.0
#include "shadow_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "onedispatch/text.h"
#include "operation.h"

namespace onedispatch {

namespace {

constexpr size_t kGuardBytes = size_t{1} << 20;  // without access, on either side
constexpr uint16_t kPattern = 0xFFA5;            // a NaN of f32, bf16 and f16, a number of no use to integers

// Memory as large as a core's, between inaccessible pages. Bytes that no call changed hold the pattern.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    whole_ = (bytes + page - 1) / page * page;
    void* const all = mmap(nullptr, whole_ + 2 * kGuardBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<uint8_t*>(all) + kGuardBytes;
    if (mprotect(base_, whole_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    poison(0, whole_);
  }

  uint8_t* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  size_t whole() const { return whole_; }  // up to the first page without access

  void poison(size_t first, size_t count) const {
    for (size_t i = first; i < first + count; ++i) base_[i] = pattern(i);
  }
  // The first byte of [first, end) that does not hold the pattern; `end` where all do.
  size_t first_changed(size_t first, size_t end) const {
    if (first >= end) return end;
    for (size_t i = first; i < std::min(first + 2, end); ++i) {
      if (base_[i] != pattern(i)) return i;
    }
    if (end - first <= 2 || std::memcmp(base_ + first, base_ + first + 2, end - first - 2) == 0) return end;
    while (base_[first] == pattern(first)) ++first;
    return first;
  }

 private:
  static uint8_t pattern(size_t at) { return static_cast<uint8_t>(at % 2 == 0 ? kPattern & 0xFF : kPattern >> 8); }

  uint8_t* base_ = nullptr;
  size_t bytes_, whole_;
};

// Arenas are never given back: an array of a body in Python may outlive its call.
class Arenas {
 public:
  std::unique_ptr<Arena> take(size_t bytes) {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      auto& free = free_[bytes];
      if (!free.empty()) {
        std::unique_ptr<Arena> arena = std::move(free.back());
        free.pop_back();
        return arena;
      }
    }
    return std::make_unique<Arena>(bytes);
  }
  void give(std::unique_ptr<Arena> arena) {
    const std::lock_guard<std::mutex> hold(mutex_);
    free_[arena->bytes()].push_back(std::move(arena));
  }
  static Arenas& all() {
    static Arenas* const arenas = new Arenas;  // threads may end after static objects
    return *arenas;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::unique_ptr<Arena>>> free_;
};

}  // namespace

// The arena of one call, with what the call may touch. Clean again when it goes.
class ShadowMemory::Copy {
 public:
  Copy(const uint8_t* core, size_t bytes) : arena_(Arenas::all().take(bytes)), core_(core) {}
  ~Copy() {
    if (!sound_) arena_->poison(0, arena_->whole());
    for (const Range& range : ranges_) arena_->poison(range.first, range.end - range.first);
    Arenas::all().give(std::move(arena_));
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  uint8_t* base() const { return arena_->base(); }
  size_t whole() const { return arena_->whole(); }

  void add(const MemoryRange& range, bool writable, bool copied) {
    if (range.bytes == 0) return;
    ranges_.push_back({range.offset, uint64_t{range.offset} + range.bytes, writable});
    if (copied) std::memcpy(base() + range.offset, core_ + range.offset, range.bytes);
  }

  // Returns the first byte that the call changed without permission; -1 if there is none.
  int64_t first_wrong() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    uint64_t reached = 0;
    sound_ = false;
    for (const Range& range : ranges_) {
      const size_t changed = arena_->first_changed(reached, range.first);
      if (changed < range.first) return static_cast<int64_t>(changed);
      reached = std::max(reached, range.end);
      for (uint64_t i = range.first; !range.writable && !same(range) && i < range.end; ++i) {
        if (base()[i] != core_[i] && !writable(i)) return static_cast<int64_t>(i);
      }
    }
    const size_t changed = arena_->first_changed(reached, whole());
    if (changed < whole()) return static_cast<int64_t>(changed);
    sound_ = true;
    return -1;
  }

 private:
  struct Range {
    uint64_t first, end;
    bool writable;
  };

  bool same(const Range& range) const { return std::memcmp(base() + range.first, core_ + range.first, range.end - range.first) == 0; }
  bool writable(uint64_t byte) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [=](const Range& r) { return r.writable && r.first <= byte && byte < r.end; });
  }

  std::unique_ptr<Arena> arena_;
  const uint8_t* core_;
  std::vector<Range> ranges_;
  bool sound_ = false;
};

ShadowMemory::ShadowMemory(std::shared_ptr<const Plan> plan, const od_setup& setup, CoreView core, uint32_t memory_bytes)
    : plan_(std::move(plan)), setup_(setup), core_(core), memory_bytes_(memory_bytes) {}

void ShadowMemory::run(const od_call& given, const MemoryRanges& reads, const MemoryRanges& writes) const {
  Copy copy(core_.memory, memory_bytes_);
  od_call call = given;
  const auto move = [&](uint8_t*& at) {
    if (at != nullptr) at = copy.base() + (at - core_.memory);
  };
  for (uint32_t i = 0; i < setup_.spec->n_operands; ++i) move(call.operand[i]);
  move(call.scratch);
  for (const MemoryRange& range : reads) copy.add(range, false, true);
  for (const MemoryRange& range : writes) {
    const bool scratch = given.scratch != nullptr && core_.memory + range.offset == given.scratch;
    copy.add(range, true, !scratch || setup_.spec->keeps_scratch != 0);  // scratch starts undefined
  }
  const BodyLimit limit(core_.limit_ms);
  const InterruptCounter counting;
  execute(call, copy.base());
  const int64_t wrong = copy.first_wrong();
  if (wrong >= 0) refuse_access(call, copy.base(), "wrote outside of its outputs and scratch", wrong);
  for (const MemoryRange& range : writes) std::memcpy(core_.memory + range.offset, copy.base() + range.offset, range.bytes);
}

void ShadowMemory::execute(const od_call& call, const uint8_t* base) const {
  try {
    plan_->run(call);
  } catch (const FaultError& fault) {
    const int64_t byte = static_cast<int64_t>(fault.address) - reinterpret_cast<int64_t>(base);
    const int64_t around = static_cast<int64_t>(kGuardBytes);
    if (fault.address != 0 && byte >= -around && byte < int64_t{memory_bytes_} + 2 * around) {
      refuse_access(call, base, fault.wrote ? "wrote beyond the core's memory" : "read beyond the core's memory", byte);
    }
    KernelError placed = fault;
    placed.what += "; in " + members_of(setup_, call);
    throw placed;
  } catch (KernelError& error) {
    error.what += "; in " + members_of(setup_, call);
    throw;
  } catch (const CallInterrupted& left) {
    throw CallInterrupted{left.what + "; in " + members_of(setup_, call)};
  }
}

void ShadowMemory::refuse_access(const od_call& call, const uint8_t* base, const std::string& what, int64_t byte) const {
  throw KernelError{OD_ACCESS, std::string(setup_.spec->name) + ": its function run " + what + ", at " + near(call, base, byte) + " (byte " +
                                   std::to_string(byte) + " of " + std::to_string(memory_bytes_) + " of the core's memory); in " + members_of(setup_, call)};
}

std::vector<ShadowMemory::OperandRange> ShadowMemory::operand_ranges(const od_call& call, const uint8_t* base) const {
  std::vector<OperandRange> all;
  const auto add = [&](const std::string& name, const uint8_t* at, uint32_t bytes) {
    if (at != nullptr) all.push_back({name, at - base, at - base + bytes});
  };
  for (uint32_t i = 0; i < setup_.spec->n_operands; ++i) {
    const od_operand_spec& spec = setup_.spec->operands[i];
    const char* const roles[] = {"input ", "auxiliary tensor ", "output "};
    add(std::string(roles[spec.role]) + spec.name, call.operand[i], setup_.operands[i].bytes);
  }
  add("scratch", call.scratch, setup_.scratch_bytes);
  return all;
}

// "byte +4 of input x", "byte +0 behind the end of output z"
std::string ShadowMemory::near(const od_call& call, const uint8_t* base, int64_t byte) const {
  const OperandRange* inside = nullptr;
  const OperandRange* before = nullptr;
  const OperandRange* after = nullptr;
  const std::vector<OperandRange> all = operand_ranges(call, base);
  for (const OperandRange& one : all) {  // operands of one buffer reach up to its end, so the last one to begin has it
    if (one.first <= byte && byte < one.end && (inside == nullptr || one.first > inside->first)) inside = &one;
    if (one.end <= byte && (before == nullptr || one.end > before->end)) before = &one;
    if (one.first > byte && (after == nullptr || one.first < after->first)) after = &one;
  }
  if (inside != nullptr) return "byte +" + std::to_string(byte - inside->first) + " of " + inside->name;
  if (before != nullptr && (after == nullptr || byte - before->end <= after->first - byte)) {
    return "byte +" + std::to_string(byte - before->end) + " behind the end of " + before->name;
  }
  return after == nullptr ? "a byte of no operand" : "byte -" + std::to_string(after->first - byte) + " before the begin of " + after->name;
}

}  // namespace onedispatch
