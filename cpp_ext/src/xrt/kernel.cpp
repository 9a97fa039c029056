// SPDX-License-Identifier: Apache-2.0
// Contexts, kernels and runs.
#include <algorithm>

#include "sim/bytes.h"
#include "state.h"
#include "onedispatch/phrases.h"

namespace onedispatch::xrt {
namespace {

constexpr uint64_t kOpcode = 3;  // "transaction": the only one
constexpr uint32_t kFirstData = txn::KERNEL_ARGUMENT_OFFSET;
constexpr uint32_t kMaxArguments = kFirstData + 16;
constexpr size_t kWrapperBytes = 8;  // DynamicDispatch puts {0, size + 8} in front

struct Instructions {
  const uint8_t* data;
  size_t size;
};

// The transaction in an instruction buffer; `count` is in words or in bytes.
Instructions find_transaction(const bo& buffer, uint64_t count) {
  const auto refuse = [](const std::string& given, const std::string& accepted) {
    throw TransactionError(
        {"instruction buffer", given, accepted, "Pass the transaction's size in words or bytes."});
  };
  Instructions found{buffer.map(), buffer.size()};
  size_t wrapper = 0;
  if (found.size >= kWrapperBytes && sim::load32(found.data) == 0) {
    wrapper = kWrapperBytes;
    found.data += wrapper;
    found.size -= wrapper;
  }
  if (found.size < txn::Header::size)
    refuse(counted(found.size, "byte"), "at least a header of 16 bytes");
  const uint64_t size = sim::load32(found.data + txn::Header::byte_size.offset);
  if (size > found.size)
    refuse("a transaction of " + counted(size, "byte") + " in a buffer of " + std::to_string(found.size),
           "a buffer that holds it");
  const uint64_t total = size + wrapper;
  if (count != total && count != (total + 3) / 4 && count != size && count != (size + 3) / 4)
    refuse("a count of " + std::to_string(count),
           counted(total, "byte") + " or " + counted((total + 3) / 4, "word"));
  found.size = size;
  return found;
}

std::shared_ptr<sim::DdrRegion> region_of(const bo& buffer) {
  auto region = std::make_shared<sim::DdrRegion>();
  region->address = buffer.address();
  region->bytes = (buffer.size() + 3) / 4 * 4;  // words are the unit of DMAs; pages are padded
  region->origin = buffer.memory()->address;
  region->data = buffer.memory()->data;
  region->valid = &buffer.memory()->valid;
  region->keep_alive = buffer.memory();
  return region;
}

}  // namespace

hw_context::hw_context(const device& owner, const uuid& id) : state_(std::make_shared<State>()) {
  DeviceDescription description;
  sim::Options options;
  {
    const std::lock_guard<std::mutex> hold(owner.state()->mutex);
    const auto& registered = owner.state()->registered;
    const auto found = registered.find(id.to_string());
    if (found == registered.end())
      throw DeviceError({"hw_context", "uuid " + id.to_string(),
                         counted(registered.size(), "registered xclbin"),
                         "Call device.register_xclbin first."});
    state_->binary = found->second;
    description = owner.state()->description;
    options = owner.state()->options;
  }
  // The partition has the columns that the overlay was made for, and this device's constants.
  const DeviceDescription partition = find_device(state_->binary->device);
  description.name = partition.name;
  description.columns = partition.columns;
  state_->owner = owner.state();
  state_->simulator = std::make_unique<sim::Simulator>(description, options, state_->binary->overlays);
}

ReplayReport replay(const device& owner, const uint8_t* data, size_t size, const ControlPackets& packets) {
  DeviceDescription description;
  sim::Options options;
  {
    const std::lock_guard<std::mutex> hold(owner.state()->mutex);
    description = owner.state()->description;
    options = owner.state()->options;
  }
  options.replay = true;
  return sim::Simulator(description, options, {}).replay(data, size, packets);
}

kernel::kernel(const hw_context& context, const std::string& name) : context_(context), name_(name) {
  const auto& known = context.state()->binary->kernels;
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string names;
  for (const std::string& candidate : known) names += (names.empty() ? "" : ", ") + candidate;
  throw DeviceError({"kernel", "\"" + name + "\"", names, "Take a name from xclbin.get_kernels()."});
}

uint32_t kernel::group_id(uint32_t index) const {
  if (index >= kMaxArguments)
    throw DeviceError({"group_id", "argument " + std::to_string(index),
                       span(0, kMaxArguments - 1), "See the kernel's arguments."});
  return index;
}

struct run::Execution {
  std::shared_ptr<hw_context::State> context;
  std::vector<argument> arguments;
  ert_cmd_state state = ert_cmd_state::NEW;
  std::exception_ptr error;
  RunReport report;

  void execute() {
    const auto* opcode = at<uint64_t>(0, "opcode");
    if (*opcode != kOpcode)
      throw DeviceError({"run argument 0", "opcode " + std::to_string(*opcode), "3", "Call kernel(3, ...)."});
    const bo* instructions = at<bo>(1, "instruction BO");
    const auto* count = at<uint64_t>(2, "instruction count");
    const Instructions found = find_transaction(*instructions, *count);
    sim::DdrRegions regions;
    for (uint32_t i = kFirstData; i < arguments.size(); ++i)
      regions.push_back(region_of(*at<bo>(i, "data BO")));
    const std::lock_guard<std::mutex> hold(context->mutex);
    report = context->simulator->run(found.data, found.size, std::move(regions));
  }

  template <typename Value>
  const Value* at(uint32_t index, const char* what) const {
    const Value* value = index < arguments.size() ? std::get_if<Value>(&arguments[index]) : nullptr;
    if (value == nullptr)
      throw DeviceError(
          {"run argument " + std::to_string(index),
           index < arguments.size() && arguments[index].index() != 0 ? "another type" : "nothing", what,
           "Set it before start."});
    return value;
  }
};

run::run(const kernel& owner) : execution_(std::make_shared<Execution>()) {
  execution_->context = owner.context().state();
}

void run::set_arg(uint32_t index, argument value) {
  if (index >= kMaxArguments)
    throw DeviceError({"set_arg", "argument " + std::to_string(index),
                       span(0, kMaxArguments - 1), "See the kernel's arguments."});
  if (index >= execution_->arguments.size()) execution_->arguments.resize(index + 1);
  execution_->arguments[index] = std::move(value);
}

void run::start() {
  Execution& e = *execution_;
  e.state = ert_cmd_state::RUNNING;
  e.error = nullptr;
  try {
    e.execute();
    e.state = ert_cmd_state::COMPLETED;
  } catch (...) {
    e.error = std::current_exception();
    e.state = ert_cmd_state::ERROR;
  }
}

ert_cmd_state run::wait(uint32_t) {
  if (execution_->error) std::rethrow_exception(execution_->error);
  return execution_->state;
}

ert_cmd_state run::state() const { return execution_->state; }

const RunReport& run::report() const { return execution_->report; }

runlist::runlist(const hw_context& context) : context_(context) {}

void runlist::add(const run& added) { runs_.push_back(added); }

void runlist::execute() {
  executed_ = true;
  for (run& one : runs_) {
    one.start();
    if (one.state() != ert_cmd_state::COMPLETED) return;
  }
}

ert_cmd_state runlist::wait(uint32_t) {
  if (!executed_) return ert_cmd_state::NEW;
  for (run& one : runs_)
    if (one.wait() != ert_cmd_state::COMPLETED) return one.state();
  return ert_cmd_state::COMPLETED;
}

void runlist::reset() {
  runs_.clear();
  executed_ = false;
}

}  // namespace onedispatch::xrt
