// SPDX-License-Identifier: Apache-2.0
#include "simd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>

namespace onedispatch::kernels {

const SimdLevel& portable_level();
const SimdLevel& avx2_level();
const SimdLevel& avxvnni_level();
const SimdLevel& avx512_level();
const SimdLevel& avx512bf16_level();
const SimdLevel& amx_level();

namespace {

#if defined(__x86_64__) && defined(OD_AVX512)
// Whether the processor has tiles of bytes and of bf16, and Linux lets this process use them: their registers are large, so it
// asks (Documentation/arch/x86/xstate.rst). It refuses where a thread has too small a stack for signals.
bool may_use_amx() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTile | kInt8;  // of EDX
  constexpr long kRequest = 0x1023, kTileData = 18;                     // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAll) != kAll) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#endif

const SimdLevel* level_named(std::string_view name) {
#if defined(__x86_64__)
  [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#ifdef OD_AVX512  // ONEDISPATCH_SIMD of the build says which levels are compiled
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (name == "amx" && avx512 && may_use_amx()) return &amx_level();
  if (name == "avx512bf16" && avx512 && __builtin_cpu_supports("avx512bf16")) return &avx512bf16_level();
  if (name == "avx512" && avx512) return &avx512_level();
#endif
#ifdef OD_AVX2
  if (name == "avxvnni" && avx2 && __builtin_cpu_supports("avxvnni")) return &avxvnni_level();
  if (name == "avx2" && avx2) return &avx2_level();
#endif
#endif
  return name == "portable" ? &portable_level() : nullptr;
}

// Whether vectors multiply bf16 faster in pairs. On Intel processors a product of pairs takes about as long as two of f32,
// which need no pairs to be made (1.8 times as long as one on Sapphire Rapids; assumed of the others). Both have the same bits.
bool gains_by_pairs() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

const SimdLevel* choose_level() {
  if (const char* wish = std::getenv("ONEDISPATCH_SIMD")) {
    if (const SimdLevel* level = level_named(wish)) return level;
    std::string accepted;
    for (const char* const name : kSimdLevels)
      if (level_named(name) != nullptr) accepted += (accepted.empty() ? "" : ", ") + std::string(name);
    std::fprintf(stderr, "onedispatch: ONEDISPATCH_SIMD: given %s; accepted: %s; taken: the best of them\n", wish, accepted.c_str());
  }
  for (auto name = std::rbegin(kSimdLevels); name != std::rend(kSimdLevels); ++name) {
    if (!gains_by_pairs() && *name == std::string_view("avx512bf16")) continue;
    if (const SimdLevel* level = level_named(*name)) return level;
  }
  return &portable_level();
}

std::atomic<const SimdLevel*>& current_level() {
  static std::atomic<const SimdLevel*> level{choose_level()};
  return level;
}

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data_); }

  void* reserve(size_t bytes) {
    if (bytes <= size_) return data_;
    const size_t wanted = (bytes + bytes / 2 + 4095) / 4096 * 4096;
    void* fresh = std::aligned_alloc(64, wanted);
    if (fresh == nullptr) throw std::bad_alloc();
    std::memset(fresh, 0, wanted);
    std::free(data_);
    data_ = fresh;
    size_ = wanted;
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

const SimdLevel& simd() { return *current_level().load(std::memory_order_relaxed); }

bool use_simd(std::string_view name) {
  const SimdLevel* level = level_named(name);
  if (level != nullptr) current_level().store(level);
  return level != nullptr;
}

void* scratch(int slot, size_t bytes) {
  thread_local std::array<AlignedBuffer, kScratchSlots> buffers;
  return buffers[static_cast<size_t>(slot)].reserve(bytes);
}

}  // namespace onedispatch::kernels
