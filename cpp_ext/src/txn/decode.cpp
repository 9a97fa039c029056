// SPDX-License-Identifier: Apache-2.0
#include "txn/decode.h"

#include <algorithm>
#include <array>

namespace onedispatch::txn {
namespace {

using Table = std::array<Step, 256>;

constexpr uint32_t kLargest = 0xFFFFFFFCu;

Table make_table(bool v1) {
  Table table;
  for (uint32_t code = 0; code < table.size(); ++code) {
    const OpShape known = shape(static_cast<uint8_t>(code), v1);
    if (!known.known) continue;
    const uint32_t most = known.max_size == 0 ? kLargest : known.max_size;
    table[code] = {known.min_size, most, known.size_at};
  }
  return table;
}

// What an op that cannot be says of its size; what its opcode needs when it says nothing.
uint64_t stated_size(const Step& step, const uint8_t* op, uint64_t left) {
  return step.size_at != 0 && step.size_at + 4 <= left ? load32(op + step.size_at) : step.least;
}

}  // namespace

bool known_version(const uint8_t* bytes) {
  const uint64_t major = read(bytes, Header::version_major), minor = read(bytes, Header::version_minor);
  return (major == V0_1::version_major && minor == V0_1::version_minor) ||
         (major == V1_0::version_major && minor == V1_0::version_minor);
}

const Step* steps(bool v1) {
  static const Table tables[2] = {make_table(false), make_table(true)};
  return tables[v1 ? 1 : 0].data();
}

Frame walk(const uint8_t* bytes, uint64_t end, bool v1, int64_t* starts, uint64_t room) {
  const Step* table = steps(v1);
  Frame frame;
  frame.at = Header::size;
  while (frame.at < end) {
    const uint64_t size = op_size(table, bytes, frame.at, end);
    if (size == 0) {
      const Step& step = table[bytes[frame.at]];
      frame.fault = step.most == 0 ? Fault::kOpcode : Fault::kOpSize;
      frame.op_size = stated_size(step, bytes + frame.at, end - frame.at);
      return frame;
    }
    if (frame.ops < room) starts[frame.ops] = static_cast<int64_t>(frame.at);
    ++frame.ops;
    frame.at += size;
  }
  return frame;
}

Frame decode(const uint8_t* bytes, uint64_t size, int64_t* starts, uint64_t room) {
  Frame frame;
  if (size < Header::size)
    frame.fault = Fault::kNoHeader;
  else if (!known_version(bytes))
    frame.fault = Fault::kVersion;
  else if (read(bytes, Header::byte_size) != size)
    frame.fault = Fault::kByteSize;
  else if (size % 4 != 0)
    frame.fault = Fault::kAlignment;
  if (frame.fault != Fault::kNone) return frame;
  frame = walk(bytes, size, is_v1(bytes), starts, room);
  if (frame.fault == Fault::kNone && frame.ops != read(bytes, Header::op_count)) frame.fault = Fault::kOpCount;
  return frame;
}

uint64_t op_limit(const uint8_t* bytes, uint64_t size) {
  if (size < Header::size) return 0;
  return std::min<uint64_t>(read(bytes, Header::op_count), (size - Header::size) / 4);
}

}  // namespace onedispatch::txn
