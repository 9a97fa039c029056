// SPDX-License-Identifier: Apache-2.0
#include "super_kernel.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "onedispatch/kernel_tables.h"
#include "onedispatch/text.h"

namespace onedispatch {

namespace {

namespace at = params::header;

constexpr uint32_t kCoreView = params::kCoreViewMemory;  // own data memory as the core sees it
constexpr uint32_t kOut = kOutPort;
constexpr uint32_t kMaskWords = at::row_mask + 1;  // what a core reads of a block that leaves its row out

}  // namespace

SuperKernel::SuperKernel(CoreView core, const DeviceDescription& device, std::vector<Carried> carried)
    : core_(core),
      data_bytes_(device.geometry.core_memory),
      memory_bytes_(device.geometry.core_memory - std::min(device.geometry.core_memory, device.geometry.core_stack)),
      carried_(std::move(carried)) {
  if (core_.operation_cache == nullptr) core_.operation_cache = make_operation_cache(device);
}

// A custom kernel may be gone after its last program, and another one's declaration lie where its own lay.
SuperKernel::~SuperKernel() {
  const auto outside = [](const Carried& one) { return one.function == nullptr && origin_of(*one.kernel) != Origin::kOwn; };
  if (std::any_of(carried_.begin(), carried_.end(), outside)) core_.operation_cache->constants.forget_formulas();
}

// The first words of the parameter block are read, and perhaps a kernel is set up by them.
void SuperKernel::queue_reading(uint32_t words, uint64_t cycles) {
  block_ = {};
  block_.push_back({0, 4 * words});
  queue_compute(cycles).reads = block_;
}

const Action& SuperKernel::resume() {
  while (head_ == queued_) {
    queued_ = head_ = computes_ = 0;
    switch (state_) {
      case State::kWaiting:
        op_.reset();
        shadow_memory_.reset();
        queue_lock(Action::Kind::kAcquire, params::kParametersFull);
        state_ = State::kBeginning;
        break;
      case State::kBeginning: begin_op(); break;
      case State::kRunning: queue_step(); break;
    }
  }
  const Queued next = queue_[head_++];
  if (next.kind == Action::Kind::kCompute) return compute_[next.which];
  lock_action_.kind = next.kind;
  lock_action_.lock = next.which;
  return lock_action_;
}

void SuperKernel::begin_op() {
  static_assert(at::magic < kMaskWords && at::kernel < kMaskWords);
  std::memcpy(words_.data(), core_.memory, 4 * kMaskWords);  // both little-endian; the rest once it is known to be read
  if (words_[at::magic] != params::kMagic) {
    od_setup setup{};
    setup.words = words_.data();
    reject(setup, at::magic, "magic", "accepted: " + std::to_string(params::kMagic) + " alone: was the block written?");
  }
  const Carried& carried = named_kernel();
  const od_kernel_spec& spec = *carried.kernel->spec;
  if ((words_[at::row_mask] >> core_.row & 1) == 0) {
    od_setup setup{};
    setup.spec = &spec;
    queue_reading(kMaskWords, word_cycles(setup, core_.operation_cache->constants, kMaskWords));
    finish_op();
    return;
  }
  std::memcpy(words_.data(), core_.memory, size_t{4} * spec.words);
  op_ = core_.operation_cache->find(spec, words_.data());
  if (op_ == nullptr) {
    op_ = read_block(carried);
    if (origin_of(*carried.kernel) == Origin::kOwn) core_.operation_cache->add(op_);
  } else {
    check_linked(*op_, carried);
  }
  if (op_->plan != nullptr && op_->plan->origin() != Origin::kOwn) shadow_memory_ = std::make_shared<const ShadowMemory>(op_->plan, setup(), core_, data_bytes_);
  ports_ = op_->ports;
  queue_reading(spec.words, op_->setup_cycles);
  if (spec.prints != 0 && core_.prints != nullptr) core_.prints->begin(spec.digest);
  outer_ = {};
  step_ = 0;
  locate_tile();
  state_ = State::kRunning;
}

std::shared_ptr<ReadOperation> SuperKernel::read_block(const Carried& carried) const {
  auto read = std::make_shared<ReadOperation>();
  read->words = words_;
  Operation& operation = read->operation;
  operation.setup.words = read->words.data();
  operation.setup.spec = carried.kernel->spec;
  for (uint32_t i = 0; i < kPorts; ++i) read_port(*read, i);
  read_dims(*read);
  read_reduction(*read);
  read_operation(operation);
  check_linked(*read, carried);
  const Constants& constants = core_.operation_cache->constants;
  read_scratch(operation, constants, memory_bytes_);
  check_apart(*read);
  read->setup_cycles = op_cycles(operation.setup, constants);
  if (core_.clock) return read;
  const BodyLimit limit(core_.limit_ms);
  try {
    read->plan = std::make_shared<const Plan>(carried.kernel, operation.setup);
  } catch (const KernelError& error) {
    reject(error.what, error.status, error.cause);
  }
  read->fills = fills_of(operation.setup);
  return read;
}

const Carried& SuperKernel::named_kernel() const {
  const uint32_t digest = words_[at::kernel];
  if (const Carried* carried = find(carried_, digest); carried != nullptr && carried->function == nullptr) return *carried;
  od_setup setup{};
  setup.words = words_.data();
  reject(setup, at::kernel, "kernel digest " + digest_text(digest) + " (" + known_name(digest) + ")",
         "the program image carries: " + names_of(carried_));
}

// Code is linked for each element type of the first output, functions that came later for those that they see.
void SuperKernel::check_linked(const ReadOperation& read, const Carried& carried) const {
  const od_setup& setup = read.operation.setup;
  const od_kernel_spec& spec = *carried.kernel->spec;
  const uint32_t i = first_output(spec);
  if ((carried.types >> setup.operands[i].dtype & 1) == 0) {
    reject(setup, spec.operands[i].at, std::string("element type of ") + spec.operands[i].name,
           std::string("the program image carries ") + spec.name + " for element types of the mask " + std::to_string(carried.types) + " alone");
  }
  for (uint32_t k = 0; k < spec.n_scalars; ++k) {
    const od_scalar_spec& scalar = spec.scalars[k];
    const od_function_spec* const function = later_function(scalar, setup.words[scalar.at]);
    const od_operand& seen = setup.operands[scalar.of];
    if (seen.present != 0 && !carries(carried_, function, seen.dtype)) {
      reject(setup, scalar.at, std::string(scalar.name) + ": " + function->name + " of " + od_dtypes[seen.dtype].name,
             "the program image carries: " + names_of(carried_));
    }
  }
}

void SuperKernel::read_port(ReadOperation& read, uint32_t index) const {
  const od_setup& setup = read.operation.setup;
  namespace field = params::port;
  const uint32_t word = at::port_in0 + field::kWords * index;
  const std::string name = std::string("port ") + params::kPortNames[index];
  const auto given = [&](const Field& part) { return field_of(setup, word, part); };
  Port& port = read.ports[index];
  port.cadence = given(field::cadence);
  const uint32_t highest = index == kOut && setup.spec->keeps_scratch != 0 ? params::cadence::last : params::cadence::once;
  if (port.cadence > highest) reject(setup, word + field::cadence.word, name + " cadence" + bits_of(field::cadence), "accepted: " + span(0, highest));
  if (port.cadence == params::cadence::none) {
    if (index == kOut) reject(setup, word + field::cadence.word, name + " cadence" + bits_of(field::cadence), "the out port must be used");
    return;
  }
  if (index == kOut && port.cadence == params::cadence::step && setup.words[at::inner_steps] > 1) {
    reject(setup, word + field::cadence.word, name + " cadence" + bits_of(field::cadence), "with inner steps the out port accepts 2 or more");
  }
  port.depth = given(field::depth);
  port.acquire = given(field::acquire);
  port.release = given(field::release);
  if (port.depth == 0) reject(setup, word + field::depth.word, name + " depth" + bits_of(field::depth), "accepted: 1 or more");
  for (const uint32_t lock : {port.acquire, port.release}) {
    if (lock < params::kLockBase || lock >= params::kParametersEmpty) {
      reject(setup, word + field::acquire.word, name + " locks (bits 8..23)",
             "accepted: own locks " + std::to_string(params::kLockBase) + " to " + std::to_string(params::kParametersEmpty - 1) + " in core view");
    }
  }
  port.slot_bytes = given(field::slot_bytes);
  port.chunk_bytes = given(field::chunk_bytes);
  const uint32_t address = given(field::address), lowest = kCoreView + 4 * setup.spec->block_words;
  if (address % 4 != 0 || address < lowest || address >= kCoreView + memory_bytes_) {
    reject(setup, word, name + " address",
           "accepted: multiples of 4 from " + std::to_string(lowest) + " (behind the parameter block) to " +
               std::to_string(kCoreView + memory_bytes_ - 1));
  }
  port.offset = address - kCoreView;
  if (port.slot_bytes % 4 != 0 || (port.depth > 1 && port.slot_bytes < port.chunk_bytes)) {
    reject(setup, word + field::slot_bytes.word, name + " slot bytes", "accepted: a multiple of 4, at least the chunk bytes");
  }
  const uint64_t end = port.offset + uint64_t{port.depth - 1} * port.slot_bytes + port.chunk_bytes;
  if (port.chunk_bytes == 0 || end > memory_bytes_) {
    reject(setup, word + field::chunk_bytes.word, name + " chunk bytes",
           "the slots must not be empty and must end inside " + counted(memory_bytes_, "byte") + " (stack and tables follow), not at " + std::to_string(end));
  }
  read.operation.chunk_bytes[index] = port.chunk_bytes;
}

// A kernel's scratch belongs to its calls alone. Sums that are kept there may wait where their results will
// lie: in the one out slot, from its beginning on, which the core holds as long.
void SuperKernel::check_apart(ReadOperation& read) const {
  const od_setup& setup = read.operation.setup;
  const uint64_t first = read.operation.scratch_at, bytes = setup.scratch_bytes;
  const Port& out = read.ports[kOut];
  read.sums_in_slot = bytes != 0 && setup.spec->keeps_scratch != 0 && setup.inner_steps > 1 && out.depth == 1 &&
                      out.cadence == params::cadence::tile && first == out.offset;
  const uint32_t out_bytes = od_dtypes[setup.operands[first_output(*setup.spec)].dtype].bytes;
  if (out.cadence == params::cadence::last && (bytes == 0 || setup.inner_steps == 1 || out_bytes >= 4)) {
    const uint32_t word = at::port_out + params::port::cadence.word;
    reject(setup, word, "port out cadence" + bits_of(params::port::cadence), "accepted where sums wait in scratch for narrower results: 4 (last)");
  }
  for (uint32_t i = 0; bytes != 0 && i < kPorts; ++i) {
    const Port& port = read.ports[i];
    if (port.cadence == params::cadence::none || (i == kOut && read.sums_in_slot)) continue;
    const uint64_t end = port.offset + uint64_t{port.depth - 1} * port.slot_bytes + port.chunk_bytes;
    if (first < end && port.offset < first + bytes) {
      reject(setup, at::scratch, "scratch", std::string("accepted: apart from the slots of port ") + params::kPortNames[i]);
    }
  }
}

void SuperKernel::read_dims(ReadOperation& read) const {
  od_setup& setup = read.operation.setup;
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    namespace field = params::dim;
    const uint32_t word = at::dims + field::kWords * d;
    const auto named = [d](const char* what) { return [=] { return "dimension " + std::to_string(d) + what; }; };
    const uint32_t extent = word_in(setup, word + field::extent.word, named(" extent"), 1, INT32_MAX);
    const uint32_t tile = word_in(setup, word + field::tile.word, named(" tile"), 1, extent);
    read.outer_count[d] = word_in(setup, word + field::count.word, named(" outer count"), 1, params::kMaxCount);
    setup.dims[d] = {extent, tile};
  }
  const uint32_t order = setup.words[at::loop_order];
  std::array<bool, OD_MAX_DIMS> seen{};
  for (uint32_t level = 0; level < OD_MAX_DIMS; ++level) {
    const uint32_t d = order >> (4 * level) & 0xF;
    if (d >= OD_MAX_DIMS || seen[d]) {
      reject(setup, at::loop_order, "loop order", "accepted: the dimensions 0 to 4, each in one of the five low nibbles");
    }
    seen[d] = true;
    read.loop_order[level] = d;
  }
}

