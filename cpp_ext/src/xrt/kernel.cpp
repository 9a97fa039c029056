// SPDX-License-Identifier: Apache-2.0
// Contexts, kernels and runs.
#include <algorithm>
#include <utility>

#include "sim/array/bytes.h"
#include "sim/replay/replay_simulator.h"
#include "state.h"
#include "onedispatch/text.h"

namespace onedispatch::xrt {
namespace {

constexpr uint64_t kOpcode = txn::KERNEL_OPCODE;  // the only one
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
  region->valid = &buffer.memory()->valid;
  region->keep_alive = buffer.memory();
  const Hold hold = hold_monitor();
  region->data = buffer.memory()->data;
  if (uint8_t* const attached = buffer.memory()->attached) {
    region->staging = std::exchange(region->data, attached);
    region->is_written = buffer.memory()->attached_written;
  }
  if (!buffer.memory()->lent()) return region;
  region->copied = [memory = buffer.memory()] {
    const Hold hold = hold_monitor();
    return memory->own();
  };
  return region;
}

}  // namespace

hw_context::hw_context(const device& owner, const uuid& id) : state_(std::make_shared<State>()) {
  DeviceDescription description;
  sim::Options options;
  {
    const Hold hold = hold_monitor();
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
  const DeviceDescription partition = find_device_beside(description, state_->binary->device);
  description.name = partition.name;
  description.columns = partition.columns;
  state_->owner = owner.state();
  state_->make_simulator = [description, options, binary = state_->binary] {
    return std::make_unique<sim::Simulator>(description, options, binary->overlays);
  };
  state_->simulator = state_->make_simulator();
}

ReplayReport replay(const device& owner, const uint8_t* data, size_t size, const ControlPackets& packets) {
  DeviceDescription description;
  sim::Options options;
  {
    const Hold hold = hold_monitor();
    description = owner.state()->description;
    options = owner.state()->options;
  }
  options.clock = options.profile = options.trace = false;
  return sim::ReplaySimulator(description, options).replay(data, size, packets);
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

namespace {

using Arguments = std::vector<argument>;

template <typename Value>
const Value* value_of(const Arguments& arguments, uint32_t index, const char* what) {
  const Value* value = index < arguments.size() ? std::get_if<Value>(&arguments[index]) : nullptr;
  if (value == nullptr)
    throw DeviceError(
        {"run argument " + std::to_string(index),
         index < arguments.size() && arguments[index].index() != 0 ? "another type" : "nothing", what,
         "Set it before start."});
  return value;
}

// The right to use a context's simulator, one run after the other.
class ContextLock {
 public:
  explicit ContextLock(hw_context::State& context) : context_(context) {
    Hold hold = hold_monitor();
    if (taken() && context.occupant->thread == std::this_thread::get_id())
      throw DeviceError({"run.start", "a run while one of the same context runs on this thread",
                         "one run after the other", "Start no run from a signal handler."});
    Monitor::shared().wait(hold, std::chrono::milliseconds(0), [this] { return !taken(); });
    lost_ = context.occupant.has_value();
    context.occupant = Occupant{std::this_thread::get_id(), Monitor::process()};
  }
  ~ContextLock() {
    const Hold hold = hold_monitor();
    context_.occupant.reset();
    Monitor::shared().notify();
  }
  ContextLock(const ContextLock&) = delete;
  ContextLock& operator=(const ContextLock&) = delete;

  sim::Simulator& simulator() {
    if (lost_) {
      context_.abandon_simulator();
      context_.simulator = context_.make_simulator();
      lost_ = false;
    }
    return *context_.simulator;
  }

 private:
  bool taken() const { return context_.occupant && context_.occupant->alive(); }
  hw_context::State& context_;
  bool lost_ = false;
};

// `prints` are there when the run fails, too.
RunReport execute(hw_context::State& context, const Arguments& arguments, std::vector<PrintReport>& prints) {
  const auto* opcode = value_of<uint64_t>(arguments, 0, "opcode");
  if (*opcode != kOpcode)
    throw DeviceError({"run argument 0", "opcode " + std::to_string(*opcode), "3", "Call kernel(3, ...)."});
  const bo* instructions = value_of<bo>(arguments, 1, "instruction BO");
  const auto* count = value_of<uint64_t>(arguments, 2, "instruction count");
  const Instructions found = find_transaction(*instructions, *count);
  sim::DdrRegions regions;
  for (uint32_t i = kFirstData; i < arguments.size(); ++i)
    regions.push_back(region_of(*value_of<bo>(arguments, i, "data BO")));
  ContextLock lock(context);
  sim::Simulator& simulator = lock.simulator();
  try {
    RunReport report = simulator.run(found.data, found.size, std::move(regions));
    prints = simulator.take_prints();
    return report;
  } catch (const Interrupted&) {
    throw;
  } catch (...) {
    prints = simulator.take_prints();
    throw;
  }
}

}  // namespace

// Under the monitor, but for what never changes.
struct run::Execution {
  std::shared_ptr<hw_context::State> context;
  Arguments arguments;
  ert_cmd_state state = ert_cmd_state::NEW;
  uint64_t process = 0;  // in which it runs
  std::exception_ptr error;
  RunReport report;
  std::vector<PrintReport> prints;

  bool running() {
    if (state == ert_cmd_state::RUNNING && process != Monitor::process()) state = ert_cmd_state::ABORT;
    return state == ert_cmd_state::RUNNING;
  }
  void finish(ert_cmd_state reached, std::exception_ptr failure, std::vector<PrintReport> printed = {}) {
    const Hold hold = hold_monitor();
    state = reached;
    prints.swap(printed);
    error = std::move(failure);
    Monitor::shared().notify();
  }
};

run::run(const kernel& owner) : execution_(std::make_shared<Execution>()) {
  execution_->context = owner.context().state();
}

void run::set_arg(uint32_t index, argument value) {
  if (index >= kMaxArguments)
    throw DeviceError({"set_arg", "argument " + std::to_string(index),
                       span(0, kMaxArguments - 1), "See the kernel's arguments."});
  const Hold hold = hold_monitor();
  Arguments& arguments = execution_->arguments;
  if (index >= arguments.size()) arguments.resize(index + 1);
  std::swap(arguments[index], value);  // what was there goes after the lock
}

void run::start() {
  const std::shared_ptr<Execution> e = execution_;
  Arguments arguments;
  {
    const Hold hold = hold_monitor();
    if (e->running())
      throw DeviceError({"run.start", "a run that is running", "one that is not",
                         "Wait for it, or make another run of the kernel."});
    e->state = ert_cmd_state::RUNNING;
    e->process = Monitor::process();
    e->error = nullptr;
    arguments = e->arguments;
  }
  std::vector<PrintReport> prints;
  try {
    RunReport report = execute(*e->context, arguments, prints);
    {
      const Hold hold = hold_monitor();
      std::swap(e->report, report);
    }
    e->finish(ert_cmd_state::COMPLETED, nullptr, std::move(prints));
  } catch (const Interrupted&) {
    e->finish(ert_cmd_state::ABORT, nullptr);
    throw;
  } catch (...) {
    e->finish(ert_cmd_state::ERROR, std::current_exception(), std::move(prints));
  }
}

ert_cmd_state run::wait(uint32_t timeout_ms) {
  const std::shared_ptr<Execution> e = execution_;
  Hold hold = hold_monitor();
  const bool done = Monitor::shared().wait(hold, std::chrono::milliseconds(timeout_ms),
                                           [&e] { return !e->running(); });
  const std::exception_ptr error = done ? e->error : nullptr;
  const ert_cmd_state reached = done ? e->state : ert_cmd_state::TIMEOUT;
  hold.unlock();
  if (error) std::rethrow_exception(error);
  return reached;
}

ert_cmd_state run::state() const {
  const Hold hold = hold_monitor();
  execution_->running();
  return execution_->state;
}

std::vector<PrintReport> run::prints() const {
  const Hold hold = hold_monitor();
  return execution_->prints;
}

RunReport run::report() const {
  const Hold hold = hold_monitor();
  return execution_->report;
}

runlist::runlist(const hw_context& context) : context_(context) {}

void runlist::add(const run& added) {
  const Hold hold = hold_monitor();
  runs_.push_back(added);
}

void runlist::execute() {
  std::vector<run> runs;
  {
    const Hold hold = hold_monitor();
    executed_ = true;
    runs = runs_;
  }
  for (run& one : runs) {
    one.start();
    if (one.state() != ert_cmd_state::COMPLETED) return;
  }
}

ert_cmd_state runlist::wait(uint32_t timeout_ms) {
  std::vector<run> runs;
  {
    const Hold hold = hold_monitor();
    if (!executed_) return ert_cmd_state::NEW;
    runs = runs_;
  }
  for (run& one : runs)
    if (const ert_cmd_state reached = one.wait(timeout_ms); reached != ert_cmd_state::COMPLETED) return reached;
  return ert_cmd_state::COMPLETED;
}

void runlist::reset() {
  std::vector<run> dropped;  // goes after the lock
  const Hold hold = hold_monitor();
  dropped.swap(runs_);
  executed_ = false;
}

}  // namespace onedispatch::xrt
