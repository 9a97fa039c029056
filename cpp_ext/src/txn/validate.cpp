// SPDX-License-Identifier: Apache-2.0
#include "txn/validate.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "txn/unsatisfiable_poll.h"
#include "txn/shim_bds.h"
#include "txn/tile_registers.h"

namespace onedispatch::txn {
namespace {

constexpr const char* kNames[kChecks] = {
    "Generation",   "Rows",         "Columns",   "Address",      "Row",           "Register",      "LockValue",
    "QueueBd",      "Reserved",     "NeverTrue", "NeverHeld", "NeverGranted", "Preemption",   "TokenChannel",  "TokenColumns",  "TokenRows",
    "EmptyWrite",   "AddressCount", "UnknownOpcode", "UnwrittenBd", "Unaligned",  "NoArgument",    "PastArgument",
};

// Steps over every op; the visitor gets (index, byte, size).
template <class Visit>
void each_op(const uint8_t* bytes, uint64_t end, bool v1, Visit&& visit) {
  const Step* table = steps(v1);
  uint64_t index = 0;
  for (uint64_t at = Header::size; at < end; ++index) {
    const uint64_t size = op_size(table, bytes, at, end);
    if (size == 0) return;
    visit(index, at, size);
    at += size;
  }
}

// Whether the bytes have a header and a body that each_op() may walk.
bool walkable(const uint8_t* bytes, uint64_t size) {
  return size >= Header::size && size % 4 == 0 && read(bytes, Header::byte_size) == size;
}

// V is V0_1 or V1_0 of txn_format.h.
template <class V>
class Validator {
 public:
  Validator(const uint8_t* bytes, uint64_t size, const ArgumentSizes* sizes, const ArrayShape* shape)
      : bytes_(bytes),
        end_(size),
        sizes_(sizes),
        shape_(shape),
        rows_(shape == nullptr ? ARRAY_ROWS : shape->rows),
        columns_(read(bytes, Header::columns)) {
    for (int i = 0; i < 3; ++i) roles_[i] = roles(static_cast<Tile>(i));
  }

  std::vector<Finding> run() {
    header();
    each_op(bytes_, end_, V::version_major == 1, [this](uint64_t index, uint64_t at, uint64_t size) {
      index_ = static_cast<int64_t>(index);
      at_ = at;
      op(bytes_ + at, size);
    });
    std::copy_if(std::begin(rests_), std::end(rests_), std::back_inserter(found_),
                 [](const Finding& rest) { return rest.untold != 0; });
    return std::move(found_);
  }

 private:
  void say(Check check, std::initializer_list<uint64_t> numbers = {}) {
    Finding finding{check, index_, at_, 0, {0, 0, 0, 0}};
    uint64_t& count = counts_[static_cast<int>(check)];
    Finding& rest = rests_[static_cast<int>(check)];
    if (++count == kMostFindings + 1) rest = finding;
    if (count > kMostFindings) {
      rest.untold = count - kMostFindings;
      return;
    }
    std::copy(numbers.begin(), numbers.end(), finding.numbers);
    found_.push_back(finding);
  }

  void say_header(Check check, ByteField field, std::initializer_list<uint64_t> numbers) {
    at_ = field.offset;
    say(check, numbers);
  }

  void header() {
    const uint64_t generation = read(bytes_, Header::device_generation);
    const uint64_t rows = read(bytes_, Header::rows), mem_rows = read(bytes_, Header::mem_tile_rows);
    const Generation* known = std::find_if(std::begin(kGenerations), std::end(kGenerations),
                                           [&](const Generation& g) { return g.id == generation; });
    const bool is_known = shape_ == nullptr ? known != std::end(kGenerations) : generation == shape_->generation;
    const uint64_t most = shape_ != nullptr ? shape_->columns : is_known ? known->columns : 0;
    if (!is_known) say_header(Check::kGeneration, Header::device_generation, {generation});
    if (rows != rows_ || mem_rows != MEM_TILE_ROWS) say_header(Check::kRows, Header::rows, {rows, mem_rows});
    if (columns_ == 0 || (most != 0 && columns_ > most))
      say_header(Check::kColumns, Header::columns, {columns_, most});
  }