void SuperKernel::read_reduction(ReadOperation& read) const {
  od_setup& setup = read.operation.setup;
  const uint32_t steps = word_in(setup, at::inner_steps, "inner steps", 1, params::kMaxCount);
  const uint32_t extent = word_in(setup, at::k_extent, "reduction extent", 0, INT32_MAX);
  uint32_t tile = 1, expected = 1;
  if (extent != 0) {
    tile = word_in(setup, at::k_tile, "reduction tile", 1, extent);
    expected = extent / tile + (extent % tile != 0);
  }
  if (steps != expected) {
    reject(setup, at::inner_steps, "inner steps",
           "the reduction of " + std::to_string(extent) + " by " + std::to_string(tile) + " takes " + std::to_string(expected));
  }
  setup.k_extent = extent;
  setup.k_tile = tile;
  setup.inner_steps = steps;
}

// Where the current outer counters put this core's tile; edge tiles are shifted back.
void SuperKernel::locate_tile() {
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d) {
    namespace field = params::dim;
    const auto factor = [&](const Field& part) -> uint64_t { return field_of(setup(), at::dims + field::kWords * d, part); };
    const uint64_t extent = setup().dims[d].extent, tile = setup().dims[d].tile;
    origin_[d] = 0;
    if (tile == extent) continue;
    const uint64_t wanted = core_.column * factor(field::per_column) + core_.row * factor(field::per_row) + outer_[d] * factor(field::per_step);
    const uint64_t index = std::min(wanted, (extent + tile - 1) / tile - 1);
    origin_[d] = static_cast<uint32_t>(std::min(index * tile, extent - tile));
  }
}

