// SPDX-License-Identifier: Apache-2.0
// The host API, in the shape of XRT's: device, xclbin, hw_context, kernel, run, bo, runlist.
// Handles are cheap to copy and keep alive what they refer to. Several threads may use one object:
// a run takes its arguments as they are when it starts, runs of a context follow one another, and
// bytes of a bo that host and device touch at the same time are as undefined as on silicon. A forked
// child may go on with every object; what other threads were running does not end there.
// Errors: DeviceError for wrong use,
// ContainerError for xclbins, TransactionError and SimulationError from runs.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "onedispatch/device_description.h"
#include "onedispatch/errors.h"
#include "onedispatch/report.h"

namespace onedispatch::xrt {

enum class ert_cmd_state {
  NEW = 1,
  QUEUED = 2,
  RUNNING = 3,
  COMPLETED = 4,
  ERROR = 5,
  ABORT = 6,
  SUBMITTED = 7,
  TIMEOUT = 8,
  NORESPONSE = 9,
  SKERROR = 10,
  SKCRASHED = 11,
};

enum class sync_direction { TO_DEVICE = 0, FROM_DEVICE = 1 };

struct uuid {
  std::array<uint8_t, 16> bytes{};
  std::string to_string() const;  // 32 hex digits in groups of 8-4-4-4-12
  bool operator==(const uuid& other) const { return bytes == other.bytes; }
};

class xclbin {
 public:
  explicit xclbin(const std::string& path);
  static xclbin from_bytes(const uint8_t* data, size_t size);

  const std::vector<std::string>& kernels() const;
  uuid get_uuid() const;
  const std::string& device_name() const;

  struct Content;
  const std::shared_ptr<const Content>& content() const { return content_; }

 private:
  xclbin() = default;
  std::shared_ptr<const Content> content_;
};

class device {
 public:
  explicit device(uint32_t index, std::string_view name = "npu2");  // index must be 0
  explicit device(std::string_view name) : device(0, name) {}
  // The device that the text of a device file describes.
  static device from_description(std::string_view text);

  DeviceDescription description() const;
  // Changes a timing constant for contexts made from now on.
  void set_constant(const std::string& key, double value);
  // Host threads that run kernels: 0 all, 1 only the calling one, host::MOST_THREADS at most.
  // Results do not depend on it. Throws DeviceError.
  void set_threads(unsigned threads);
  // Of contexts made from now on: whether runs that come again are made from a recording: "off", "on", or "verify",
  // which makes them both ways and compares. On-chip memory then counts as unwritten at the start of each run.
  // Throws DeviceError.
  void set_record(std::string_view mode);
  // Of contexts made from now on: whether their runs only tell the time, to the cycle, and traffic: no data moves, no
  // kernel is called, buffers stay as they are, and inputs and constants need not be given. Checks that need data are
  // off. What decides must be given: a run whose control packets, parameter blocks or polled words depend on what
  // it computes ends with a SimulationError.
  void set_clock(bool on);
  // Events without progress of the controller before a run counts as livelock.
  void set_event_limit(uint64_t events);
  // Seconds of the host's time that a call of a custom kernel may take in contexts made from now on, 60 at
  // first; then the run ends. Throws DeviceError.
  void set_kernel_seconds(double seconds);
  // Of contexts made from now on: bytes of the ring that an operation of a core prints into (0: none, most
  // kMostPrintBytes); and whether kernel calls are traced, so many of them one by one. Throw DeviceError.
  void set_print_bytes(uint64_t bytes);
  void set_trace(bool on, uint64_t calls);
  // Of contexts made from now on: whether runs say what their time goes into. They are made by the engine, and take a
  // little longer; modelled time is the same.
  void set_profile(bool on);
  uuid register_xclbin(const xclbin& binary);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Executes a transaction without the overlay that it was written for: streams without a route are
// open, kernel arguments are as large as it takes, absent core programs answer. Errors of the
// simulation are part of the report; a damaged transaction throws TransactionError.
ReplayReport replay(const device& owner, const uint8_t* data, size_t size,
                    const ControlPackets& packets = {});

std::vector<std::string> enumerate_devices();

// Memory that host and device share. Starts as zeros that count as unwritten: a run that reads
// what neither write(), sync(TO_DEVICE) nor a DMA has touched ends with a SimulationError.
class bo {
 public:
  enum flags : uint32_t {
    normal = 0,
    cacheable = 1u << 24,
    device_only = 1u << 28,
    host_only = 1u << 29,
    p2p = 1u << 30,
    svm = 1u << 27
  };

