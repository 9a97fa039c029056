// SPDX-License-Identifier: Apache-2.0
// A transaction as the controller runs it: decoded by src/txn, strict about the device.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/array/bytes.h"
#include "onedispatch/device_description.h"
#include "onedispatch/errors.h"
#include "txn/decode.h"

namespace onedispatch::sim {

struct Op {
  uint32_t offset;  // from the first byte of the transaction
  uint32_t size;
  uint8_t code;
};

// A field of an operation in whichever version the transaction has.
#define OD_FIELD(op, name, item) transaction_->field(op, txn::V0_1::name::item, txn::V1_0::name::item)

class Transaction {
 public:
  // Checks header and framing of every operation; what follows the transaction is ignored. Keeps a
  // copy of the bytes. Throws TransactionError.
  enum class Unnamed : uint8_t { kRefuse, kKeep };  // custom opcodes without public meaning
  Transaction(const uint8_t* bytes, size_t size, const DeviceDescription& device,
              Unnamed unnamed = Unnamed::kRefuse);

  const std::vector<Op>& ops() const { return ops_; }
  bool is_v1() const { return v1_; }
  const uint8_t* at(const Op& op) const { return bytes_.data() + op.offset; }
  uint64_t field(const Op& op, ByteField v0, ByteField v1) const {
    return txn::read(at(op), v1_ ? v1 : v0);
  }
  static std::string name_of(uint8_t code);

 private:
  void check_header(const DeviceDescription& device, size_t available);
  // Ops from their starts; refuses or keeps opcodes that one can only step over.
  void add_ops(const std::vector<int64_t>& starts, uint64_t count, uint64_t end, Unnamed unnamed);
  [[noreturn]] void refuse(const txn::Frame& frame, uint64_t end) const;

  std::vector<uint8_t> bytes_;
  std::vector<Op> ops_;
  bool v1_ = false;
};

}  // namespace onedispatch::sim