void SuperKernel::queue_lock(Action::Kind kind, uint32_t lock) { queue_.at(queued_++) = {kind, lock}; }  // by 1, always

void SuperKernel::queue_acquire(Port& port) {
  queue_lock(Action::Kind::kAcquire, port.acquire);
  port.held = true;
}

void SuperKernel::queue_release(Port& port) {
  queue_lock(Action::Kind::kRelease, port.release);
  port.held = false;
  if (++port.slot == port.depth) port.slot = 0;
}

void SuperKernel::queue_step() {
  const bool first = step_ == 0, last = step_ + 1 == setup().inner_steps;
  for (const uint32_t i : {kOut, 0u, 1u}) {
    const uint32_t cadence = ports_[i].cadence;
    const bool wanted = cadence == params::cadence::last ? last : cadence != params::cadence::none;
    if (wanted && !ports_[i].held) queue_acquire(ports_[i]);
  }
  if (core_.clock) queue_timed_call(last);
  else queue_call(first, last);
  if (last && setup().spec->prints != 0 && is_last_tile()) queue_print_out();
  for (Port& port : ports_) {  // in0, in1, out
    const bool every_step = port.cadence == params::cadence::step;
    const bool every_tile = port.cadence == params::cadence::tile || port.cadence == params::cadence::last;
    if (every_step || (last && every_tile)) queue_release(port);
  }
  ++step_;
  if (!last) return;
  step_ = 0;
  if (next_outer()) {
    locate_tile();
  } else {
    finish_op();
  }
}

