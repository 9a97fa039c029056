// SPDX-License-Identifier: Apache-2.0
// Header and framing of a transaction, and every field of every operation.
#include "onedispatch/txn_format.h"
#include "sim/control/transaction.h"
#include "target.h"

using namespace onedispatch;

ONEDISPATCH_FUZZ_TRANSACTIONS

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const DeviceDescription devices[] = {find_device("npu1"), find_device("npu2")};
  const DeviceDescription& device = devices[size > 2 && data[2] == devices[1].device_generation];
  fuzz::expect_typed_errors([&] {
    const sim::Transaction transaction(data, size, device);
    uint64_t sum = 0, end = txn::Header::size;
    for (const sim::Op& op : transaction.ops()) {
      if (op.offset != end) __builtin_trap();  // operations lie side by side
      end = uint64_t{op.offset} + op.size;
      const auto shape = transaction.is_v1() ? txn::shape_v1_0(op.code) : txn::shape_v0_1(op.code);
      const uint32_t fixed = shape.payload_at != 0 ? shape.payload_at : shape.min_size;
      for (uint32_t at = 0; at + 4 <= fixed; at += 4)
        sum += transaction.field(op, ByteField{at, 4}, ByteField{at, 4});
      if (shape.payload_at != 0)
        for (uint32_t at = shape.payload_at; at < op.size; ++at) sum += transaction.at(op)[at];
    }
    if (end > size || (transaction.ops().empty() && sum != 0)) __builtin_trap();
  });
  return 0;
}
