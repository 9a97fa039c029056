// SPDX-License-Identifier: Apache-2.0
// The array: tiles, locks, DMAs, switches and cores, and the events that move them.
// Here, registers.cpp: the address decoder. cores.cpp: programs. explain.cpp: diagnoses. quiescence.cpp: what a
// run must not leave behind. spans.cpp: what a trace has of them. transport/: dma.cpp: tasks, BDs, locks. stream.cpp: transfers. routes.cpp: from
// a channel to its destinations. control_port.cpp: control packets. tokens.cpp: task completion tokens.
// What it decides, an executor does (execute/). replay/: what stands in for an absent overlay. record/: runs that are
// made again without events.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/transport/answers.h"
#include "sim/transport/bd.h"
#include "sim/transport/route.h"
#include "sim/array/ddr.h"
#include "sim/engine/event_queue.h"
#include "sim/execute/executor.h"
#include "sim/array/memory.h"
#include "sim/array/overlay_policy.h"
#include "sim/array/trace.h"
#include "sim/engine/profile.h"
#include "onedispatch/core_program.h"
#include "onedispatch/device_description.h"
#include "onedispatch/errors.h"
#include "sim/engine/timing.h"
#include "sim/array/wait_graph.h"

namespace onedispatch::sim {

struct RegisterInfo;

// In the view of a memory tile's BDs the locks of its west neighbour come first, then its own, then the east one's.
constexpr uint32_t kLocksOfMemTile = reg::mem::kLocks;
constexpr uint32_t kMostQueued = reg::QUEUE_DEPTH;  // a device may have fewer

// Who waits for a lock, and for what: more than 0 for that value, less to take so many off it.
struct Waiter {
  enum class Kind : uint8_t { kChannel, kCore } kind;
  uint32_t index;
  int32_t wanted;
};

struct Lock {
  int32_t value = 0;
  int32_t last_set = 0;             // what its value register was last set to
  std::vector<Waiter> waiters;  // in order of arrival

