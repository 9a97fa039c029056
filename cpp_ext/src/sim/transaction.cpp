// SPDX-License-Identifier: Apache-2.0
#include "transaction.h"

namespace onedispatch::sim {
namespace {

uint64_t header_field(const std::vector<uint8_t>& bytes, ByteField field) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < field.width; ++i) value |= uint64_t{bytes[field.offset + i]} << (8 * i);
  return value;
}

[[noreturn]] void bad_header(const std::string& given, const std::string& accepted, uint32_t offset = 0) {
  throw TransactionError({"transaction header", given, accepted,
                          "Check that the buffer holds a whole transaction for this device."},
                         OpRef{-1, offset});
}

}  // namespace

std::string Transaction::name_of(uint8_t code) { return txn::shape_v0_1(code).name; }

void Transaction::check_header(const DeviceDescription& device, size_t available) {
  using H = txn::Header;
  const uint64_t major = header_field(bytes_, H::version_major),
                 minor = header_field(bytes_, H::version_minor);
  if (major + minor != 1)
    bad_header("version " + std::to_string(major) + "." + std::to_string(minor), "0.1 or 1.0");
  v1_ = major == 1;
  const uint64_t generation = header_field(bytes_, H::device_generation);
  if (generation != device.device_generation)
    bad_header("device generation " + std::to_string(generation),
               std::to_string(device.device_generation) + " (" + device.name + ")",
               H::device_generation.offset);
  const uint64_t columns = header_field(bytes_, H::columns);
  if (columns == 0 || columns > device.columns)
    bad_header(std::to_string(columns) + " columns",
               "1.." + std::to_string(device.columns) + " of " + device.name, H::columns.offset);
  const uint64_t size = header_field(bytes_, H::byte_size);
  if (size < H::size || size > available || size % 4 != 0)
    bad_header("a size of " + std::to_string(size) + " bytes in a buffer of " + std::to_string(available),
               "a multiple of 4, at least " + std::to_string(H::size) + " and within the buffer",
               H::byte_size.offset);
}

Transaction::Transaction(const uint8_t* bytes, size_t size, const DeviceDescription& device) {
  if (size < txn::Header::size)
    bad_header(std::to_string(size) + " bytes", "at least " + std::to_string(txn::Header::size) + " bytes");
  bytes_.assign(bytes, bytes + size);
  check_header(device, size);
  const uint32_t end = static_cast<uint32_t>(header_field(bytes_, txn::Header::byte_size));
  const uint64_t count = header_field(bytes_, txn::Header::op_count);
  uint32_t offset = txn::Header::size;
  while (offset < end) {
    ops_.push_back(next_op(offset, end, ops_.size()));
    offset += ops_.back().size;
  }
  if (ops_.size() != count)
    bad_header(std::to_string(count) + " operations announced, " + std::to_string(ops_.size()) + " present",
               "equal numbers", txn::Header::op_count.offset);
}

Op Transaction::next_op(uint32_t offset, uint32_t end, size_t index) const {
  const uint8_t code = bytes_[offset];
  const auto shape = v1_ ? txn::shape_v1_0(code) : txn::shape_v0_1(code);
  const OpRef op{static_cast<int64_t>(index), offset};
  const std::string where = "operation " + std::to_string(index) + " at byte " + std::to_string(offset);
  if (!shape.known || std::string(shape.name) == "CUSTOM")
    throw TransactionError({where, "opcode " + std::to_string(code), "the opcodes of transactions/spec.py",
                            "Regenerate the transaction."},
                           op);
  const uint32_t left = end - offset;
  const auto too_short = [&](uint64_t size) {
    throw TransactionError({where + " (" + shape.name + ")",
                            std::to_string(size) + " bytes with " + std::to_string(left) + " left",
                            "an operation that lies within the transaction and has a legal size",
                            "The file is cut off or damaged."},
                           op);
  };
  if (left < shape.min_size) too_short(shape.min_size);
  uint32_t size = shape.size;
  if (shape.size_at != 0) {
    const uint32_t stated = load32(bytes_.data() + offset + shape.size_at);
    if (size != 0 && stated != size) too_short(stated);
    size = stated;
    if (size < shape.min_size || size % 4 != 0 || (shape.max_size != 0 && size > shape.max_size))
      too_short(size);
  }
  if (size == 0 || size > left) too_short(size);
  return Op{offset, size, code};
}

}  // namespace onedispatch::sim
