// SPDX-License-Identifier: Apache-2.0
#include "sim/control/transaction.h"
#include "onedispatch/text.h"

#include <algorithm>

namespace onedispatch::sim {
namespace {

std::string place(const OpRef& op) {
  return "operation " + std::to_string(op.index) + " at byte " + std::to_string(op.byte_offset);
}

[[noreturn]] void bad_header(const std::string& given, const std::string& accepted, uint32_t offset = 0) {
  throw TransactionError({"transaction header", given, accepted,
                          "Check that the buffer holds a whole transaction for this device."},
                         OpRef{-1, offset});
}

[[noreturn]] void bad_opcode(uint8_t code, const OpRef& op) {
  const bool custom = code >= txn::op::CUSTOM_BEGIN;
  throw TransactionError(
      {place(op), "opcode " + std::to_string(code) + (custom ? ", which has no public meaning" : ""),
       "the opcodes of transactions/format/spec.py",
       custom ? "Leave it out; a replay skips it." : "Regenerate the transaction."},
      op);
}

}  // namespace

std::string Transaction::name_of(uint8_t code) { return txn::shape_v0_1(code).name; }

void Transaction::check_header(const DeviceDescription& device, size_t available) {
  using H = txn::Header;
  if (!txn::known_version(bytes_.data()))
    bad_header("version " + std::to_string(txn::read(bytes_.data(), H::version_major)) + "." +
                   std::to_string(txn::read(bytes_.data(), H::version_minor)),
               "0.1 or 1.0");
  v1_ = txn::is_v1(bytes_.data());
  const uint64_t generation = txn::read(bytes_.data(), H::device_generation);
  if (generation != device.device_generation)
    bad_header("device generation " + std::to_string(generation),
               std::to_string(device.device_generation) + " (" + device.name + ")",
               H::device_generation.offset);
  const uint64_t columns = txn::read(bytes_.data(), H::columns);
  if (columns == 0 || columns > device.columns)
    bad_header(counted(columns, "column"),
               span(1, device.columns) + " of " + device.name, H::columns.offset);
  // Partitions are of columns alone. All of AMD's files have 6 rows, one of memory tiles.
  const uint64_t rows = txn::read(bytes_.data(), H::rows), mem_rows = txn::read(bytes_.data(), H::mem_tile_rows);
  const uint64_t has = reg::FIRST_CORE_ROW + device.core_rows;
  if (rows != has || mem_rows != txn::MEM_TILE_ROWS)
    bad_header(counted(rows, "row") + ", " + std::to_string(mem_rows) + " of memory tiles",
               std::to_string(has) + " with " + std::to_string(txn::MEM_TILE_ROWS) + ", as " + device.name + " has",
               H::rows.offset);
  const uint64_t size = txn::read(bytes_.data(), H::byte_size);
  if (size < H::size || size > available || size % 4 != 0)
    bad_header("a size of " + counted(size, "byte") + " in a buffer of " + std::to_string(available),
               "a multiple of 4, at least " + std::to_string(H::size) + " and within the buffer",
               H::byte_size.offset);
}

Transaction::Transaction(const uint8_t* bytes, size_t size, const DeviceDescription& device, Unnamed unnamed) {
  if (size < txn::Header::size)
    bad_header(counted(size, "byte"), "at least " + counted(txn::Header::size, "byte"));
  bytes_.assign(bytes, bytes + size);
  check_header(device, size);
  const uint64_t end = txn::read(bytes_.data(), txn::Header::byte_size);
  const uint64_t count = txn::read(bytes_.data(), txn::Header::op_count);
  std::vector<int64_t> starts(txn::op_limit(bytes_.data(), end));
  const txn::Frame frame = txn::walk(bytes_.data(), end, v1_, starts.data(), starts.size());
  add_ops(starts, std::min<uint64_t>(frame.ops, starts.size()), frame.at, unnamed);
  if (frame.fault != txn::Fault::kNone) refuse(frame, end);
  if (frame.ops != count)
    bad_header(counted(count, "operation") + " announced, " + std::to_string(frame.ops) + " present",
               "equal numbers", txn::Header::op_count.offset);
}

void Transaction::add_ops(const std::vector<int64_t>& starts, uint64_t count, uint64_t end, Unnamed unnamed) {
  ops_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint32_t>(starts[i]);
    const auto next = static_cast<uint32_t>(i + 1 < count ? static_cast<uint64_t>(starts[i + 1]) : end);
    const uint8_t code = bytes_[at];
    if (unnamed == Unnamed::kRefuse && !txn::shape(code, v1_).named)
      bad_opcode(code, OpRef{static_cast<int64_t>(i), at});
    ops_.push_back(Op{at, next - at, code});
  }
}

void Transaction::refuse(const txn::Frame& frame, uint64_t end) const {
  const OpRef op{static_cast<int64_t>(frame.ops), static_cast<uint32_t>(frame.at)};
  const uint8_t code = bytes_[frame.at];
  if (frame.fault == txn::Fault::kOpcode) bad_opcode(code, op);
  throw TransactionError({place(op) + " (" + name_of(code) + ")",
                          counted(frame.op_size, "byte") + " with " + std::to_string(end - frame.at) + " left",
                          "an operation that lies within the transaction and has a legal size",
                          "The file is cut off or damaged."},
                         op);
}

}  // namespace onedispatch::sim
