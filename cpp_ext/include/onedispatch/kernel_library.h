// SPDX-License-Identifier: Apache-2.0
// Libraries of kernels on the side of the simulator: judged whole before a kernel of theirs is called.
#pragma once
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "onedispatch/kernel.h"

namespace onedispatch {

// Why a library, or one of its functions, was refused. `cause`: what the function threw.
struct KernelError {
  od_status status;
  std::string what;
  std::shared_ptr<void> cause = nullptr;
};

class OwnedKernel;
// Of a loaded library, which stays; or shared with plans that still run a replaced one.
using KernelPtr = std::shared_ptr<const od_kernel>;

// The library of our own kernels.
const od_library& own_library();

// Throws KernelError for a library of another version or with structures of other sizes, for null
// pointers, and for declarations that cannot stand.
void check_library(const od_library* library);

// The same of a declaration that is registered while we run; `where` begins the message.
void check_declaration(const std::string& where, const od_kernel_spec& spec);

// Kernels by digest. Libraries are added and never taken away: their kernels may run.
class KernelRegistry {
 public:
  // Throws KernelError as check_library does, and where a name or a digest is taken: messages name
  // the file that the library came from. A library that is there already is left as it is.
  void add(const od_library* library, const std::string& file = "");
  // Adds a kernel that came from `origin`, or replaces one of the same name that was added so. Operations that
  // have begun go on with what they began with. Blocks and images that name an older digest of it run as
  // before, and where the digest is the same, the next operation of theirs has the new functions. Throws
  // KernelError as check_declaration does, and where a library or another name has what it is named by.
  void add(std::shared_ptr<OwnedKernel> kernel, const std::string& origin);
  // Whether there was one that was added so; plans that run it keep it.
  bool remove(const std::string& name);
  // Where libraries came from and were looked for: what messages that miss a kernel end with.
  void tell_searched(const std::string& text);
  std::string searched() const;
  KernelPtr find(uint32_t digest) const;  // nullptr when unknown
  std::vector<KernelPtr> all() const;
  // Name, digest and origin of every kernel that `all` has.
  struct Row {
    std::string name, origin;
    uint32_t digest;
  };
  std::vector<Row> rows() const;

 private:
  struct Entry {
    KernelPtr kernel;
    const od_library* library = nullptr;  // null: `owned`
    std::shared_ptr<OwnedKernel> owned;
    std::string origin;
    bool replaced = false;  // by one of another digest
  };
  mutable std::shared_mutex mutex_;
  std::vector<Entry> entries_;
  std::string searched_;
};

// The kernels that program images may name: our own, and those of loaded libraries.
KernelRegistry& registry();

// Loads the shared object at `path` for the rest of the process; its library, judged by check_library, or one of
// its functions. Throw KernelError where it cannot be loaded, has none of that name, or is refused.
const od_library* open_library(const std::string& path);
void* library_symbol(const std::string& path, const char* name);

// Loads the shared object at `path` for the rest of the process and adds its kernels, which it returns.
// Throws KernelError where it cannot be loaded, has no od_kernel_library(), or is refused.
std::vector<const od_kernel*> load_library(const std::string& path);

// "od::conv@1 (digest 0x...), ..."
std::string names_of(const std::vector<KernelPtr>& kernels);

// "0x%08X"
std::string digest_text(uint32_t digest);

// Where a kernel's code comes from: this project, a Python body behind our functions, or a plug-in library. Known
// by where its functions lie.
enum class Origin { kOwn, kPython, kNative };
Origin origin_of(const od_kernel& kernel);

// A prepared kernel. Throws KernelError with the kernel's name where a function does not return OD_OK; one that
// a plug-in library compiled runs under signal guard (program/signal_guard.h), and not called again once a call of it did not end.
class Plan {
 public:
  Plan(KernelPtr kernel, const od_setup& setup);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Whether the call's chunks hold what it needs.
  void check(const od_call& call) const;
  void run(const od_call& call) const;
  Origin origin() const { return origin_; }
  const KernelPtr& kernel() const { return kernel_; }

 private:
  template <typename Function>
  od_status ask(const char* name, const void* function, Function call) const;
  void judge(const char* function, od_status status, const od_error& error) const;

  KernelPtr kernel_;
  Origin origin_;
  void* plan_ = nullptr;
};

}  // namespace onedispatch
