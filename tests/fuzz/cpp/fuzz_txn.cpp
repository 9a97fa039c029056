// SPDX-License-Identifier: Apache-2.0
// Decoder and validator as Python calls them: any bytes are decoded, what has no fault is validated.
#include <vector>

#include "target.h"
#include "txn/validate.h"

using namespace onedispatch;

ONEDISPATCH_FUZZ_TRANSACTIONS

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void validate(const uint8_t* data, size_t size, const txn::ArgumentSizes* sizes) {
  for (const txn::Finding& finding : txn::validate(data, size, sizes)) {
    require(finding.byte_offset < size && finding.op >= -1);
    require(txn::name_of(finding.check) != nullptr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const txn::Frame counted = txn::decode(data, size, nullptr, 0);
  if (counted.fault == txn::Fault::kNoHeader) return 0;
  const uint64_t limit = txn::op_limit(data, size);
  require(limit <= size);  // what is reserved for the starts stays a small multiple of the file
  std::vector<int64_t> starts(limit);
  const txn::Frame frame = txn::decode(data, size, starts.data(), starts.size());
  require(frame.fault == counted.fault && frame.ops == counted.ops && frame.at == counted.at);
  if (frame.fault != txn::Fault::kNone) return 0;
  require(frame.ops <= limit && frame.at == size);
  const txn::ArgumentSizes sizes{{0, 4096}, {1, 1 << 20}, {3, 0}};
  validate(data, size, nullptr);
  validate(data, size, &sizes);
  for (const txn::Patch& patch : txn::patches(data, size)) {
    require(patch.op < frame.ops);
    require(patch.bd >= -1 && patch.bd < static_cast<int64_t>(size));
  }
  return 0;
}
