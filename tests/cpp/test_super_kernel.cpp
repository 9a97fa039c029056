// SPDX-License-Identifier: Apache-2.0
// The super kernel's state machine under a fake lock environment, and hostile parameter blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../../cpp_ext/src/program/super_kernel.h"
#include "onedispatch/core_program.h"
#include "onedispatch/kernel_library.h"
#include "onedispatch/kernel_params.h"
#include "onedispatch/kernel_specs.h"
#include "sampled.h"

namespace onedispatch {
namespace {

namespace at = params::header;
using Kind = Action::Kind;

uint32_t fnv(const std::vector<uint32_t>& words) {
  uint32_t hash = 0x811C9DC5;
  for (const uint32_t word : words) {
    for (int i = 0; i < 4; ++i) hash = (hash ^ (word >> (8 * i) & 0xFF)) * 0x01000193;
  }
  return hash;
}

void seal(std::vector<uint32_t>& words) {
  words[params::image::words] = static_cast<uint32_t>(words.size() + 1);
  words.push_back(fnv(words));
}

struct Entry {
  uint32_t digest, types, code_bytes;
};

std::vector<uint32_t> linked(const std::vector<Entry>& entries, int64_t more_words = 0) {
  std::vector<uint32_t> words{params::kImageMagic, params::kSuperKernelId, params::kSuperKernelVersion, 0, static_cast<uint32_t>(entries.size())};
  int64_t code = params::kSuperKernelBytes / 4 + more_words;
  for (const Entry& entry : entries) {
    words.insert(words.end(), {entry.digest, entry.types});
    code += int64_t{entry.code_bytes} / 4 * std::bitset<32>(entry.types).count();
  }
  words.resize(words.size() + static_cast<size_t>(code));
  seal(words);
  return words;
}

// A kernel for all element types of its first output; reduce where there is no such kernel.
Entry entry_of(uint32_t digest) {
  const KernelPtr kernel = registry().find(digest);
  if (kernel == nullptr) return entry_of(params::reduce::digest);
  const od_kernel_spec& spec = *kernel->spec;
  uint32_t first = 0;
  while (spec.operands[first].role != OD_ROLE_OUTPUT) ++first;
  return {digest, spec.operands[first].dtypes, spec.code_bytes};
}

// The kernel that a block names, for the one element type that it names: hashing more takes time.
Entry entry_for(const std::vector<uint32_t>& block) {
  Entry entry = entry_of(block[at::kernel]);
  const od_kernel_spec& spec = *registry().find(entry.digest)->spec;
  uint32_t first = 0;
  while (spec.operands[first].role != OD_ROLE_OUTPUT) ++first;
  const uint32_t named = 1u << (block[spec.operands[first].at % block.size()] >> params::kDtypeShift & 31);
  entry.types &= (entry.types & named) != 0 ? named : ~entry.types + 1;  // or the first one that it has
  return entry;
}

const std::vector<uint32_t>& image(const Entry& entry) {
  static std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> known;
  std::vector<uint32_t>& words = known[{entry.digest, entry.types}];
  if (words.empty()) words = linked({entry});
  return words;
}

const std::vector<uint32_t>& image() { return image(entry_of(params::reduce::digest)); }

using Words = std::vector<uint32_t>;

constexpr uint32_t kAsNumbered = 0x43210;
constexpr uint32_t kPlainAccess = 1 | 1 << 16 | 1 << 24;  // a, denominator and align of 1

// A core without a simulator: actions are recorded, jobs run at once.
class FakeCore {
 public:
  explicit FakeCore(uint32_t column = 0, uint32_t row = 0) : FakeCore(column, row, image()) {}
  // `operation_cache`: shared with other cores of the array.
  FakeCore(uint32_t column, uint32_t row, const std::vector<uint32_t>& words, std::shared_ptr<OperationCache> operation_cache = nullptr)
      : memory_(kCoreMemoryBytes) {
    CoreView view{memory_.data(), column, row};
    view.operation_cache = std::move(operation_cache);
    program_ = start_program(words.data(), static_cast<uint32_t>(words.size()), view, device());
  }
  // A kernel that no registry has.
  FakeCore(const od_kernel& kernel, std::shared_ptr<OperationCache> operation_cache) : memory_(kCoreMemoryBytes) {
    CoreView view{memory_.data(), 0, 0};
    view.operation_cache = std::move(operation_cache);
    program_ = std::make_unique<SuperKernel>(view, device(), std::vector<Carried>{{KernelPtr(KernelPtr(), &kernel), ~0u, nullptr}});
  }
  static const DeviceDescription& device() {
    static const DeviceDescription npu2 = find_device("npu2");
    return npu2;
  }
  uint8_t* memory() { return memory_.data(); }
  void load(const Words& words) { std::memcpy(memory_.data(), words.data(), params::kWords * 4); }
  float f32(uint32_t address) const {
    float x;
    std::memcpy(&x, memory_.data() + address, 4);
    return x;
  }

