// SPDX-License-Identifier: Apache-2.0
#include "owned_kernel.h"

namespace onedispatch {

namespace {

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

class NativePlan final : public BodyPlan {
 public:
  NativePlan(KernelPtr kernel, const od_setup& setup) : plan_(std::move(kernel), setup) {}
  void check(const od_call& call) const override { plan_.check(call); }
  void run(const od_call& call) const override { plan_.run(call); }

 private:
  Plan plan_;
};

class NativeBody final : public KernelBody {
 public:
  explicit NativeBody(const od_kernel& functions) : functions_(functions) {}

  std::unique_ptr<const BodyPlan> prepare(const od_setup& setup) const override {
    auto kernel = std::make_shared<od_kernel>(functions_);
    kernel->spec = setup.spec;  // the caller's, which outlives the plan
    return std::make_unique<const NativePlan>(std::move(kernel), setup);
  }

 private:
  od_kernel functions_;
};

}  // namespace

std::shared_ptr<const KernelBody> native_body(const od_kernel& functions) { return std::make_shared<const NativeBody>(functions); }

OwnedKernel::OwnedKernel(KernelData data, std::shared_ptr<const KernelBody> body)
    : data_(std::move(data)), kernel_{&spec_, &prepare, &check, &run, &release}, body_(std::move(body)) {
  link();
}

void OwnedKernel::link() {
  for (const KernelData::Operand& operand : data_.operands) {
    std::vector<od_axis_spec> axes;
    for (const auto& [name, dim] : operand.axes) axes.push_back({name.c_str(), dim});
    axes_.push_back(std::move(axes));
  }
  for (size_t i = 0; i < data_.operands.size(); ++i) {
    operands_.push_back(data_.operands[i].spec);
    operands_[i].name = data_.operands[i].name.c_str();
    operands_[i].axes = axes_[i].data();
    operands_[i].n_axes = static_cast<uint32_t>(axes_[i].size());
  }
  for (const KernelData::Scalar& scalar : data_.scalars) {
    scalars_.push_back(scalar.spec);
    scalars_.back().name = scalar.name.c_str();
    scalars_.back().functions = nullptr;
  }
  dims_ = pointers(data_.dims);
  constants_ = pointers(data_.constants);
  static_cast<od_kernel_spec&>(spec_) = data_.spec;
  spec_.owner = this;
  spec_.name = data_.name.c_str();
  const auto table = [](const auto& from, auto& to, uint32_t& count) {
    to = from.data();
    count = static_cast<uint32_t>(from.size());
  };
  table(dims_, spec_.dims, spec_.n_dims);
  table(operands_, spec_.operands, spec_.n_operands);
  table(data_.types, spec_.types, spec_.n_types);
  table(scalars_, spec_.scalars, spec_.n_scalars);
  table(data_.cost, spec_.cost, spec_.n_cost);
  table(data_.scratch, spec_.scratch, spec_.n_scratch);
  table(constants_, spec_.constants, spec_.n_constants);
  spec_.n_types = operands_.empty() ? 0 : spec_.n_types / static_cast<uint32_t>(operands_.size());
}

void OwnedKernel::set_body(std::shared_ptr<const KernelBody> body) {
  const std::lock_guard<std::mutex> hold(mutex_);
  body_.swap(body);
}

std::shared_ptr<const KernelBody> OwnedKernel::body() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  return body_;
}

// Only we call these, through Plan: KernelError passes as it is.
od_status OwnedKernel::prepare(const od_setup* setup, void** plan, od_error*) {
  const OwnedKernel& self = *static_cast<const Spec*>(setup->spec)->owner;
  *plan = const_cast<BodyPlan*>(self.body()->prepare(*setup).release());
  return OD_OK;
}

od_status OwnedKernel::check(const void* plan, const od_call* call, od_error*) {
  static_cast<const BodyPlan*>(plan)->check(*call);
  return OD_OK;
}

od_status OwnedKernel::run(const void* plan, const od_call* call, od_error*) {
  static_cast<const BodyPlan*>(plan)->run(*call);
  return OD_OK;
}

void OwnedKernel::release(void* plan) { delete static_cast<const BodyPlan*>(plan); }

}  // namespace onedispatch
