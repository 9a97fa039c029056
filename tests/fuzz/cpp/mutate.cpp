// SPDX-License-Identifier: Apache-2.0
#include "mutate.h"

#include <algorithm>

#include "onedispatch/txn_format.h"
#include "sim/array/bytes.h"

namespace onedispatch::fuzz {
namespace {

using sim::load32;
using sim::store32;

// Memories, descriptors, queues, locks, switches and controls of all kinds of tiles.
constexpr uint32_t kPlaces[] = {0x0,     0x4880,  0x14000, 0x1D000, 0x1D200, 0x1D204, 0x1D214, 0x1DE00,
                                0x1F000, 0x20000, 0x32000, 0x34000, 0x3F000, 0x3F100, 0x3F200, 0x40000,
                                0x60000, 0xA0000, 0xA0600, 0xA0604, 0xA0630, 0xB0000, 0xB0100, 0xC0000,
                                0xD0000, 0xFFF00};
constexpr uint8_t kCodes[] = {0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 128, 129, 130, 131, 132, 133, 200, 201};

txn::OpShape shape_of(uint8_t code, bool v1) { return v1 ? txn::shape_v1_0(code) : txn::shape_v0_1(code); }

// Bytes of the operation at `data`, 0 where it cannot be.
size_t size_of_op(const uint8_t* data, size_t left, bool v1) {
  const auto shape = shape_of(data[0], v1);
  if (!shape.known || left < shape.min_size) return 0;
  size_t size = shape.size;
  if (shape.size_at != 0) size = load32(data + shape.size_at);
  return size >= std::max(shape.min_size, 4u) && size % 4 == 0 && size <= left ? size : 0;
}

uint32_t address_at(bool v1) { return v1 ? 4 : 8; }

bool has_address(uint8_t code) { return code == 0 || code == 1 || code == 3 || code == 4 || code == 7; }

Bytes fresh_op(bool v1, Random& random) {
  const uint8_t code = kCodes[random.below(sizeof(kCodes))];
  const auto shape = shape_of(code, v1);
  Bytes op(shape.size != 0 ? shape.size : shape.min_size);
  for (size_t at = 0; at + 4 <= op.size(); at += 4)
    if (!random.one_in(3)) store32(&op[at], random.word());
  op[0] = code;
  if (shape.payload_at != 0) op.resize(op.size() + 4 * random.below(18));
  for (size_t at = shape.payload_at; shape.payload_at != 0 && at + 4 <= op.size(); at += 4)
    store32(&op[at], random.word());
  if (has_address(code)) store32(&op[address_at(v1)], random.address());
  if (shape.size_at != 0) store32(&op[shape.size_at], static_cast<uint32_t>(op.size()));
  return op;
}

// Another word somewhere in the op, or other bytes; its size stays in order.
void change_op(Bytes& op, bool v1, Random& random) {
  const auto shape = shape_of(op[0], v1);
  const uint8_t code = op[0];
  const uint64_t how = random.below(5);
  if (how == 0 && has_address(code)) {
    store32(&op[address_at(v1)], random.address());
  } else if (how == 1 && shape.payload_at != 0) {
    op.resize(shape.payload_at + 4 * random.below(20));
  } else if (how == 2) {
    op[random.below(op.size())] ^= static_cast<uint8_t>(1u << random.below(8));
  } else if (how == 3 && op.size() > 4) {
    const size_t at = 4 * random.below(op.size() / 4);
    LLVMFuzzerMutate(&op[at], std::min<size_t>(op.size() - at, 8), std::min<size_t>(op.size() - at, 8));
  } else {
    store32(&op[4 * random.below(op.size() / 4)], random.word());
  }
  op[0] = code;
  if (shape.size_at != 0) store32(&op[shape.size_at], static_cast<uint32_t>(op.size()));
}

void change(Pieces& pieces, Random& random) {
  auto& ops = pieces.ops;
  const size_t count = ops.size();
  const uint64_t how = random.below(10);
  if (count == 0 || how == 0) {
    const auto at = static_cast<std::ptrdiff_t>(random.below(count + 1));
    ops.insert(ops.begin() + at, fresh_op(pieces.v1, random));
    return;
  }
  const auto first = static_cast<std::ptrdiff_t>(random.below(count));
  const auto run = static_cast<std::ptrdiff_t>(
      std::min<uint64_t>(count - static_cast<size_t>(first), 1 + random.below(random.one_in(4) ? count : 3)));
  if (how == 1) {
    ops.erase(ops.begin() + first, ops.begin() + first + run);
  } else if (how == 2) {
    const std::vector<Bytes> copy(ops.begin() + first, ops.begin() + first + run);
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(random.below(count + 1)), copy.begin(), copy.end());
  } else if (how == 3) {
    std::swap(ops[static_cast<size_t>(first)], ops[random.below(count)]);
  } else if (random.one_in(40)) {
    pieces.header[2 + random.below(4)] = static_cast<uint8_t>(random.below(10));
  } else {
    change_op(ops[static_cast<size_t>(first)], pieces.v1, random);
  }
}

}  // namespace