  bo(const device& owner, size_t bytes, uint32_t flags = host_only, uint32_t group = 0);
  bo(const bo& parent, size_t bytes, size_t offset);  // a part; offset is a multiple of 4
  // Over words of the host's, which stay as they are: before the buffer is written to, it gets a copy of its own.
  // They begin at a multiple of host::VECTOR_BYTES, and as many behind them can be read.
  bo(const device& owner, std::shared_ptr<const uint8_t> lent, size_t bytes, uint32_t flags);

  uint8_t* map() const;  // page aligned; for writing, too
  size_t size() const { return bytes_; }
  uint64_t address() const;
  uint32_t get_flags() const;
  void write(const void* data, size_t bytes, size_t seek);
  void read(void* data, size_t bytes, size_t skip) const;
  void sync(sync_direction direction, size_t bytes, size_t offset);
  void sync(sync_direction direction) { sync(direction, bytes_, 0); }
  // Words of a range count as unwritten from now on; and how many bytes of one, in whole words, neither the host nor
  // a DMA has written since.
  void forget(size_t bytes, size_t offset);
  size_t unwritten(size_t bytes, size_t offset) const;
  // Runs that start from now on read `memory` in place of what map() shows, or leave what they write there, until null
  // is given; it must outlive them. Which words were written stays as it is. False, and nothing changes, where `bytes`
  // are not exactly the object's, in whole words, or a page ends right behind them: kernels load whole vectors.
  bool attach(uint8_t* memory, size_t bytes, bool written);

  struct Memory;
  const std::shared_ptr<Memory>& memory() const { return memory_; }
  size_t offset() const { return offset_; }

 private:
  void place(const device& owner, uint32_t flags);
  void check_range(const char* what, size_t bytes, size_t offset) const;
  std::shared_ptr<Memory> memory_;
  size_t bytes_ = 0, offset_ = 0;
};

// A partition of the array with its own state. Loads PDI 0 of the xclbin.
class hw_context {
 public:
  hw_context(const device& owner, const uuid& id);
  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

class kernel;

using argument = std::variant<std::monostate, uint64_t, bo>;

class run {
 public:
  explicit run(const kernel& owner);
  // 0: opcode (3), 1: instruction BO, 2: instruction count in words or bytes, 3...: data BOs.
  void set_arg(uint32_t index, argument value);
  // Executes on the calling thread; what goes wrong is kept for wait(). Throws DeviceError when it
  // is running already, and what stops it (interrupt.h), which leaves it ABORT.
  void start();
  // Until it does not run any more, on whichever thread; TIMEOUT after so long (0: never). Rethrows
  // the error of the run.
  ert_cmd_state wait(uint32_t timeout_ms = 0);
  ert_cmd_state state() const;
  RunReport report() const;  // of the last completed execution
  // What kernels printed in the last execution, by core, then in the order of its operations; as far as it
  // came, where it failed.
  std::vector<PrintReport> prints() const;

 private:
  struct Execution;
  std::shared_ptr<Execution> execution_;
};

class kernel {
 public:
  kernel(const hw_context& context, const std::string& name);
  uint32_t group_id(uint32_t index) const;
  const std::string& name() const { return name_; }
  const hw_context& context() const { return context_; }

 private:
  hw_context context_;
  std::string name_;
};

class runlist {
 public:
  explicit runlist(const hw_context& context);
  void add(const run& added);
  void execute();  // in order; stops at the first that fails
  ert_cmd_state wait(uint32_t timeout_ms = 0);
  void reset();

 private:
  hw_context context_;
  std::vector<run> runs_;  // under the monitor, as is executed_
  bool executed_ = false;
};

}  // namespace onedispatch::xrt