  // One op, from waiting for the block to handing it back; "a56 b c r57": b reads the block, c is a call.
  std::string run(int most = 100000) {
    std::string trace;
    for (int i = 0; i < most; ++i) {
      const Action action = program_->resume();
      switch (action.kind) {
        case Kind::kAcquire: trace += " a" + std::to_string(action.lock); break;
        case Kind::kRelease: trace += " r" + std::to_string(action.lock); break;
        case Kind::kCompute:
          trace += action.job ? " c" : " b";
          action.job ? compute(action) : read_block(action);
          break;
        case Kind::kHalt: return trace + " halt";
      }
      if (action.kind == Kind::kRelease && action.lock == 62) return trace.substr(1);
    }
    return trace.substr(1);
  }

  std::vector<MemoryRange> reads, writes;  // of all jobs so far
  std::vector<float> results;  // first value of the out chunk after each job
  uint64_t cycles = 0, block_cycles = 0;
  int jobs = 0;

 private:
  void read_block(const Action& action) {
    EXPECT_EQ(action.reads.size(), 1u);
    EXPECT_EQ(action.reads[0].offset, 0u);
    EXPECT_LE(action.reads[0].bytes, params::kWords * 4);
    EXPECT_TRUE(action.writes.empty());
    block_cycles += action.cycles;
  }
  void compute(const Action& action) {
    for (const MemoryRange& range : action.reads) ASSERT_LE(range.offset + range.bytes, kCoreMemoryBytes);
    for (const MemoryRange& range : action.writes) ASSERT_LE(range.offset + range.bytes, kCoreMemoryBytes);
    reads.insert(reads.end(), action.reads.begin(), action.reads.end());
    writes.insert(writes.end(), action.writes.begin(), action.writes.end());
    cycles += action.cycles;
    ++jobs;
    action.job->run();
    results.push_back(f32(action.writes[0].offset));
  }
  std::vector<uint8_t> memory_;
  std::unique_ptr<CoreProgram> program_;
};

void put_port(Words& w, uint32_t first, uint32_t address, uint32_t slot, uint32_t depth, uint32_t full, uint32_t empty,
              uint32_t cadence, uint32_t bytes) {
  w[first] = 0x70000 + address;
  w[first + 1] = slot;
  w[first + 2] = depth | full << 8 | empty << 16 | cadence << 24;
  w[first + 3] = bytes;
}

void put_dim(Words& w, uint32_t d, uint32_t extent, uint32_t tile, uint32_t cc, uint32_t cr, uint32_t oc, uint32_t count) {
  const uint32_t word = at::dims + 4 * d;
  w[word] = extent;
  w[word + 1] = tile;
  w[word + 2] = cc | cr << 16 | oc << 20;
  w[word + 3] = count;
}

// Sum over K = 10 by steps of 4 of x[k][4 columns]: 3 inner steps, 2 x 3 outer tiles.
Words reduction_block() {
  namespace arg = params::reduce;
  Words w(params::kWords, 0);
  w[at::magic] = params::kMagic;
  w[at::kernel] = params::reduce::digest;
  w[at::row_mask] = 0xF;
  w[at::inner_steps] = 3;
  w[at::loop_order] = kAsNumbered;
  put_port(w, at::port_in0, 0x1000, 64, 2, 49, 48, params::cadence::step, 64);
  put_port(w, at::port_in1, 0x2000, 0, 1, 59, 58, params::cadence::once, 32);
  put_port(w, at::port_out, 0x3000, 16, 2, 54, 55, params::cadence::tile, 16);
  for (uint32_t d = 0; d < 5; ++d) put_dim(w, d, 1, 1, 0, 0, 0, 1);
  put_dim(w, 0, 2, 1, 0, 0, 1, 2);
  put_dim(w, 4, 10, 4, 0, 0, 1, 3);
  w[at::k_extent] = 10;
  w[at::k_tile] = 4;
  w[arg::dim_i] = 4;
  const auto axis = [&](uint32_t word, uint32_t extent, uint32_t chunk, uint32_t stride) {
    w[word] = extent, w[word + 1] = chunk, w[word + 2] = stride, w[word + 3] = kPlainAccess;
  };
  axis(arg::x_r, 2, 1, 16);
  axis(arg::x_k, 10, 4, 4);
  axis(arg::x_i, 10, 4, 1);
  w[arg::out] = 2u << 24;
  return w;
}

TEST(SuperKernel, WalksTilesAndStepsInOrder) {
  FakeCore core;
  core.load(reduction_block());
  for (uint32_t i = 0; i < 32; ++i) std::memcpy(core.memory() + 0x1000 + 4 * i, "\0\0\x80\x3f", 4);  // 1.0f
  std::string want = "a63 b";
  for (int tile = 0; tile < 6; ++tile) {
    for (int step = 0; step < 3; ++step) {
      want += std::string(step == 0 ? " a54" : "") + " a49" + (tile + step == 0 ? " a59" : "") + " c r48";
    }
    want += " r55";
  }
  want += " r58 r62";
  EXPECT_EQ(core.run(), want);
  EXPECT_EQ(core.jobs, 18);
  // Slots alternate per port, starting at 0.
  EXPECT_EQ(core.reads[0].offset, 0x1000u);
  EXPECT_EQ(core.writes[0].offset, 0x3000u);
  EXPECT_EQ(core.writes[3].offset, 0x3010u);
  EXPECT_EQ(core.f32(0x3000), 10.0f);  // 4 + 4 + 2: the last step's chunk is shifted back, not repeated
  EXPECT_EQ(core.f32(0x3010), 10.0f);
  // A second op starts at slot 0 again.
  core.writes.clear();
  EXPECT_EQ(core.run(), want);
  EXPECT_EQ(core.writes[0].offset, 0x3000u);
}

template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const ProgramError& error) {
    return error.what;
  }
  return "";
}