uint32_t Random::word() {
  switch (below(6)) {
    case 0: return static_cast<uint32_t>(below(8));
    case 1: return 1u << below(32);
    case 2: return (1u << below(32)) - 1;
    case 3: return ~0u - static_cast<uint32_t>(below(4));
    case 4: return static_cast<uint32_t>(below(64)) << below(32);
    default: return static_cast<uint32_t>(below(uint64_t{1} << 32));
  }
}

uint32_t Random::address() {
  const auto column = static_cast<uint32_t>(one_in(16) ? below(128) : below(4));
  const auto row = static_cast<uint32_t>(one_in(16) ? below(32) : below(6));
  const uint32_t near = kPlaces[below(sizeof(kPlaces) / sizeof(kPlaces[0]))];
  const auto offset = static_cast<uint32_t>(one_in(16) ? below(1u << 20) : near + 4 * below(40));
  return column << reg::COLUMN_SHIFT | row << reg::ROW_SHIFT | (offset & reg::OFFSET_MASK);
}

bool Pieces::split(const uint8_t* data, size_t size) {
  if (size < txn::Header::size || data[0] + data[1] != 1) return false;
  header.assign(data, data + txn::Header::size);
  v1 = data[0] == 1;
  for (size_t at = txn::Header::size; at < size;) {
    const size_t bytes = size - at < 4 ? 0 : size_of_op(data + at, size - at, v1);
    if (bytes == 0) return false;
    ops.emplace_back(data + at, data + at + bytes);
    at += bytes;
  }
  return true;
}

Bytes Pieces::joined(size_t limit) const {
  Bytes all = header;
  uint32_t count = 0;
  for (const Bytes& op : ops) {
    if (all.size() + op.size() > limit) break;
    all.insert(all.end(), op.begin(), op.end());
    ++count;
  }
  store32(&all[txn::Header::op_count.offset], count);
  store32(&all[txn::Header::byte_size.offset], static_cast<uint32_t>(all.size()));
  return all;
}

Bytes mutated(const Bytes& transaction, size_t limit, Random& random) {
  Pieces pieces;
  if (!random.one_in(12) && limit > txn::Header::size && pieces.split(transaction.data(), transaction.size())) {
    for (uint64_t n = 1 + random.below(3); n > 0; --n) change(pieces, random);
    return pieces.joined(limit);
  }
  Bytes bytes = transaction;
  bytes.resize(std::max<size_t>(limit, transaction.size()));
  bytes.resize(LLVMFuzzerMutate(bytes.data(), transaction.size(), limit));
  return bytes;
}

Bytes crossed(const Bytes& one, const Bytes& two, size_t limit, Random& random) {
  Pieces a, b;
  if (limit <= txn::Header::size || !a.split(one.data(), one.size()) || !b.split(two.data(), two.size()) ||
      a.v1 != b.v1)
    return one;
  a.ops.resize(random.below(a.ops.size() + 1));
  const auto from = static_cast<std::ptrdiff_t>(random.below(b.ops.size() + 1));
  a.ops.insert(a.ops.end(), b.ops.begin() + from, b.ops.end());
  return a.joined(limit);
}

}  // namespace onedispatch::fuzz
