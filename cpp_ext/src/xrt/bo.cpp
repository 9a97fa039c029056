// SPDX-License-Identifier: Apache-2.0
// Devices and buffer objects.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "state.h"
#include "onedispatch/text.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::xrt {
namespace {

constexpr size_t kPage = 4096;
// Shim addresses have 48 bits and gain the DDR aperture.
constexpr uint64_t kAddressEnd = 0x7FFF00000000ull;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void check_size(size_t bytes) {
  if (bytes == 0 || bytes > (size_t{1} << 40))
    throw DeviceError(
        {"bo", counted(bytes, "byte"), "1 to 2^40 bytes", "Ask for what the argument needs."});
}

}  // namespace

device::device(uint32_t index, std::string_view name) : state_(std::make_shared<State>()) {
  if (index != 0)
    throw DeviceError(
        {"device", "index " + std::to_string(index), "0: one device is simulated", "Use device(0, name)."});
  try {
    state_->description = find_device(name);
  } catch (const std::invalid_argument& error) {
    throw DeviceError({"device", error.what(), "", ""});
  }
}

device device::from_description(std::string_view text) {
  auto state = std::make_shared<State>();
  try {
    state->description = read_device(text);
  } catch (const std::invalid_argument& error) {
    throw DeviceError({"device", error.what(), "", ""});
  }
  return device(std::move(state));
}

DeviceDescription device::description() const {
  const Hold hold = hold_monitor();
  return state_->description;
}

void device::set_constant(const std::string& key, double value) {
  const Hold hold = hold_monitor();
  if (is_geometry(key))
    throw DeviceError({"device constant", "\"" + key + "\"", "constants that are no geometry",
                       "Say it in a device file."});
  const auto found = state_->description.constants.find(key);
  if (found == state_->description.constants.end())
    throw DeviceError({"device constant", "\"" + key + "\"", "\"section.key\" of the device file",
                       "See transactions/machine/devices."});
  try {
    check_constant(key, value);
  } catch (const std::invalid_argument& error) {
    throw DeviceError({"device constant", error.what(), "", ""});
  }
  found->second = value;
}

void device::set_threads(unsigned threads) {
  if (threads > host::MOST_THREADS)
    throw DeviceError({"device.set_threads", counted(threads, "thread"),
                       "0 for all, or " + span(1, host::MOST_THREADS), ""});
  const Hold hold = hold_monitor();
  state_->options.threads = threads;
}

void device::set_record(std::string_view mode) {
  const std::map<std::string_view, sim::Record> modes{
      {"off", sim::Record::kOff}, {"on", sim::Record::kOn}, {"verify", sim::Record::kVerify}};
  const auto found = modes.find(mode);
  if (found == modes.end()) throw DeviceError({"device.set_record", "\"" + std::string(mode) + "\"", "\"off\", \"on\", \"verify\"", ""});
  const Hold hold = hold_monitor();
  state_->options.record = found->second;
}

void device::set_clock(bool on) {
  const Hold hold = hold_monitor();
  state_->options.clock = on;
}

void device::set_event_limit(uint64_t events) {
  const Hold hold = hold_monitor();
  state_->options.event_limit = events;
}

void device::set_kernel_seconds(double seconds) {
  const double milliseconds = 1000 * seconds;
  if (!(milliseconds >= host::LEAST_KERNEL_MILLISECONDS && milliseconds <= host::MOST_KERNEL_MILLISECONDS))
    throw DeviceError({"device.set_kernel_seconds", std::to_string(seconds),
                       "0.001 to " + std::to_string(host::MOST_KERNEL_MILLISECONDS / 1000) + " seconds", ""});
  const Hold hold = hold_monitor();
  state_->options.kernel_limit = static_cast<uint32_t>(milliseconds);
}

void device::set_print_bytes(uint64_t bytes) {
  if (bytes > kMostPrintBytes)
    throw DeviceError({"device.set_print_bytes", counted(bytes, "byte"), span(0, kMostPrintBytes), ""});
  const Hold hold = hold_monitor();
  state_->options.print_bytes = static_cast<size_t>(bytes);
}

void device::set_trace(bool on, uint64_t calls) {
  if (calls > kMostTracedCalls)
    throw DeviceError({"device.set_trace", counted(calls, "call"), span(0, kMostTracedCalls), ""});
  const Hold hold = hold_monitor();
  state_->options.trace = on;
  state_->options.trace_calls = static_cast<size_t>(calls);
}

void device::set_profile(bool on) {
  const Hold hold = hold_monitor();
  state_->options.profile = on;
}

uuid device::register_xclbin(const xclbin& binary) {
  const DeviceDescription wanted = [&] {
    try {
      return find_device_beside(description(), binary.device_name());
    } catch (const std::invalid_argument& error) {
      throw DeviceError({"xclbin", error.what(), "", ""});
    }
  }();
  const Hold hold = hold_monitor();
  const DeviceDescription& own = state_->description;
  if (wanted.device_generation != own.device_generation || wanted.columns > own.columns ||
      wanted.core_rows != own.core_rows)
    throw DeviceError({"register_xclbin", "an xclbin for " + wanted.name,
                       "one for " + own.name + " or fewer columns of it", "Compile for this device."});
  state_->registered[binary.get_uuid().to_string()] = binary.content();
  return binary.get_uuid();
}

std::vector<std::string> enumerate_devices() { return device_names(); }