// The same with sums that wait in scratch for results of bfloat16.
Words waiting_block(uint32_t cadence, uint32_t depth, uint32_t scratch) {
  Words w = reduction_block();
  put_port(w, at::port_out, 0x3000, 8, depth, 54, 55, cadence, 8);
  w[params::reduce::out] = 2u << 24 | params::dtype::bf16 << params::kDtypeShift;
  w[at::scratch] = 0x70000 + scratch;
  return w;
}

TEST(SuperKernel, TakesTheOutSlotForTheLastStepWhereSumsWaitApart) {
  const std::string early = " a54 a49 a59 c r48 a49 c r48 a49 c r48 r55", late = " a49 a59 c r48 a49 c r48 a54 a49 c r48 r55";
  struct Form {
    uint32_t cadence, depth, scratch;
    std::string first_tile;
  };
  for (const auto& [cadence, depth, scratch, first_tile] :
       {Form{params::cadence::last, 2, 0x4000, late}, Form{params::cadence::last, 1, 0x4000, late}, Form{params::cadence::tile, 1, 0x3000, early}}) {
    const Words block = waiting_block(cadence, depth, scratch);
    FakeCore core(0, 0, image(entry_for(block)));
    core.load(block);
    for (uint32_t i = 0; i < 32; ++i) std::memcpy(core.memory() + 0x1000 + 4 * i, "\0\0\x80\x3f", 4);  // 1.0f
    const std::string trace = core.run();
    EXPECT_EQ(trace.substr(0, 5 + first_tile.size()), "a63 b" + first_tile);
    for (uint32_t i = 0; i < 4; ++i) {
      uint16_t made;
      std::memcpy(&made, core.memory() + 0x3000 + 2 * i, 2);
      EXPECT_EQ(made, 0x4120) << i;  // 10
    }
    // Before the last step the out slot stays free for others, unless sums lie there.
    EXPECT_EQ(core.writes[0].offset, scratch);
    EXPECT_EQ(core.writes.size(), cadence == params::cadence::last ? 24u : 36u);
  }
}

