// SPDX-License-Identifier: Apache-2.0
// What a run tells about itself.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "onedispatch/errors.h"
#include "onedispatch/print_log.h"

namespace onedispatch {

struct ChannelReport {
  uint32_t column, row;  // tile row: 0 shim, 1 mem, 2.. core
  bool mm2s;
  uint32_t channel;
  uint64_t bytes;
  uint64_t busy;   // cycles in which data moved
  uint64_t stall;  // cycles with a task, waiting for a lock or for the other side
  uint64_t lock;   // of them, those that waited for a lock
  bool open;       // replay: it sent to nowhere, or was fed from nowhere
};

struct CoreReport {
  uint32_t column, row;
  uint64_t busy;   // cycles of compute
  uint64_t calls;  // of kernels
  uint64_t lock;   // cycles in an operation, waiting for data or for room
};

// What the kernel of one operation printed on one core.
struct PrintReport {
  uint32_t column, row;
  int64_t since;  // id of the last timer mark before it; -1: none
  PrintRing ring;
};

// One kernel call; kernel 0: a parameter block that is read, or a print ring that is handed out.
struct TracedCall {
  uint32_t column = 0, row = 0;
  uint32_t kernel = 0;             // digest
  uint64_t start = 0, cycles = 0;  // of the array clock, since launch
  uint64_t nanoseconds = 0;        // of this machine
};

constexpr uint64_t kMostTracedCalls = 10'000'000;  // that are kept one by one

// All calls of one kernel.
struct TracedKernel {
  uint64_t calls = 0;
  uint64_t cycles = 0;       // of the calls alone
  uint64_t span = 0;         // from the first call of an operation to the end of its last, of all cores
  uint64_t nanoseconds = 0;  // of this machine
};

// What a trace has beside kernel calls: who did what, from when to when.
enum class Traced : uint8_t {
  kTask,     // a DMA channel had a task
  kBd,       // it read a descriptor, and moved what that says
  kLock,     // a channel, or a core with an operation, waited for a lock
  kStream,   // a channel that could move data waited for the other side of its stream
  kMemory,   // data had passed the stream, or could have, and device memory had not served it
  kRequest,  // device memory served a channel
  kToken,    // the controller waited for completion tokens, first for that of this channel
  kPoll,     // the controller waited for a register of this tile
};
constexpr size_t kTracedKinds = 8;
constexpr const char* kTracedNames[kTracedKinds] = {"task", "bd", "lock", "stream", "memory", "request", "token", "poll"};

// A DMA channel, or else a tile.
struct TracedPlace {
  static constexpr uint32_t kTile = ~0u;  // no channel
  uint32_t column = 0, row = 0;
  bool mm2s = false;
  uint32_t channel = kTile;
};

struct TracedSpan {
  TracedPlace place;
  uint64_t start = 0, cycles = 0;  // of the array clock, since launch
  uint64_t bytes = 0;              // kBd, kRequest: that moved, or were served
  uint32_t detail = 0;             // kTask: its first descriptor; kBd, kStream, kMemory: the descriptor; kToken, kPoll: the operation
  bool packets = false;            // kBd: of control packets
};

// All spans of one kind.
struct TracedSpans {
  std::vector<TracedSpan> kept;  // the first ones
  uint64_t count = 0, cycles = 0;
};

// What time on a critical path goes into.
enum class Part : uint8_t {
  kCompute,  // a kernel call
  kDdr,      // a transfer that device memory holds up
  kLatency,  // of device memory, before a shim's data flows
  kStream,   // a transfer that a stream port holds up
  kTask,     // a DMA channel reads a descriptor, and begins with it
  kLock,     // a core acquires and releases
  kCommand,  // the controller's operations
  kPacket,   // control packets, and tokens of tasks
  kBlock,    // cores read parameter blocks
  kLaunch,   // until the first operation
};
constexpr size_t kParts = 10;
constexpr const char* kPartNames[kParts] = {"compute", "ddr", "latency", "stream", "task", "lock", "command", "packet", "block", "launch"};

// The time up to a timer mark, from the one before.
struct ProfileWindow {
  static constexpr uint32_t kEnd = ~0u;
  uint32_t timer;  // its id; kEnd: the end of the run
  uint64_t cycles;
  std::array<uint64_t, kParts> parts;  // of the critical path; their sum is `cycles`
  uint64_t busy;                       // cycles of compute that began meanwhile, of all cores
  uint64_t read, written, bursts;      // bytes of device memory; and in whole bursts
};

struct ProfileReport {
  std::vector<ProfileWindow> windows;
  uint64_t bin_cycles = 0;
  // By column: cycles of compute, bytes read from and written to device memory, by bins of time.
  std::vector<std::array<std::vector<uint64_t>, 3>> bins;
};

// How a run was made, as far as recording goes; anything else says why the engine made it.
constexpr const char* kPlayed = "played";
constexpr const char* kRecorded = "recorded";
constexpr const char* kVerified = "verified";
constexpr const char* kTimed = "timed";  // by a clock without data: nothing was made at all

struct RunReport {
  uint64_t cycles = 0;  // of the array clock, from launch to the last operation
  double seconds = 0;   // the same at the device's array clock
  uint64_t operations = 0;
  uint64_t events = 0;  // of the simulator
  uint64_t kernel_calls = 0;
  uint64_t calls_made = 0;  // of kernels on this machine: fewer where a recording joins them
  uint64_t kept_bytes = 0;  // of this machine, that a recording takes for what stays on the chip
  std::vector<std::pair<uint32_t, uint64_t>> timers;     // RECORD_TIMER: id, cycle since launch
  std::vector<uint64_t> ddr_read, ddr_written;           // bytes per kernel argument
  uint64_t ddr_burst_bytes = 0;                          // of all together, in whole bursts
  std::vector<ChannelReport> channels;                   // those that moved data or had a task
  std::vector<CoreReport> cores;                         // those that computed
  std::vector<std::pair<uint64_t, uint32_t>> registers;  // READ_REGS: address, value
  std::string recorded;  // kPlayed, kRecorded, kVerified, kTimed, or why the engine made it alone
  bool traced = false;
  std::vector<TracedCall> calls;               // the first ones, as many as are kept
  std::map<uint32_t, TracedKernel> kernels;  // all of them, by digest
  std::array<TracedSpans, kTracedKinds> spans;
  bool profiled = false;
  ProfileReport profile;
};

// For a replay: a kernel argument that holds control packets, and where host addresses go in it.
struct PacketPatch {
  uint64_t offset;    // of 6 bytes in the packets
  uint32_t argument;  // whose address
  uint64_t plus;
  bool add;  // to what is there
};
struct ControlPackets {
  uint32_t argument = 4;
  uint64_t base = 0;           // byte of the argument where they start; what is around them is open
  std::vector<uint8_t> bytes;  // empty: none
  std::vector<PacketPatch> patches;
  std::vector<uint8_t> overlay;  // a transaction that lays the routes to the control ports; empty: none
};

// Of a replay: what a kernel argument must hold at least, and the bytes that BDs touched.
struct ArgumentReach {
  uint32_t argument;
  uint64_t first, end;  // bytes
  uint64_t read, written;
};

// Of a replay: a lock that an unseen partner was assumed to serve.
struct AssumedLock {
  uint32_t column, row, lock;
  uint32_t times;
  bool set;  // its value was written, but it was not released
};

// Of a replay: a BD that was queued or chained though the transaction never wrote it.
struct AbsentBd {
  uint32_t column, row, bd;
  uint32_t times;
};

// Of a replay: a channel whose task never ended.
struct UnfinishedTask {
  uint32_t column, row;
  bool mm2s;
  uint32_t channel;
  uint64_t words_left;
  bool moving;      // data still flowed when the replay was ended
  std::string why;  // what it waits for, and the operations that set that up
};

struct ReplayReport {
  RunReport run;          // until the last operation, or the one that it stopped at
  bool finished = false;  // every operation was executed
  uint64_t executed = 0;  // operations
  std::string stop_kind, stop;  // of a replay that did not: the kind of SimulationError, and its text
  OpRef stop_op;
  uint64_t settled_cycles = 0;  // as run.cycles, until nothing moved any more
  uint64_t packets = 0;         // control packets executed
  uint64_t handshakes = 0;      // parameters that absent super kernels took
  uint64_t assumed_tokens = 0;  // tokens taken to reach the controller: their routes are the overlay's
  uint64_t packet_tokens = 0;   // tokens taken to have come: control packets alone push their tasks
  std::vector<std::pair<uint8_t, uint32_t>> skipped;  // custom opcodes without known meaning, how often
  std::vector<ArgumentReach> arguments;
  std::vector<AssumedLock> assumed;
  std::vector<AbsentBd> absent_bds;
  std::vector<UnfinishedTask> unfinished;
};

}  // namespace onedispatch
