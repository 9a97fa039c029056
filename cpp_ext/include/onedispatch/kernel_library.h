// SPDX-License-Identifier: Apache-2.0
// Libraries of kernels on the side of the simulator: judged whole before a kernel of theirs is called.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "onedispatch/kernel.h"

namespace onedispatch {

// Why a library, or one of its functions, was refused.
struct KernelError {
  od_status status;
  std::string what;
};

// The library of our own kernels.
const od_library& own_library();

// Throws KernelError for a library of another version or with structures of other sizes, for null
// pointers, and for declarations that cannot stand.
void check_library(const od_library* library);

// Kernels by digest. A registry is made of libraries, once; then any thread may ask.
class KernelRegistry {
 public:
  // Throws KernelError as check_library does, and where a name or a digest is taken.
  void add(const od_library* library);
  const od_kernel* find(uint32_t digest) const;  // nullptr when unknown
  const std::vector<const od_kernel*>& all() const { return kernels_; }

 private:
  std::vector<const od_kernel*> kernels_;
  std::vector<const od_library*> libraries_;  // that of each kernel
};

// Our own kernels.
const KernelRegistry& registry();

// "od::conv@1 (digest 0x...), ..."
std::string names_of(const std::vector<const od_kernel*>& kernels);

// "0x%08X"
std::string digest_text(uint32_t digest);

// A prepared kernel. Throws KernelError with the kernel's name where a function does not return OD_OK.
class Plan {
 public:
  Plan(const od_kernel& kernel, const od_setup& setup);
  ~Plan() { kernel_.release(plan_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Whether the call's chunks hold what it needs.
  void check(const od_call& call) const;
  void run(const od_call& call) const;

 private:
  void judge(const char* function, od_status status, const od_error& error) const;

  const od_kernel& kernel_;
  void* plan_ = nullptr;
};

}  // namespace onedispatch