void SuperKernel::queue_call(bool first, bool last) {
  const od_setup& setup = this->setup();
  KernelCall& as_value = call_.value = {};
  as_value.operation = op_;
  as_value.origin = origin_;
  as_value.step = step_;
  as_value.last = last;
  MemoryRanges &reads = call_.reads = {}, &writes = call_.writes = {};
  CallMemory memory;
  for (uint32_t i = 0; i < kPorts; ++i) {
    if (ports_[i].cadence == params::cadence::none) continue;
    const MemoryRange range = as_value.chunks[i] = {ports_[i].address(), ports_[i].chunk_bytes};
    memory.chunks[i] = core_.memory + range.offset;
    if (!ports_[i].held) continue;  // out, before the last step
    const bool reads_it = i != kOut || !(first || ports_[i].cadence == params::cadence::last);
    if (reads_it) reads.push_back(range);
    if (i == kOut) writes.push_back(range);
    as_value.continues_out = i == kOut && reads_it;
  }
  as_value.writes_out = ports_[kOut].held;
  if (setup.scratch_bytes != 0) {
    const MemoryRange range = as_value.scratch = {op_->operation.scratch_at, setup.scratch_bytes};
    memory.scratch = core_.memory + range.offset;
    as_value.continues_scratch = setup.spec->keeps_scratch != 0 && !first;
    if (as_value.continues_scratch) reads.push_back(range);
    writes.push_back(range);
  }
  od_call& call = call_.given = op_->bound(as_value, memory);
  const BodyLimit limit(core_.limit_ms);
  try {
    op_->plan->check(call);
  } catch (const KernelError& error) {
    reject(error.what + (setup.spec->members != 0 ? "; in " + members_of(setup, call) : ""), error.status, error.cause);
  }
  Action& action = queue_compute(cycles_of(call.k_count, call.k_last != 0));
  action.kernel = setup.spec->digest;
  action.job = &call_;
  call_.log = setup.spec->prints != 0 && core_.prints != nullptr && core_.prints->capacity() != 0 ? core_.prints : nullptr;
  action.reads = reads;
  action.writes = writes;
}

