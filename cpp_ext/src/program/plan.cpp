// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "signal_guard.h"
#include "onedispatch/kernel_library.h"
#include "onedispatch/kernel_tables.h"

namespace onedispatch {

namespace {

// Kernels, by their function run, of which a call did not end: who knows what they hold. For the rest of the process.
class Left {
 public:
  static Left& all() {
    static Left left;
    return left;
  }
  void add(const od_kernel& kernel, const std::string& how) {
    const std::lock_guard<std::mutex> hold(mutex_);
    how_.emplace(kernel.run, how);
  }
  bool has(const od_kernel& kernel) {
    const std::lock_guard<std::mutex> hold(mutex_);
    return how_.count(kernel.run) != 0;
  }
  void require_not(const od_kernel& kernel) {
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto found = how_.find(kernel.run);
    if (found == how_.end()) return;
    throw KernelError{OD_TIMEOUT, found->second + ". It may hold locks, so it is not called again in this process; mend it and begin a new one"};
  }

 private:
  std::mutex mutex_;
  std::map<decltype(od_kernel::run), std::string> how_;
};

}  // namespace

Origin origin_of(const od_kernel& kernel) {
  const od_library& own = own_library();
  if (std::find(own.kernels, own.kernels + own.n_kernels, &kernel) != own.kernels + own.n_kernels) return Origin::kOwn;
  return is_ours(reinterpret_cast<const void*>(kernel.run)) ? Origin::kPython : Origin::kNative;
}

template <typename Function>
od_status Plan::ask(const char* name, const void* function, Function call) const {
  if (origin_ != Origin::kNative) return call();
  od_status status = OD_OK;
  try {
    call_or_throw(kernel_->spec->name, name, function, [&] { status = call(); }, body_limit());
  } catch (const KernelError& error) {
    if (error.status == OD_TIMEOUT) Left::all().add(*kernel_, error.what);
    throw;
  }
  return status;
}

Plan::Plan(KernelPtr kernel, const od_setup& setup) : kernel_(std::move(kernel)), origin_(origin_of(*kernel_)) {
  if (origin_ == Origin::kNative) Left::all().require_not(*kernel_);
  od_error error;
  error.text[0] = 0;
  const auto function = reinterpret_cast<const void*>(kernel_->prepare);
  judge("prepare", ask("prepare", function, [&] { return kernel_->prepare(&setup, &plan_, &error); }), error);
}

// A destructor cannot say what went wrong, and what is released is not used again: a call that did not end is kept
// from the next operation.
Plan::~Plan() {
  if (Left::all().has(*kernel_)) return;
  try {
    ask("release", reinterpret_cast<const void*>(kernel_->release), [this] { return kernel_->release(plan_), OD_OK; });
  } catch (const KernelError&) {
  } catch (const CallInterrupted&) {
  }
}

void Plan::check(const od_call& call) const {
  if (kernel_->check == nullptr) return;
  od_error error;
  error.text[0] = 0;
  const auto function = reinterpret_cast<const void*>(kernel_->check);
  judge("check", ask("check", function, [&] { return kernel_->check(plan_, &call, &error); }), error);
}

void Plan::run(const od_call& call) const {
  od_error error;
  error.text[0] = 0;
  const auto function = reinterpret_cast<const void*>(kernel_->run);
  judge("run", ask("run", function, [&] { return kernel_->run(plan_, &call, &error); }), error);
}

void Plan::judge(const char* function, od_status status, const od_error& error) const {
  if (status == OD_OK) return;
  const std::string name = kernel_->spec->name;
  for (const auto& row : od_statuses) {
    if (row.code != status) continue;
    const size_t length = static_cast<size_t>(std::find(std::begin(error.text), std::end(error.text), 0) - std::begin(error.text));
    throw KernelError{status, name + ": " + (length != 0 ? std::string(error.text, length) : std::string(row.summary))};
  }
  throw KernelError{OD_RUNTIME_FAILURE, name + ": its function " + function + " returned " + std::to_string(status) + ", which is no status of onedispatch/kernel.h"};
}

}  // namespace onedispatch
