// SPDX-License-Identifier: Apache-2.0
#include "member_run.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "signal_guard.h"

namespace onedispatch {

namespace {

constexpr size_t kGuardBytes = size_t{1} << 20;  // without access, on either side

// A copy of memory between inaccessible pages. Bytes beside it, to whole pages, are those of its ends.
class Fenced {
 public:
  Fenced(const MemberMemory& of, bool at_end) : of_(of) {
    if (of.data == nullptr) return;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    whole_ = (std::max<size_t>(of.bytes, 1) + page - 1) / page * page;
    all_ = mmap(nullptr, whole_ + 2 * kGuardBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all_ == MAP_FAILED) throw std::bad_alloc();
    auto* const inside = static_cast<uint8_t*>(all_) + kGuardBytes;
    if (mprotect(inside, whole_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    begin_ = at_end ? inside + (whole_ - of.bytes) / 4 * 4 : inside;  // chunks lie at multiples of four
    std::memset(inside, of.bytes == 0 ? 0 : of.data[0], whole_);
    if (of.bytes != 0) std::memcpy(begin_, of.data, of.bytes);
  }
  ~Fenced() {
    if (all_ != MAP_FAILED) munmap(all_, whole_ + 2 * kGuardBytes);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  uint8_t* chunk() const { return begin_ == nullptr ? nullptr : begin_ + of_.at; }
  void copy_back() const {
    if (begin_ != nullptr && of_.bytes != 0) std::memcpy(of_.data, begin_, of_.bytes);
  }
  // Whether an address lies here or in the pages around; the byte of the memory that it is.
  bool holds(uintptr_t address, int64_t& byte) const {
    const auto first = reinterpret_cast<uintptr_t>(all_);
    if (begin_ == nullptr || address < first || address >= first + whole_ + 2 * kGuardBytes) return false;
    byte = static_cast<int64_t>(address - first) - static_cast<int64_t>(begin_ - static_cast<uint8_t*>(all_));
    return true;
  }

 private:
  MemberMemory of_;
  void* all_ = MAP_FAILED;
  size_t whole_ = 0;
  uint8_t* begin_ = nullptr;
};

// Notes what accessors say.
struct Listener {
  od_host host{};  // first: what calls hand back
  MemberRun* run = nullptr;

  static void touched(const od_host* host, uint32_t operand, const int64_t* coordinate, uint32_t count, uint32_t write) {
    MemberRun& run = *reinterpret_cast<const Listener*>(host)->run;
    if (operand >= run.touched.size() || count == 0) return;
    MemberTouched& seen = run.touched[operand];
    const uint32_t rank = std::min(run.setup.operands[operand].n_axes, OD_MAX_DIMS);
    for (uint32_t d = 0; d < rank; ++d) {
      const int64_t first = coordinate[d], last = first + (d + 1 == rank ? count - 1 : 0);
      seen.low[d] = seen.any ? std::min(seen.low[d], first) : first;
      seen.high[d] = seen.any ? std::max(seen.high[d], last) : last;
      if (seen.outside || (first >= run.low[operand][d] && last <= run.high[operand][d])) continue;
      std::copy_n(coordinate, rank, seen.where.begin());
      if (d + 1 == rank && first >= run.low[operand][d]) seen.where[d] = std::max(first, run.high[operand][d] + 1);
      seen.outside = true;
      seen.outside_written = write != 0;
    }
    seen.any = true;
  }
};

// Plans of bodies in Python are kept by their block: no two of these may look the same.
uint32_t next_number() {
  static std::atomic<uint32_t> number{0};
  return ++number;
}

}  // namespace

void run_members(const KernelPtr& kernel, MemberRun& run, bool guarded, bool at_end) {
  const od_kernel_spec& spec = *kernel->spec;
  std::vector<uint32_t> words(std::max<uint32_t>(spec.words, 1));
  words[0] = next_number();
  run.setup.spec = &spec;
  run.setup.words = words.data();
  std::vector<std::unique_ptr<Fenced>> fences;
  for (size_t i = 0; i < run.memory.size(); ++i) {
    const MemberMemory& memory = run.memory[i];
    uint8_t* chunk = memory.data == nullptr ? nullptr : memory.data + memory.at;
    if (guarded) {
      fences.push_back(std::make_unique<Fenced>(memory, at_end));
      chunk = fences.back()->chunk();
    }
    if (i < spec.n_operands) run.call.operand[i] = chunk;
    else run.call.scratch = chunk;
  }
  run.touched.assign(spec.n_operands, {});
  Listener listener;
  listener.host.touched = &Listener::touched;
  listener.run = &run;
  run.call.host = &listener.host;
  run.fault = {};
  run.left = false;
  try {
    const Plan plan(kernel, run.setup);
    plan.check(run.call);
    plan.run(run.call);
  } catch (const FaultError& error) {
    for (uint32_t i = 0; i < fences.size() && !run.fault.there; ++i) {
      run.fault = {fences[i]->holds(error.address, run.fault.byte), error.wrote, i, run.fault.byte};
    }
    if (!run.fault.there) throw;
  } catch (const KernelError& error) {
    const auto outside = [](const MemberTouched& seen) { return seen.outside; };
    run.left = error.status == OD_ACCESS && std::any_of(run.touched.begin(), run.touched.end(), outside);
    if (!run.left) throw;
  }
  for (const auto& fence : fences) fence->copy_back();
}

}  // namespace onedispatch