TEST(SuperKernel, RefusesSumsThatCannotWaitWhereTheBlockSaysSo) {
  const auto refused = [](const Words& block) {
    FakeCore core(0, 0, image(entry_for(block)));
    core.load(block);
    return message_of([&] { core.run(); });
  };
  for (const Words& block : {waiting_block(params::cadence::last, 1, 0x3000), waiting_block(params::cadence::tile, 2, 0x3000),
                             waiting_block(params::cadence::tile, 1, 0x3004), waiting_block(params::cadence::tile, 1, 0x1040)}) {
    EXPECT_NE(refused(block).find("scratch"), std::string::npos) << refused(block);
  }
  Words wide = reduction_block();  // sums of the type of the results lie in their slot as they are
  put_port(wide, at::port_out, 0x3000, 16, 2, 54, 55, params::cadence::last, 16);
  EXPECT_NE(refused(wide).find("port out cadence"), std::string::npos) << refused(wide);
}

TEST(SuperKernel, MaskedRowOnlyHandsTheBlockBack) {
  FakeCore core(0, 2);
  Words w = reduction_block();
  w[at::row_mask] = 0xB;
  core.load(w);
  EXPECT_EQ(core.run(), "a63 b r62");
  EXPECT_GT(core.block_cycles, 0u);
  w[at::row_mask] = 0xF;
  FakeCore working(0, 2);
  working.load(w);
  working.run();
  EXPECT_GT(working.block_cycles, core.block_cycles);  // it reads more of the block, and sets a kernel up
}

TEST(SuperKernel, CoresThatShareWhatTheyReadDoAsTheyWouldAlone) {
  const auto operation_cache = make_operation_cache(FakeCore::device());
  const auto ran = [](FakeCore& core, const Words& block) {
    core.load(block);
    for (uint32_t i = 0; i < 64; ++i) {
      const float value = static_cast<float>(i % 7);
      std::memcpy(core.memory() + 0x1000 + 4 * i, &value, sizeof value);
    }
    const std::string trace = core.run();
    return trace + " " + std::to_string(core.cycles) + " " + std::to_string(core.block_cycles) + " " + std::to_string(core.f32(0x3000));
  };
  Words other = reduction_block();  // one word apart: another input slot
  other[at::port_in0] += 64;
  for (const Words& block : {reduction_block(), other, reduction_block()}) {
    for (uint32_t row = 0; row < 3; ++row) {
      FakeCore sharing(0, row, image(), operation_cache), alone(0, row);
      EXPECT_EQ(ran(sharing, block), ran(alone, block));
    }
  }
  // What one image carries, the next one may not.
  const Entry whole = entry_of(params::reduce::digest);
  FakeCore lacking(0, 0, image({whole.digest, whole.types & ~1u, whole.code_bytes}), operation_cache);
  lacking.load(reduction_block());
  EXPECT_THROW(lacking.run(), ProgramError);
}

TEST(SuperKernel, KernelsFromOutsideLeaveNoFormulaBehind) {
  const auto operation_cache = make_operation_cache(FakeCore::device());
  const KernelPtr ours = registry().find(params::reduce::digest);
  od_step cost{};
  cost.op = OD_OP_NUMBER;
  od_kernel_spec spec = *ours->spec;
  spec.cost = &cost;
  spec.n_cost = 1;
  od_kernel outside = *ours;
  outside.spec = &spec;
  for (const double each : {100.0, 250.0}) {
    cost.value = each;  // another declaration, where the last one lay
    FakeCore core(outside, operation_cache);
    core.load(reduction_block());
    core.run();
    EXPECT_EQ(core.cycles, static_cast<uint64_t>(each) * 18);
  }
}

// reduction_block() with a chunk that holds both rows (ones and twos) and one step of K = 4: the
// sums tell which row a tile was of.
std::vector<float> rows_visited(uint32_t loop_order, uint32_t row_factors, uint32_t column, uint32_t row) {
  FakeCore core(column, row);
  Words w = reduction_block();
  put_port(w, at::port_in0, 0x1000, 0, 1, 49, 48, params::cadence::step, 128);
  w[at::loop_order] = loop_order;
  w[at::dims + 2] = row_factors;
  w[at::inner_steps] = 1;
  w[at::k_extent] = 4;
  w[params::reduce::x_k] = 4;
  w[params::reduce::x_r + 1] = 2;
  core.load(w);
  const float one = 1, two = 2;
  for (uint32_t i = 0; i < 32; ++i) std::memcpy(core.memory() + 0x1000 + 4 * i, i < 16 ? &one : &two, 4);
  core.run();
  return core.results;
}