  // Who was seen at it.
  bool set = false;       // its value register was written
  bool released = false;  // a channel, a core or the controller added to it
  bool taken = false;     // one of them acquired it
  bool watched = false;   // the overlay's policy hears of what is added to it
};

struct Task {
  uint32_t start_bd = 0;
  uint32_t repeat = 1;
  bool token = false;
  bool resident = false;  // pushed by the overlay: it may wait on after a run
  OpRef op;               // that pushed it
};

enum class ChannelState : uint8_t {
  kIdle,     // no task
  kAcquire,  // waits for a lock
  kReady,    // has a BD; waits for the other side of the stream
  kMoving,   // a segment is under way
  kDelay,    // a BD without data passes
};

// What a BD of a core or of a memory tile touches, and a cursor at its first word.
struct BdFootprint {
  const Memory* memory = nullptr;                          // null: DDR or none
  uint32_t memory_tile = kNone, last_memory_tile = kNone;  // from west to east
  uint64_t first_byte = 0, span_bytes = 0;                 // and where in their memory
  Cursor cursor;                                           // also of a shim's BD
};

// What the words of a BD mean, kept until they are written: most BDs run many times.
struct KnownBd {
  uint64_t stamp = 0;  // another one whenever the words were read anew; 0: they have been written since
  struct Side {
    Lock* lock = nullptr;  // once it was looked for
    uint32_t tile = 0;
  } acquire, release;
  Bd bd;  // counts with its words
  bool has_footprint = false;
  BdFootprint footprint;          // if has_footprint; of a shim the pattern alone
  uint64_t footprint_base = 0;  // base of its shape: other counts of the BD are offset from there
};

// What each event needs comes first.
struct Channel : BdFootprint {
  uint32_t index = 0, tile = 0, number = 0;
  TileKind kind = TileKind::kCore;  // of the tile
  bool mm2s = false;
  bool reply = false;  // no DMA: what leaves by the tile's control port, answers to reads and tokens
  bool running = false;
  ChannelState state = ChannelState::kIdle;
  bool packet_open = false;  // MM2S: between a header and its TLAST; arbiters are held
  bool header_due = false;   // MM2S: the header of the open packet has not been sent
  bool header_segment = false;
  bool queued_for_arbiter = false;
  bool has_footprint = false;  // known since the BD was loaded; `bd` holds only what differs
  uint32_t control = 0;
  uint32_t generation = 0;  // changes on reset; older events are dropped
  uint32_t bd_id = 0;
  uint32_t repeats_left = 0;
  uint32_t tasks = 0;        // that it has begun
  uint32_t walked = 0;       // BDs of the chain since the task, or its repeat, began
  uint64_t bd_stamp = 0;     // of what is known of the BD that it loaded; 0: of nothing
  uint64_t words_left = 0;   // on the stream
  uint64_t lag = 0;          // clock: words that passed and that the cursor has yet to pass over
  uint64_t ready_time = 0;   // data may not flow before
  const Route* route = nullptr;  // MM2S: found when the data of a packet, or of a BD, starts
  uint64_t segment_words = 0;
  uint64_t segment_start = 0;
  uint64_t last_end = 0;  // of the previous segment
  DdrRegion* region = nullptr;  // shim: the buffer of this BD, one of those of the run
  std::vector<uint32_t> packet_words;    // MM2S: of a control packet that is not complete yet
  // S2MM only: sources that found this channel not ready. The buffer is kept between uses.
  std::vector<uint32_t> waiting_sources;
  uint64_t bytes = 0, busy = 0, active = 0, active_since = 0;
  uint64_t locked = 0, locked_since = 0;  // waiting for locks
  uint32_t token_of = kNone;  // reply only: the channel whose token is under way
  uint32_t tokens = 0;        // of its tasks, that have reached the controller
  uint32_t queued = 0;
  uint32_t header_word = 0;  // MM2S: of the open packet
  Bd bd;
  Task task;
  std::array<Task, kMostQueued> queue{};
  Cursor bursts;  // shim: walks ahead of the data, for the cost in DDR
};

// Who adds to a lock: a channel, a core, or else the controller. For messages.
struct Releaser {
  const Channel* channel = nullptr;
  const struct Core* core = nullptr;
};

// Deterministic merge of an arbiter: whose packets pass next.
struct Merge {
  std::array<uint32_t, reg::core::SWITCH_MERGE.size / 4> words{};  // as written
  uint32_t turn = 0, passed = 0;                                   // packets of this turn that have passed
};

struct Switch {
  std::vector<uint32_t> masters, slaves, slots;
  std::array<Merge, reg::core::SWITCH_MERGE.count> merges{};
};

struct Tile {
  TileKind kind = TileKind::kCore;
  uint32_t index = 0, column = 0, row = 0;
  uint32_t core = kNone;
  MemoryPart memory;
  std::vector<Lock> locks;
  std::vector<BdWords> bds;
  std::vector<KnownBd> known_bds;  // what the words of `bds` mean
  std::vector<OpRef> bd_writers;
  std::vector<uint32_t> program;  // core: program memory, in words
  uint32_t first_s2mm = 0, first_mm2s = 0, channels = 0;
  uint32_t answers = 0;  // channel of its control port
  std::array<uint32_t, 6> pad_values{};
  Switch switches;
  uint32_t mux = 0, demux = 0;
  std::map<uint32_t, uint32_t> inert;  // registers that are accepted but do nothing
};

struct Core {
  uint32_t index = 0, tile = 0;
  uint32_t control = 0;
  uint32_t generation = 0;
  std::unique_ptr<CoreProgram> program;
  enum class State : uint8_t { kStopped, kRunning, kAcquire, kCompute, kHalted } state = State::kStopped;
  const Action* action = nullptr;  // of the program; there is one where something waits for it
  bool woken_while_disabled = false;
  uint64_t image = 0;          // hash of program memory when its program was started
  uint32_t home_lock = kNone;  // that its program acquires first: where it waits between operators
  uint64_t owed_cycles = 0;   // of lock operations, paid with the next compute
  uint64_t blocked_at = 0;    // kAcquire: since when; waiting pays what is owed
  uint64_t busy = 0, calls = 0, locked = 0;
};

// Whether a run that comes again is made without the engine.
enum class Record : uint8_t {
  kOff,
  kOn,
  kVerify,  // made both ways; a difference is an error
};

struct Options {
  Record record = Record::kOff;
  unsigned threads = 0;               // 0: all of the machine; 1: everything on the calling thread
  uint64_t event_limit = 20'000'000;  // events without progress of the controller
  uint32_t kernel_limit = host::KERNEL_MILLISECONDS;  // for a call of a custom kernel
  bool clock = false;                 // only time passes: no data moves, no kernel is called (execute/clock_executor.h)
  size_t print_bytes = kPrintBytes;   // of the ring of a core's operation; 0: nothing is kept
  bool trace = false;                 // every kernel call is counted and timed, and what channels do
  size_t trace_calls = 0;             // of them, those that are kept one by one
  bool profile = false;               // what time goes into is found
};

// Null where there is no such neighbour.
struct SeenLock {
  const Tile* tile;
  uint32_t id;
};

class Array {
 public:
  Array(const DeviceDescription& device, const Options& options);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  // Forgets all state, as a reset of the partition does; time goes on.
  void reset();