  void op(const uint8_t* op, uint64_t size) {
    switch (op[0]) {
      case op::WRITE: return write(read(op, V::WRITE::reg), read(op, V::WRITE::value));
      case op::BLOCKWRITE: return block_write(op, size);
      case op::MASKWRITE: return address(read(op, V::MASKWRITE::reg), 1);
      case op::MASKPOLL: return poll<typename V::MASKPOLL>(op);
      case op::MASKPOLL_BUSY: return poll<typename V::MASKPOLL_BUSY>(op);
      case op::PREEMPT: return preempt(read(op, V::PREEMPT::level));
      case op::TCT:
        return tokens(static_cast<uint32_t>(read(op, V::TCT::word)),
                      static_cast<uint32_t>(read(op, V::TCT::config)));
      case op::READ_REGS: return read_registers(op, size);
      case op::DDR_PATCH: return patch(op);
      default:
        if (op[0] >= op::CUSTOM_BEGIN && !shape(op[0], V::version_major == 1).named)
          say(Check::kUnknownOpcode, {op[0]});
    }
  }

  // Returns true if `words` words from `address` on are registers; reports the first that is not.
  void address(uint64_t address, uint64_t words) {
    if (address % 4 != 0 || address >> reg::COLUMN_SHIFT >= columns_) return say(Check::kAddress, {address});
    if (row_of(address) >= rows_) return say(Check::kRow, {row_of(address), address});
    const Tile tile = tile_of_row(row_of(address));
    const uint64_t first = offset_of(address) / 4, inside = std::min<uint64_t>(words, kTileWords - first);
    const Role* from = roles_[static_cast<int>(tile)] + first;
    const void* gap = std::memchr(from, static_cast<int>(Role::kNone), inside);
    if (gap == nullptr && inside == words) return;
    const uint64_t good = gap == nullptr ? inside : static_cast<uint64_t>(static_cast<const Role*>(gap) - from);
    say(Check::kRegister, {4 * (first + good), address});
  }

  void write(uint64_t to, uint64_t value) {
    address(to, 1);
    const Tile tile = tile_of_row(row_of(to));
    if (to >> 32 != 0 || tile == Tile::kNone) return;
    const Role role = roles_[static_cast<int>(tile)][offset_of(to) / 4];
    if (role == Role::kLock) lock_value(tile, offset_of(to), value);
    if (role == Role::kQueue) queue_word(tile, to, static_cast<uint32_t>(value));
  }

  void lock_value(Tile tile, uint32_t offset, uint64_t value) {
    const Block locks = tile == Tile::kShim ? reg::shim::LOCK_VALUE
                        : tile == Tile::kMem ? reg::mem::LOCK_VALUE
                                             : reg::core::LOCK_VALUE;
    if (value > reg::LOCK_MAX) say(Check::kLockValue, {locks.index(offset), value});
  }

  void queue_word(Tile tile, uint64_t to, uint32_t value) {
    const uint32_t offset = offset_of(to);
    if (tile == Tile::kMem) {
      constexpr Block s2mm = reg::mem::DMA_S2MM_QUEUE, mm2s = reg::mem::DMA_MM2S_QUEUE;
      const uint32_t channel = s2mm.contains(offset) ? s2mm.index(offset) : mm2s.index(offset);
      const uint32_t start = reg::mem_queue::start_bd.raw(value);
      // Even channels use the lower half of the BDs, odd ones the upper half.
      const uint32_t half = (shape_ == nullptr ? reg::mem::kBds : static_cast<uint32_t>(shape_->mem_bds)) / 2, low = channel % 2 * half;
      if (start < low || start >= low + half) say(Check::kQueueBd, {start, channel, low, low + half - 1});
    }
    const uint32_t covered = tile == Tile::kMem ? reg::mem_queue::kCovered : reg::queue::kCovered;
    if (to % 4 == 0 && (value & ~covered) != 0) say(Check::kReserved, {to, value & ~covered});
  }

  void block_write(const uint8_t* op, uint64_t size) {
    constexpr uint32_t payload = V::BLOCKWRITE::payload_at;
    const uint64_t words = (size - payload) / 4, to = read(op, V::BLOCKWRITE::reg);
    if (words == 0) return say(Check::kEmptyWrite);
    address(to, words);
    bds_.write(static_cast<uint32_t>(to), words, at_ + payload);
  }

  template <class P>
  void poll(const uint8_t* op) {
    const uint64_t from = read(op, P::reg);
    const auto value = static_cast<uint32_t>(read(op, P::value));
    address(from, 1);
    const Tile tile = from >> 32 != 0 ? Tile::kNone : tile_of_row(row_of(from));
    switch (unsatisfiable_poll(tile, offset_of(from), static_cast<uint32_t>(read(op, P::mask)), value)) {
      case UnsatisfiablePoll::kSatisfiable: return;
      case UnsatisfiablePoll::kOutsideMask: return say(Check::kNeverTrue);
      case UnsatisfiablePoll::kCannotHold:
        return say(Check::kNeverHeld, {from, value, bits_of(roles_[static_cast<int>(tile)][offset_of(from) / 4])});
      case UnsatisfiablePoll::kPastLocks: return say(Check::kNeverGranted, {from});
    }
  }