TEST(SuperKernel, LoopsInTheOrderThatTheBlockGives) {
  EXPECT_EQ(rows_visited(kAsNumbered, 1 << 20, 0, 0), (std::vector<float>{4, 4, 4, 8, 8, 8}));
  EXPECT_EQ(rows_visited(0x03214, 1 << 20, 0, 0), (std::vector<float>{4, 8, 4, 8, 4, 8}));
}

TEST(SuperKernel, PlacesTilesByColumnAndRow) {
  const std::vector<float> first(6, 4), second(6, 8);
  EXPECT_EQ(rows_visited(kAsNumbered, 1, 0, 3), first);
  EXPECT_EQ(rows_visited(kAsNumbered, 1, 1, 0), second);
  EXPECT_EQ(rows_visited(kAsNumbered, 1, 7, 0), second);  // clamped
  EXPECT_EQ(rows_visited(kAsNumbered, 1 << 16, 3, 0), first);
  EXPECT_EQ(rows_visited(kAsNumbered, 1 << 16, 0, 1), second);
}

TEST(SuperKernel, ClampsTilesOfFarCores) {
  FakeCore core(7, 3);
  Words w = reduction_block();
  put_dim(w, 4, 10, 4, 1, 4, 1, 3);  // index 19 and more: clamped to tile 2 at origin 6
  core.load(w);
  EXPECT_NO_THROW(core.run());
  EXPECT_EQ(core.jobs, 18);
}

std::string refusal(uint32_t word, uint32_t value) {
  FakeCore core;
  Words w = reduction_block();
  w[word] = value;
  core.load(w);
  return message_of([&] { core.run(); });
}

TEST(SuperKernel, NamesTheWordAndItsValue) {
  const std::pair<uint32_t, uint32_t> cases[] = {
      {at::magic, 5}, {at::kernel, 99}, {at::inner_steps, 2}, {at::port_in0, 0x70100}, {params::reduce::out, 0x01000000}, {params::reduce::x, 3u << 16}, {params::reduce::out, 2u << 24 | 4}, {at::port_in0 + 1, 32},
      {at::port_in0 + 2, 0x01303100}, {at::port_in0 + 2, 0x01303102 + (63 << 8) - (49 << 8)}, {at::port_in0 + 2, 0x09303102},
      {at::port_in1 + 3, 0x10000}, {at::dims, 0}, {at::dims + 1, 3}, {at::dims + 3, 0}, {at::k_tile, 11}, {at::loop_order, 0x43211},
      {params::reduce::mode, 17}, {params::reduce::x, 0x02000000}, {params::reduce::x, 62}, {params::reduce::x_k + 3, 1 | 1 << 16},
      {params::reduce::act, static_cast<uint32_t>(std::size(od_activation))}, {params::reduce::dim_i, 5}};
  for (const auto& [word, value] : cases) {
    const std::string text = refusal(word, value);
    EXPECT_NE(text.find("word " + std::to_string(word)), std::string::npos) << word << ": " << text;
    EXPECT_NE(text.find(std::to_string(value)), std::string::npos) << word << ": " << text;
  }
  EXPECT_NE(refusal(params::reduce::x_k + 2, 5), "");  // a span beyond the chunk
  EXPECT_NE(refusal(params::reduce::x_k + 4, 1), "");  // a chunk that does not hold the step
}

