// SPDX-License-Identifier: Apache-2.0
// Walks a transaction binary, both versions. Layouts come from the generated txn_format.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"
#include "onedispatch/device_description.h"
#include "onedispatch/errors.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

struct Op {
  uint32_t offset;  // from the first byte of the transaction
  uint32_t size;
  uint8_t code;
};

class Transaction {
 public:
  // Checks header and framing of every operation. Keeps a copy of the bytes.
  // Throws TransactionError.
  Transaction(const uint8_t* bytes, size_t size, const DeviceDescription& device);

  const std::vector<Op>& ops() const { return ops_; }
  bool is_v1() const { return v1_; }
  const uint8_t* at(const Op& op) const { return bytes_.data() + op.offset; }
  uint64_t field(const Op& op, ByteField v0, ByteField v1) const {
    const ByteField& f = v1_ ? v1 : v0;
    uint64_t value = 0;
    for (uint32_t i = 0; i < f.width; ++i) value |= uint64_t{at(op)[f.offset + i]} << (8 * i);
    return value;
  }
  static std::string name_of(uint8_t code);

 private:
  void check_header(const DeviceDescription& device, size_t available);
  Op next_op(uint32_t offset, uint32_t end, size_t index) const;

  std::vector<uint8_t> bytes_;
  std::vector<Op> ops_;
  bool v1_ = false;
};

}  // namespace onedispatch::sim