// Makes `data` point to zeroed pages.
void bo::Memory::allocate() {
  try {
    block = sim::Zeros<uint8_t>(whole_pages(bytes) + kPage);
  } catch (const std::bad_alloc&) {
    throw DeviceError(
        {"bo", counted(bytes, "byte"), "as much as the host has", "Free buffers first."});
  }
  data = block.data() + (kPage - reinterpret_cast<uintptr_t>(block.data()) % kPage) % kPage;
}

uint8_t* bo::Memory::own() {
  if (!lent()) return data;
  allocate();
  std::memcpy(data, lender.get(), bytes);
  return data;
}

bo::bo(const device& owner, size_t bytes, uint32_t flags, uint32_t)
    : memory_(std::make_shared<Memory>()), bytes_(bytes) {
  check_size(bytes);
  memory_->bytes = bytes;
  memory_->allocate();
  place(owner, flags);
}

bo::bo(const device& owner, std::shared_ptr<const uint8_t> lent, size_t bytes, uint32_t flags)
    : memory_(std::make_shared<Memory>()), bytes_(bytes) {
  check_size(bytes);
  if (reinterpret_cast<uintptr_t>(lent.get()) % host::VECTOR_BYTES != 0 || bytes % 4 != 0)
    throw DeviceError({"bo.lent", counted(bytes, "byte") + " at an address modulo " + std::to_string(host::VECTOR_BYTES) + " of " +
                                      std::to_string(reinterpret_cast<uintptr_t>(lent.get()) % host::VECTOR_BYTES),
                       "whole words, at 0", "Align the memory."});
  memory_->bytes = bytes;
  memory_->data = const_cast<uint8_t*>(lent.get());  // own() comes before every write
  memory_->lender = std::move(lent);
  place(owner, flags);
}

// Gives the memory simulated addresses.
void bo::place(const device& owner, uint32_t flags) {
  const size_t bytes = memory_->bytes, pages = whole_pages(bytes);
  memory_->flags = flags;
  memory_->valid = sim::ValidMap((pages + 3) / 4);
  memory_->owner = owner.state();
  const Hold hold = hold_monitor();
  uint64_t& next = owner.state()->next_address;
  if (next + pages + kPage > kAddressEnd)
    throw DeviceError({"bo", "no simulated address left for " + counted(bytes, "byte"),
                       "about 2^46 bytes per device object", "Make a new device object."});
  memory_->address = next;
  next += pages + kPage;  // an unused page catches small overruns
}

bo::bo(const bo& parent, size_t bytes, size_t offset)
    : memory_(parent.memory_), bytes_(bytes), offset_(parent.offset_ + offset) {
  parent.check_range("sub-buffer", bytes, offset);
  if (offset % 4 != 0 || bytes == 0)
    throw DeviceError({"sub-buffer", counted(bytes, "byte") + " at " + std::to_string(offset),
                       "at least 1 byte, at a multiple of 4", "Align the offset."});
}

void bo::check_range(const char* what, size_t bytes, size_t offset) const {
  if (offset <= bytes_ && bytes <= bytes_ - offset) return;
  throw DeviceError({std::string("bo ") + what,
                     counted(bytes, "byte") + " at offset " + std::to_string(offset),
                     "a range within its " + counted(bytes_, "byte"), "Check size and offset."});
}

uint8_t* bo::map() const {
  const Hold hold = hold_monitor();
  return memory_->own() + offset_;
}
uint64_t bo::address() const { return memory_->address + offset_; }
uint32_t bo::get_flags() const { return memory_->flags; }

void bo::write(const void* data, size_t bytes, size_t seek) {
  check_range("write", bytes, seek);
  if (bytes == 0) return;
  std::memcpy(map() + seek, data, bytes);
  sync(sync_direction::TO_DEVICE, bytes, seek);
}

void bo::read(void* data, size_t bytes, size_t skip) const {
  check_range("read", bytes, skip);
  const Hold hold = hold_monitor();
  if (bytes > 0) std::memcpy(data, memory_->data + offset_ + skip, bytes);
}

void bo::sync(sync_direction direction, size_t bytes, size_t offset) {
  check_range("sync", bytes, offset);
  if (direction == sync_direction::FROM_DEVICE || bytes == 0) return;
  const size_t first = (offset_ + offset) / 4;
  memory_->valid.mark(first, (offset_ + offset + bytes + 3) / 4 - first);
}

void bo::forget(size_t bytes, size_t offset) {
  check_range("forget", bytes, offset);
  const size_t first = (offset_ + offset) / 4;
  memory_->valid.forget(first, (offset_ + offset + bytes + 3) / 4 - first);
}

size_t bo::unwritten(size_t bytes, size_t offset) const {
  check_range("unwritten", bytes, offset);
  const size_t first = (offset_ + offset) / 4;
  return 4 * memory_->valid.count_unwritten(first, (offset_ + offset + bytes + 3) / 4 - first);
}

bool bo::attach(uint8_t* memory, size_t bytes, bool written) {
  if (memory != nullptr) {
    const auto address = reinterpret_cast<uintptr_t>(memory), last = address + bytes - 1;
    const bool whole = bytes == memory_->bytes && bytes % 4 == 0 && address % 4 == 0;
    if (!whole || memory_->lender != nullptr || (last + host::VECTOR_BYTES) / kPage != last / kPage) return false;
  }
  const Hold hold = hold_monitor();
  memory_->attached = memory;
  memory_->attached_written = written;
  return true;
}

}  // namespace onedispatch::xrt