TEST(SuperKernel, RefusesImagesThatAreNotItsOwn) {
  std::vector<uint8_t> memory(kCoreMemoryBytes);
  const auto refused = [&](std::vector<uint32_t> words) {
    return message_of([&] { start_program(words.data(), static_cast<uint32_t>(words.size()), {memory.data(), 0, 0}, find_device("npu1")); });
  };
  EXPECT_EQ(refused(image()), "");
  EXPECT_NE(refused({}), "");
  EXPECT_NE(refused({0, 0, 0, 0, 0}), "");
  auto words = image();
  words[4] ^= 1;
  EXPECT_NE(refused(words).find("hash"), std::string::npos);
  words = {params::kImageMagic, 1, 9, 0, 0};
  seal(words);
  EXPECT_NE(refused(words).find("version 9"), std::string::npos);
  words = {params::kImageMagic, params::kSuperKernelId, params::kSuperKernelVersion, 0, 1, 0x12345678, 1};
  seal(words);
  EXPECT_NE(refused(words).find("0x12345678"), std::string::npos);
  words[4] = 400;
  words.pop_back();
  seal(words);
  EXPECT_NE(refused(words).find("400 kernels"), std::string::npos);
  words = {params::kImageMagic, params::kSuperKernelId, params::kSuperKernelVersion, 0, 0};
  seal(words);  // the super kernel without its code
  EXPECT_NE(refused(words).find("with the code of its kernels"), std::string::npos);
}

