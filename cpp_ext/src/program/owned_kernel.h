// SPDX-License-Identifier: Apache-2.0
// A kernel that is registered while we run: its declaration as data that it owns, its functions as an object.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "onedispatch/kernel_library.h"

namespace onedispatch {

// What the functions of a kernel made of a setup. Functions throw KernelError.
class BodyPlan {
 public:
  virtual ~BodyPlan() = default;
  virtual void check(const od_call&) const {}
  virtual void run(const od_call& call) const = 0;  // on any thread
};

class KernelBody {
 public:
  virtual ~KernelBody() = default;
  virtual std::unique_ptr<const BodyPlan> prepare(const od_setup& setup) const = 0;
};

// The functions of a kernel of a loaded library, which stays loaded.
std::shared_ptr<const KernelBody> native_body(const od_kernel& functions);

// An od_kernel_spec with names and tables of its own. Numbers that point somewhere are left out.
struct KernelData {
  struct Operand {
    od_operand_spec spec{};
    std::string name;
    std::vector<std::pair<std::string, uint32_t>> axes;  // name, dimension
  };
  struct Scalar {
    od_scalar_spec spec{};
    std::string name;
  };
  od_kernel_spec spec{};
  std::string name;
  std::vector<std::string> dims, constants;
  std::vector<Operand> operands;
  std::vector<uint32_t> types;
  std::vector<Scalar> scalars;
  std::vector<od_step> cost, scratch;
};

class OwnedKernel {
 public:
  OwnedKernel(KernelData data, std::shared_ptr<const KernelBody> body);
  OwnedKernel(const OwnedKernel&) = delete;
  OwnedKernel& operator=(const OwnedKernel&) = delete;

  const od_kernel& kernel() const { return kernel_; }
  // What operations take that begin from now on.
  void set_body(std::shared_ptr<const KernelBody> body);
  std::shared_ptr<const KernelBody> body() const;

 private:
  struct Spec : od_kernel_spec {
    const OwnedKernel* owner = nullptr;
  };
  static od_status prepare(const od_setup* setup, void** plan, od_error*);
  static od_status check(const void* plan, const od_call* call, od_error*);
  static od_status run(const void* plan, const od_call* call, od_error*);
  static void release(void* plan);
  void link();

  KernelData data_;
  std::vector<std::vector<od_axis_spec>> axes_;
  std::vector<od_operand_spec> operands_;
  std::vector<od_scalar_spec> scalars_;
  std::vector<const char*> dims_, constants_;
  Spec spec_;
  od_kernel kernel_;
  mutable std::mutex mutex_;
  std::shared_ptr<const KernelBody> body_;
};

}  // namespace onedispatch