  // The address decoder. `op` is remembered with BDs and tasks, for messages.
  void write(uint64_t address, uint32_t value, OpRef op);
  void write_block(uint64_t address, const uint8_t* words, uint32_t count, OpRef op);
  uint32_t read(uint64_t address);  // may have side effects (lock requests)
  uint32_t tile_of(uint64_t address) const;

  void handle(const Event& event);
  // Begins to bring into the caches what the event will need.
  void fetch(const EventQueue::Upcoming& event) const;

  void set_regions(DdrRegions regions) { regions_ = std::move(regions); }
  const DdrRegions& regions() const { return regions_; }

  // Set when something that the controller may wait for has changed.
  bool take_change(uint32_t tile);
  Channel& channel(uint32_t tile, bool mm2s, uint32_t number);
  Channel* find_channel(uint32_t column, uint32_t row, bool mm2s, uint32_t number);

  const DeviceDescription& device() const { return device_; }
  const Timing& timing() const { return timing_; }
  const Options& options() const { return options_; }
  uint32_t rows() const { return rows_; }
  std::vector<Tile>& tiles() { return tiles_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  std::vector<Channel>& channels() { return channels_; }
  const std::vector<Channel>& channels() const { return channels_; }
  std::vector<Core>& cores() { return cores_; }

  // What the controller waits for.
  struct Awaited {
    std::vector<const Channel*> channels;  // a token of each
    const uint64_t* polled = nullptr;      // an address
  };
  // One line per channel and core that is not idle: what it waits for, who set that up, and because of
  // which other; causes come first.
  std::string explain(const Awaited& awaited) const;
  // The same for every task that runs.
  std::vector<std::pair<const Channel*, std::string>> explain_tasks() const;
  std::string tile_name(uint32_t tile) const;
  std::string channel_name(const Channel& channel) const;
  std::string explain_channel(const Channel& channel) const;  // empty when it is idle

  // What word of the channel's memory, or of which argument, this is.
  std::string place_of(const Channel& channel, uint64_t word) const;
  // Throws what concerns the channel's task, or the core's program.
  [[noreturn, gnu::cold]] void fail(const Channel& channel, const char* kind, Complaint complaint) const;
  [[noreturn, gnu::cold]] void fail(const Core& core, const std::string& given, const std::string& accepted) const;
  [[noreturn, gnu::cold]] void fail(const Core& core, const ProgramError& error, const std::string& accepted) const;

  Executor& executor() { return *executor_; }
  // Does what the array decides from now on; null: its own again.
  void execute_by(Executor* other) { executor_ = other != nullptr ? other : own_executor_.get(); }

  bool is_bd(uint64_t address) const;
  // A BD is what a run would have left there.
  void put_bd(uint32_t tile, uint32_t bd, const BdWords& words, OpRef writer);
  // What decides what a run does, beside its instructions, device memory and BDs: equal states are equal bytes. Of an
  // array at rest.
  std::vector<uint8_t> state() const;
  // All data memory counts as unwritten.
  void forget_data();

  // What cores printed since the last time, by core.
  std::vector<PrintLog>& prints() { return prints_; }
  Trace& trace() { return trace_; }
  // What channels and cores are at ends here for the trace; of a run that ends, or an array that is reset.
  void end_spans();
  Profile& profile() { return profile_; }

  uint64_t now = 0;  // cycles
  EventQueue events;
  uint64_t effort = 0;  // events, and words moved / 256: the measure for livelocks
  OpRef current_op;     // of the controller
  uint64_t tokens_arrived = 0;  // at the controller
  bool loading = false;         // an overlay: its tasks are resident
  // Describes what keeps the array from being quiescent (quiescence.cpp), a line each; empty if it is.
  std::vector<std::string> residue() const;

  OverlayPolicy& overlay() { return *overlay_; }
  // Takes other halves than those of an ordinary run; before the array is reset.
  void replace(std::unique_ptr<OverlayPolicy> overlay, std::unique_ptr<Executor> executor);
  uint64_t progress = 0;  // BDs that ended, of chains that end
  // The first cycle from now on at which a poll of a timer is true; 0 for what is no timer, and for never.
  uint64_t timer_match(uint64_t address, uint32_t mask, uint32_t value) const;
  uint64_t packets = 0;  // control packets executed

 private:
  friend class AbsentOverlay;    // stands in for a part of it
  friend class WaitFeasibility;  // looks at everything, changes nothing
  // A decoded address.
  struct Access {
    uint32_t tile = 0;
    uint32_t offset = 0;           // in the tile
    uint32_t index = 0, byte = 0;  // the item of its block, and where in it
    const RegisterInfo* info = nullptr;
  };
  // A block of registers, and what of it exists on the device.
  struct RecentRegisters {
    const RegisterInfo* info = nullptr;
    uint32_t first = 0;
    uint32_t shift = 0;             // items lie 2^shift bytes apart
    uint32_t items = 0, bytes = 0;  // so many, of each so many
    // False where none of its words is at `offset`.
    bool find(uint32_t offset, uint32_t* index, uint32_t* byte) const {
      const uint32_t at = offset - first;  // what lies before it is beyond all items
      *index = at >> shift;
      *byte = at & ((1u << shift) - 1);
      return *index < items && *byte < bytes && offset % 4 == 0;
    }
  };

  // registers.cpp
  Access decode(uint64_t address) const;
  Access decode(const Tile& tile, uint32_t offset) const;
  RecentRegisters registers_at(const Tile& tile, uint32_t offset) const;
  [[noreturn, gnu::cold]] void refuse_offset(const Tile& tile, uint32_t offset) const;
  static uint64_t address_of(const Tile& tile, uint32_t offset);
  void write_block(const Access& access, const uint8_t* words, uint32_t count, OpRef op);
  void write_bd(const Access& access, const uint8_t* words, uint32_t count, OpRef op);
  void write_register(const Access& access, uint32_t value, OpRef op);
  [[noreturn, gnu::cold]] void refuse_write(const Access& access, const char* kind, const std::string& given,
                                 const std::string& accepted) const;
  void check_stopped(const Access& access) const;
  void check_circuit(const Access& access, uint32_t master, uint32_t value) const;
  void write_control(Channel& channel, uint32_t value, OpRef op);
  uint32_t request_lock(Tile& tile, uint32_t offset);
  bool find_acquire(uint64_t address, uint32_t* tile, uint32_t* lock, int32_t* value) const;
  uint32_t status_of(const Channel& channel) const;
  uint32_t core_status(const Core& core) const;
  void write_memory(Tile& tile, uint32_t offset, const uint8_t* data, uint64_t bytes);

  // dma.cpp
  void push_task(Channel& channel, uint32_t value, OpRef op);
  void start_task(Channel& channel, const Task& task, bool cold);
  void begin_bd(Channel& channel, uint32_t bd, uint64_t delay);
  [[noreturn, gnu::cold]] void refuse_number(const Channel& channel) const;
  [[noreturn, gnu::cold]] void refuse_bd(const Channel& channel) const;
  KnownBd& know_bd(Tile& tile, uint32_t bd);
  // What is known of the BD that the channel loaded; null when its words have changed since.
  KnownBd* known_to(const Channel& channel);
  void activate(Channel& channel);
  void place_bd(Channel& channel);
  void check_padding(const Channel& channel, unsigned count) const;
  void load_bd(Channel& channel, const KnownBd& known);
  void place_loaded(Channel& channel);
  void keep_footprint(KnownBd& known, const Channel& channel) const;
  void finish_bd(Channel& channel);
  void next_task(Channel& channel);
  void reset_channel(Channel& channel);
  // In words as BDs count them: what exists of the range, where the tile's own part starts, and how far
  // the parts of neighbours lie apart, of which the first `part` words exist.
  struct MemoryWindow {
    uint64_t first, end, own, pitch, part;
    // 0 the tile to the west, 1 the tile itself, 2 the one to the east.
    uint32_t side(uint64_t word) const { return static_cast<uint32_t>((word + pitch - own) / pitch); }
    bool covers(uint64_t from, uint64_t last) const {
      const bool one = side(from) == side(last) && (last + pitch - own) % pitch < part;
      return from >= first && last < end && (part == pitch || one);
    }
  };
  MemoryWindow memory_window_of(const Tile& tile) const;
  uint64_t mem_pitch() const;  // bytes from one memory tile's memory to the next one's
  std::string describe_view(const Tile& tile) const;
  void bind_memory(Channel& channel, Shape& shape);
  void bind_ddr(Channel& channel);
  Lock* lock_of_bd(const Channel& channel, uint32_t id, uint32_t* tile);
  KnownBd::Side lock_side(const Channel& channel, uint32_t id, KnownBd::Side* known);
  static bool can_acquire(const Lock& lock, int32_t value);
  void take_lock(Lock& lock, uint32_t tile, int32_t value);
  void add_to_lock(Lock& lock, uint32_t tile, uint32_t id, int32_t value, const Releaser& who);
  [[noreturn, gnu::cold]] void refuse_release(const Lock& lock, uint32_t tile, uint32_t id, int32_t value, const Releaser& who) const;
  void wake(Lock& lock, uint32_t tile);

  // stream.cpp
  void try_start(Channel& source);
  bool open_packet(Channel& source);
  bool take_arbiters(Channel& source);
  void release_arbiters(Channel& source);
  void serve_arbiter_queue();
  // Lets `words` words of the channel move from cycle `start` to `end`.
  void move_segment(Channel& channel, uint64_t words, uint64_t start, uint64_t end);
  Link cause_of(const Channel& source, uint64_t start) const;
  void count_ddr(Channel& channel, uint64_t words);
  void begin_segment(Channel& source, bool header, uint64_t words, uint64_t start, uint64_t packets = 0);
  void finish_segment(Channel& source);
  void deliver_header(Channel& source, const Route& route);
  void ready(Channel& channel);
  uint64_t serve_ddr(Channel& channel, uint64_t words);
  bool paused(const Channel& channel) const;
  void count_moved(Channel& source, const Route& route, uint64_t words);

  // merge.cpp
  Merge* merge_at(uint32_t arbiter_key);
  bool in_turn(const Route::Arbiter& arbiter);
  void pass_turn(uint32_t arbiter_key);
  void write_merge(Tile& tile, uint32_t index, uint32_t byte, uint32_t value);

  // control_port.cpp
  bool start_packet(Channel& source);
  size_t length_ahead(Channel& source);
  bool header_from_data(Channel& source);
  void take_packet_words(Channel& source, uint64_t words);
  void finish_packet_segment(Channel& source);
  void check_control_header(const Channel& source, uint32_t control) const;
  bool execute_packets(Channel& source);
  void execute_packet(const Channel& source, const Tile& tile, const uint32_t* packet);
  struct Run {
    uint64_t words;
    uint64_t further;  // packets that begin in it
  };
  Run with_further_packets(Channel& source, uint64_t first);
  bool writes_at_leisure(const Route& route, uint32_t control) const;
  size_t join_writes(const std::vector<uint32_t>& words, size_t at, uint32_t control);
  void queue_answer(const Tile& tile, Answer answer);
  void start_answer(Channel& channel);
  void finish_answer(Channel& channel);
  [[noreturn, gnu::cold]] void fail_packet(const Channel& source, const std::string& given,
                                const std::string& accepted) const;

  // tokens.cpp
  void issue_token(Channel& channel);
  const Route* route_of_token(const Channel& channel, uint32_t id);
  void finish_token(Channel& port);

  // quiescence.cpp
  bool quiescent(const Channel& channel) const;
  std::string residue_of(const Core& core) const;

  // routes.cpp
  const Route* route_of(const Channel& source);
  const Route* find_route(const Channel& source, bool packet, uint32_t id);
  std::vector<Destination> destinations_of(const Channel& source, bool packet, uint32_t id) const;
  void check_mixture(const Channel& source, const Route& route) const;
  void forget_routes();
  struct RouteTrace;
  void follow_source(RouteTrace& trace) const;
  void follow_slave(RouteTrace& trace, uint32_t tile, uint32_t slave, uint32_t latency, bool drops) const;
  void leave_tile(RouteTrace& trace, uint32_t tile, uint32_t master, uint32_t latency, bool drops) const;
  uint32_t source_slave(const Channel& source) const;
  [[noreturn, gnu::cold]] void fail_route(const RouteTrace& trace, uint32_t tile, const std::string& port,
                               const std::string& given, const std::string& accepted) const;

  // spans.cpp
  TracedPlace place(const Channel& channel) const {
    return {tiles_[channel.tile].column, tiles_[channel.tile].row, channel.mm2s, channel.number};
  }
  void trace_segment(const Channel& source, uint64_t start, uint64_t streamed, uint64_t end);
  void trace_ready(const Channel& source);
  void trace_bd(const Channel& channel);
  void trace_task(const Channel& channel);
  void end_spans(const Channel& channel);

  // cores.cpp
  void write_core_control(Core& core, uint32_t value);
  void stop_core(Core& core);
  void start_core(Core& core);
  void schedule(Core& core, uint64_t delay, std::initializer_list<Spent> spent);
  void resume_core(Core& core);
  bool perform(Core& core);
  void finish_compute(Core& core);
  Lock* lock_of_core(const Core& core, uint32_t view_id, uint32_t* id);
  [[noreturn, gnu::cold]] void refuse_lock(const Core& core, uint32_t view_id) const;
  void end_acquire(Core& core);
  void begin_compute(Core& core);
  [[noreturn, gnu::cold]] void refuse_cycles(const Core& core, uint64_t cycles) const;
  void check_bounds(const Core& core) const;
  [[noreturn, gnu::cold]] void refuse_bounds(const Core& core, const MemoryRange& range) const;

  // explain.cpp
  std::string explain_core(const Core& core) const;
  std::string explain_chain(const Channel& channel) const;
  std::string explain_lock(const Lock& lock, int32_t wanted) const;
  bool sends_to(const Channel& source, const Bd& bd, uint32_t channel) const;
  void find_lock_servers(const Tile& owner, uint32_t id, int32_t wanted, uint32_t waits, Waiting& one) const;
  void find_senders(const Channel& channel, Waiting& one) const;
  void find_receivers(const Channel& source, Waiting& one) const;
  Waiting waiting_of(const Channel& channel) const;
  Waiting waiting_of(const Core& core) const;
  std::vector<Waiting> all_waiting(const Awaited& awaited, std::vector<std::string>& lines) const;
  std::string waiting_text(const Waiting& one) const;
  // Channels and cores are numbered together, channels first.
  uint32_t core_node(uint32_t core) const { return static_cast<uint32_t>(channels_.size()) + core; }
  std::string name_of_node(uint32_t node) const;

  void build();
  Channel& add_channel(const Tile& tile, uint32_t number, bool mm2s);
  MemoryPart place_memory(const Tile& tile, uint64_t bytes);
  uint32_t tile_index(uint32_t column, uint32_t row) const { return column * rows_ + row; }
  const Tile* neighbour(const Tile& tile, int columns, int rows) const;
  SeenLock lock_seen(const Tile& own, uint32_t id) const;  // lock `id` of the tile's BDs
  void changed(uint32_t tile) { changed_[tile] = 1; }
  void changed_memory(const Channel& channel);

  DeviceDescription device_;
  Timing timing_;
  Options options_;
  uint32_t rows_ = 6;
  std::vector<Memory> memories_;  // of the memory tiles together, then of each core
  std::vector<Tile> tiles_;
  std::vector<Channel> channels_;
  std::vector<Core> cores_;
  std::vector<PrintLog> prints_;  // per core; they outlast its programs
  std::shared_ptr<OperationCache> operation_cache_;  // by their programs
  Trace trace_;
  Profile profile_;
  std::vector<uint8_t> changed_;  // per tile
  DdrRegions regions_;
  DdrServer ddr_;
  DdrServer ddr_reads_;  // which reads pass, too
  std::vector<std::unique_ptr<const Route>> routes_;      // cache: channel * 33 + (packet id or 32)
  std::vector<std::unique_ptr<const Route>> old_routes_;  // of before a switch write; may be in use
  bool routes_known_ = false;                             // the cache is not empty
  std::vector<uint32_t> arbiter_owner_;                   // tile * 8 + arbiter -> channel or kNone
  struct ArbiterRequest {
    uint64_t time;
    uint32_t channel;
  };
  std::vector<ArbiterRequest> arbiter_queue_;  // by time, then channel
  uint64_t bd_stamps_ = 0;        // handed out
  std::vector<uint32_t> spare_packet_;
  std::vector<uint32_t> packet_data_;          // of the packet that is executed, and of those that it goes on in
  // What was found last, by kind of tile and by a few bits of the offset.
  static constexpr uint32_t kNearRegisters = 9, kRecentRegisters = 16;
  mutable std::array<std::array<RecentRegisters, kRecentRegisters>, 3> recent_{};
  std::vector<AnswerPort> answer_ports_;       // per tile
  std::unique_ptr<OverlayPolicy> overlay_;
  std::unique_ptr<Executor> own_executor_;
  Executor* executor_ = nullptr;
};

uint32_t make_packet_header(uint32_t id, uint32_t type, const Tile& from);

}  // namespace onedispatch::sim