  void preempt(uint64_t level) {
    if (level > MAX_PREEMPTION) say(Check::kPreemption, {level});
  }

  void tokens(uint32_t word, uint32_t config) {
    namespace t = reg::tct;
    const uint32_t row = t::row.raw(word), column = t::column.raw(word), channel = t::channel.raw(config);
    const uint32_t rows = t::rows.raw(config), columns = t::columns.raw(config);
    constexpr uint32_t channels_of[] = {reg::shim::kChannels, reg::mem::kChannels, reg::core::kChannels, 0};
    const uint32_t channels = row < rows_ ? channels_of[static_cast<int>(tile_of_row(row))] : 0;
    if (t::direction.raw(word) > 1 || channel >= channels)
      say(Check::kTokenChannel, {t::direction.raw(word), channel, row, channels});
    if (columns == 0 || column + columns > columns_) say(Check::kTokenColumns, {columns, column});
    if (rows == 0 || row + rows > rows_) say(Check::kTokenRows, {rows, row});
  }

  void read_registers(const uint8_t* op, uint64_t size) {
    constexpr uint32_t payload = V::READ_REGS::payload_at;
    for (uint64_t at = payload; at + 8 <= size; at += 8) address(load64(op + at), 1);
    const uint64_t count = read(op, V::READ_REGS::count);
    if (count * 8 != size - payload) say(Check::kAddressCount, {count, size - payload});
  }

  void patch(const uint8_t* op) {
    const int64_t bd = bds_.find(read(op, V::DDR_PATCH::reg));
    const uint64_t argument = read(op, V::DDR_PATCH::arg_index), offset = read(op, V::DDR_PATCH::arg_offset);
    if (bd < 0) say(Check::kUnwrittenBd);
    if (offset % 4 != 0) say(Check::kUnaligned);
    if (sizes_ == nullptr) return;
    const auto known = sizes_->find(argument);
    if (known == sizes_->end()) return say(Check::kNoArgument, {argument});
    const uint64_t extent = bd < 0 ? 0 : shim_extent(bytes_ + bd);
    // Offset and extent separately, so that the sum cannot wrap.
    if (offset > known->second || extent > known->second - offset)
      say(Check::kPastArgument, {argument, known->second, offset, extent});
  }

  const uint8_t* bytes_;
  uint64_t end_;
  const ArgumentSizes* sizes_;
  const ArrayShape* shape_;
  uint64_t rows_, columns_;
  const Role* roles_[3];
  ShimBds bds_;
  int64_t index_ = -1;
  uint64_t at_ = 0;
  std::vector<Finding> found_;
  uint64_t counts_[kChecks] = {};
  Finding rests_[kChecks] = {};
};

template <class V>
std::vector<Patch> patches_of(const uint8_t* bytes, uint64_t size) {
  std::vector<Patch> all;
  ShimBds bds;
  each_op(bytes, size, V::version_major == 1, [&](uint64_t index, uint64_t at, uint64_t op_bytes) {
    const uint8_t* op = bytes + at;
    if (op[0] == op::BLOCKWRITE) {
      constexpr uint32_t payload = V::BLOCKWRITE::payload_at;
      bds.write(static_cast<uint32_t>(read(op, V::BLOCKWRITE::reg)), (op_bytes - payload) / 4, at + payload);
    } else if (op[0] == op::DDR_PATCH) {
      const int64_t bd = bds.find(read(op, V::DDR_PATCH::reg));
      all.push_back({index, bd, bd < 0 ? 0 : shim_extent(bytes + bd)});
    }
  });
  return all;
}

}  // namespace

const char* name_of(Check check) { return kNames[static_cast<int>(check)]; }

std::vector<Finding> validate(const uint8_t* bytes, uint64_t size, const ArgumentSizes* sizes,
                              const ArrayShape* shape) {
  if (!walkable(bytes, size)) return {};
  if (is_v1(bytes)) return Validator<V1_0>(bytes, size, sizes, shape).run();
  return Validator<V0_1>(bytes, size, sizes, shape).run();
}

std::vector<Patch> patches(const uint8_t* bytes, uint64_t size) {
  if (!walkable(bytes, size)) return {};
  return is_v1(bytes) ? patches_of<V1_0>(bytes, size) : patches_of<V0_1>(bytes, size);
}

}  // namespace onedispatch::txn