// A call that is not made: how long it takes, and what it leaves other than it was.
void SuperKernel::queue_timed_call(bool last) {
  const od_setup& setup = this->setup();
  const Port& out = ports_[kOut];
  MemoryRanges& writes = call_.writes = {};
  if (out.held) writes.push_back({out.address(), out.chunk_bytes});
  if (setup.scratch_bytes != 0) writes.push_back({op_->operation.scratch_at, setup.scratch_bytes});
  Action& action = queue_compute(cycles_of(k_count_of(setup, step_), last));
  action.kernel = setup.spec->digest;
  action.job = &call_;
  action.writes = writes;
}

Action& SuperKernel::queue_compute(uint64_t cycles) {
  queue_.at(queued_++) = {Action::Kind::kCompute, computes_};
  Action& action = compute_.at(computes_++);
  action = {};
  action.kind = Action::Kind::kCompute;
  action.cycles = cycles;
  return action;
}

void SuperKernel::Call::run() {
  const ReadOperation& op = *of_.op_;
  const PrintHost host(log, first_of(op.operation.setup, given));
  if (log != nullptr) given.host = host.host();
  for (size_t i = 0; op.fills != nullptr && i < op.fills->size(); ++i) (*op.fills)[i](given);
  try {
    if (of_.shadow_memory_ != nullptr) of_.shadow_memory_->run(given, reads, writes);
    else if (op.sums_in_slot && given.k_last != 0) run_over_sums();
    else op.plan->run(given);
  } catch (const KernelError& error) {
    reject(error.what, error.status, error.cause);
  }
}

const KernelCall* SuperKernel::Call::call() const {
  return of_.shadow_memory_ == nullptr && of_.setup().spec->prints == 0 ? &value : nullptr;
}

// Results take the place of sums from the front on, never ahead of what is read. Kernels are written for results
// that lie apart, so here they do for as long as the call runs.
void SuperKernel::Call::run_over_sums() {
  const ReadOperation& op = *of_.op_;
  uint8_t*& out = given.operand[first_output(*op.operation.setup.spec)];
  uint8_t* const slot = out;
  results_.assign(slot, slot + op.ports[kOut].chunk_bytes);
  out = results_.data();
  op.plan->run(given);
  std::copy(results_.begin(), results_.end(), slot);
}

uint64_t SuperKernel::cycles_of(uint32_t k_count, bool last) {
  ReadOperation::Charge& charge = op_->charges[last ? 1 : 0];
  if (charge.cycles == 0 || charge.k_count != k_count)
    charge = {k_count, call_cycles(setup(), core_.operation_cache->constants, k_count, last)};
  return charge.cycles;
}

bool SuperKernel::is_last_tile() const {
  for (uint32_t d = 0; d < OD_MAX_DIMS; ++d)
    if (outer_[d] + 1 != op_->outer_count[d]) return false;
  return true;
}

// The ring leaves the core before the operation's last results do. All of it is charged, whatever was printed:
// time does not depend on values.
void SuperKernel::queue_print_out() {
  queue_compute(print_cycles(setup(), core_.operation_cache->constants, core_.prints == nullptr ? kPrintBytes : core_.prints->capacity()));
}

// Counts the outer loops, the last of the loop order innermost; false after the last tile.
bool SuperKernel::next_outer() {
  for (uint32_t level = OD_MAX_DIMS; level-- > 0;) {
    const uint32_t d = op_->loop_order[level];
    if (++outer_[d] < op_->outer_count[d]) return true;
    outer_[d] = 0;
  }
  return false;
}

void SuperKernel::finish_op() {
  for (Port& port : ports_) {
    if (port.held) queue_release(port);
  }
  queue_lock(Action::Kind::kRelease, params::kParametersEmpty);
  state_ = State::kWaiting;
}

}  // namespace onedispatch