TEST(SuperKernel, RefusesImagesThatLieOfTheirCode) {
  std::vector<uint8_t> memory(kCoreMemoryBytes);
  const auto refused = [&](const std::vector<uint32_t>& words, size_t room = SIZE_MAX) {
    const auto count = static_cast<uint32_t>(std::min(words.size(), room));
    return message_of([&] { start_program(words.data(), count, {memory.data(), 0, 0}, find_device("npu2")); });
  };
  const Entry whole = entry_of(params::softmax::digest), other = entry_of(params::reduce::digest);
  const std::vector<uint32_t> sound = linked({whole, other});
  EXPECT_EQ(refused(sound), "");
  for (const size_t room : {sound.size() - 1, sound.size() / 2, size_t{6}}) {  // truncated
    EXPECT_NE(refused(sound, room).find("program memory has " + std::to_string(room)), std::string::npos) << room;
  }
  for (const int64_t more : {-1, 1, -100}) {  // a right hash over the wrong length
    EXPECT_NE(refused(linked({whole}, more)).find("with the code of its kernels"), std::string::npos) << more;
  }
  EXPECT_NE(refused(linked({whole, other, whole})).find("twice"), std::string::npos);
  for (const uint32_t types : {0u, 0x80000000u, whole.types | 0x40000000u}) {
    const std::string text = refused(linked({{whole.digest, types, whole.code_bytes}}));
    EXPECT_NE(text.find("element types of the mask " + std::to_string(types)), std::string::npos) << text;
  }
  std::vector<uint32_t> words = sound;  // a table that would reach over the code and the hash
  words[params::image::count] = 250;
  words.pop_back();
  seal(words);
  EXPECT_NE(refused(words), "");
  for (uint32_t word = 0; word < params::image::kernels; ++word) {
    for (const uint32_t value : {0u, 1u, 7u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      words = sound;
      if (words[word] == value) continue;
      words[word] = value;
      EXPECT_NE(refused(words), "") << word << " " << value;
    }
  }
}

// cycles() of one int8 call against the published MAC/cycle of single-core kernels.
double i8_rate(const char* device, uint32_t m, uint32_t k, uint32_t n) {
  namespace arg = params::gemm;
  std::vector<uint8_t> memory(kCoreMemoryBytes);
  const auto& program_image = image(entry_of(params::gemm::digest));
  auto program = start_program(program_image.data(), static_cast<uint32_t>(program_image.size()), {memory.data(), 0, 0}, find_device(device));
  Words w(params::kWords, 0);
  w[at::magic] = params::kMagic;
  w[at::kernel] = params::gemm::digest;
  w[at::row_mask] = 1;
  w[at::inner_steps] = 1;
  w[at::loop_order] = kAsNumbered;
  put_port(w, at::port_in0, params::kWords * 4, 0, 1, 49, 48, params::cadence::step, m * k);
  put_port(w, at::port_in1, params::kWords * 4, 0, 1, 51, 50, params::cadence::step, k * n);
  put_port(w, at::port_out, params::kWords * 4, 0, 1, 52, 53, params::cadence::tile, m * n * 4);
  for (uint32_t d = 0; d < 5; ++d) put_dim(w, d, 1, 1, 0, 0, 0, 1);
  put_dim(w, 0, m, m, 0, 0, 1, 1);
  put_dim(w, 1, n, n, 0, 0, 1, 1);
  w[at::k_extent] = w[at::k_tile] = k;
  w[arg::dim_n] = 1;
  w[arg::a] = params::dtype::i8 << params::kDtypeShift;
  w[arg::b] = 1u << params::kPortShift | params::dtype::i8 << params::kDtypeShift;
  w[arg::out] = 2u << params::kPortShift | params::dtype::i32 << params::kDtypeShift;
  for (const uint32_t word : {arg::bias, arg::a_zero, arg::b_zero, arg::scale, arg::out_zero}) w[word] = params::kAbsent;
  const auto axis = [&](uint32_t word, uint32_t extent, uint32_t stride) {
    w[word] = w[word + 1] = extent, w[word + 2] = stride, w[word + 3] = kPlainAccess;
  };
  w[arg::alpha] = 0x3F800000;  // 1.0
  axis(arg::a_m, m, k);
  axis(arg::a_k, k, 1);
  axis(arg::b_k, k, n);
  axis(arg::b_n, n, 1);
  std::memcpy(memory.data(), w.data(), params::kWords * 4);
  for (;;) {
    const Action action = program->resume();
    if (action.kind == Kind::kCompute && action.job) return static_cast<double>(m * k * n) / static_cast<double>(action.cycles);
  }
}

TEST(SuperKernel, TimingMeetsThePublishedKernels) {
  EXPECT_NEAR(i8_rate("npu2", 96, 64, 96), 256.0, 1);
  EXPECT_NEAR(i8_rate("npu2", 48, 280, 48), 384.0, 1);
  EXPECT_NEAR(i8_rate("npu1", 80, 88, 96), 146.0, 1);
  EXPECT_NEAR(i8_rate("npu1", 48, 280, 48), 192.0, 1);
}

Words hostile_block(std::mt19937& random) {
  Words w = reduction_block();
  const auto& kernels = registry().all();
  w[at::kernel] = kernels[random() % kernels.size()]->spec->digest;
  if (w[at::kernel] != params::reduce::digest) w[at::inner_steps] = 1, w[at::k_extent] = random() % 2 ? 4 : 0;
  const uint32_t interesting[] = {0, 1, 2, 3, 4, 5, 7, 16, 63, 64, 65, 0xFF, 0x100, 0x8000, 0x10000, 0x10001, 0x7FFFFFFF,
                                  0x80000000, 0xFFFFFFFF, 0x01000000, 0x01000004, 0x00010001, 0x00040001};
  const bool small = random() % 4 != 0;
  for (uint32_t word = params::kArgsAt; word < params::kWords; ++word) {
    if (w[at::kernel] == params::reduce::digest && random() % 8 != 0) continue;
    w[word] = small ? random() % 5 : interesting[random() % std::size(interesting)];
    if (random() % 3 == 0) w[word] = kPlainAccess;
  }
  for (uint32_t i = 0; i < 3 && random() % 4 != 0; ++i) w[params::kArgsAt + i] = i + 2;  // dims 2, 3, 4
  if (random() % 2 == 0) w[at::port_out + 3] = 16384, w[at::port_out + 1] = 16384;
  if (random() % 2 == 0) w[at::port_in0 + 3] = 8192, w[at::port_in0 + 1] = 8192;
  const int changes = static_cast<int>(random() % 4);
  for (int i = 0; i < changes; ++i) w[random() % params::kWords] = interesting[random() % std::size(interesting)];
  return w;
}

TEST(SuperKernel, HostileBlocksAreRefusedOrHarmless) {
  std::mt19937 random(7);
  int refused = 0, ran = 0;
  for (int i = 0; i < sampled(20000); ++i) {
    const auto column = static_cast<uint32_t>(random() % 8), row = static_cast<uint32_t>(random() % 4);
    Words block(params::kWords);
    if (i % 10 == 0) {
      for (auto& word : block) word = static_cast<uint32_t>(random());
      block[at::magic] = params::kMagic;
    } else {
      block = hostile_block(random);
    }
    FakeCore core(column, row, image(entry_for(block)));
    core.load(block);
    try {
      core.run(40);
      ++ran;
    } catch (const ProgramError& error) {
      EXPECT_FALSE(error.what.empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, sampled(1000));
  EXPECT_GT(ran, sampled(50));
  RecordProperty("ran", ran);
}

}  // namespace
}  // namespace onedispatch
