// SPDX-License-Identifier: Apache-2.0
// What single ops of a transaction say that cannot be right. transactions/analysis/validation.py holds the
// texts; tables come from the generated headers.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "txn/decode.h"

namespace onedispatch::txn {

// What is wrong; the comment names the numbers of the finding.
enum class Check : uint8_t {
  kGeneration,     // generation
  kRows,           // rows, rows of memory tiles
  kColumns,        // columns, most of this generation (0 = not known)
  kAddress,        // address: unaligned or outside the columns
  kRow,            // row, address
  kRegister,       // first offset that is no register, address
  kLockValue,      // lock, value
  kQueueBd,        // BD, channel, first BD that it can use, last
  kReserved,       // address, bits that no field covers
  kNeverTrue,      //
  kNeverHeld,      // address, value, bits that the register has
  kNeverGranted,   // address
  kPreemption,     // level
  kTokenChannel,   // direction, channel, row, channels of that row
  kTokenColumns,   // columns, first column
  kTokenRows,      // rows, first row
  kEmptyWrite,     //
  kAddressCount,   // count, bytes of addresses
  kUnknownOpcode,  // opcode
  kUnwrittenBd,    //
  kUnaligned,      //
  kNoArgument,     // argument
  kPastArgument,   // argument, its size, offset, bytes from there on that are accessed
};
constexpr int kChecks = static_cast<int>(Check::kPastArgument) + 1;
// Of one check. More are counted only: memory stays bounded whatever the file holds.
constexpr uint64_t kMostFindings = 10'000;

// The enumerator without its k.
const char* name_of(Check check);

struct Finding {
  Check check;
  int64_t op;            // -1: the header
  uint64_t byte_offset;  // of the op, or in the header
  uint64_t untold;       // not 0: stands for so many findings of this check from this op on
  uint64_t numbers[4];
};

// Bytes of each kernel argument that DDR_PATCH may name.
using ArgumentSizes = std::map<uint64_t, uint64_t>;

// The array that a transaction is for: what its header may say, which rows have tiles, and how many BDs
// memory tiles have.
struct ArrayShape {
  uint64_t generation, rows, columns, mem_bds;
};

// Findings in the order of the ops, then those that stand for untold ones. The bytes must decode() without fault; of others, what lies
// before the fault is looked at. `sizes` may be null: arguments stay unchecked. `shape` null: one of AMD's arrays.
std::vector<Finding> validate(const uint8_t* bytes, uint64_t size, const ArgumentSizes* sizes,
                              const ArrayShape* shape = nullptr);

struct Patch {
  uint64_t op;
  int64_t bd;       // byte of the file where its shim BD was last written whole, -1 when it was not
  uint64_t extent;  // bytes from the BD's base to the end of what its first execution touches
};

// Every DDR_PATCH, in order. The same condition as for validate().
std::vector<Patch> patches(const uint8_t* bytes, uint64_t size);

}  // namespace onedispatch::txn
