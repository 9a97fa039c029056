// SPDX-License-Identifier: Apache-2.0
// Control packets that a replay executes: byte 0 says how many patches of 8 bytes come first (offset,
// argument, add, plus), then packets.
#include "onedispatch/txn_format.h"
#include "sim/array/bytes.h"
#include "sim/replay/replay_simulator.h"
#include "target.h"

using namespace onedispatch;

namespace {

using sim::load32;
using sim::store32;

constexpr size_t kPatchBytes = 8;

// Sends `words` words of argument 4 out of shim channel MM2S0, then waits until all is quiet.
fuzz::Bytes sender(uint32_t words) {
  const uint32_t bd = reg::shim::DMA_BD.at(0);
  std::vector<uint32_t> all{0x06040001, 0x00000102, 4, 0};
  all.insert(all.end(), {1, bd, 44, words, 0, 0, 0, 0, 0, 0, 1u << 25});  // BLOCKWRITE of a BD
  all.insert(all.end(), {129, 24, bd + 4, 4, 0, 0});                     // DDR_PATCH
  all.insert(all.end(), {0, 0x1D214, 0});                                // WRITE: push BD 0
  all.insert(all.end(), {4, 0x1D228, 0, 0x0078003C});                    // MASKPOLL: idle
  all[3] = static_cast<uint32_t>(all.size() * 4);
  fuzz::Bytes bytes(all.size() * 4);
  for (size_t i = 0; i < all.size(); ++i) store32(&bytes[4 * i], all[i]);
  return bytes;
}

// One word of a packet: tile, place, operation, or data.
void change_packet(uint8_t* data, size_t size, fuzz::Random& random) {
  const size_t words = size / 4;
  const uint64_t start = random.below(words);
  const uint32_t ids[] = {1, 2, 8, 9, 10, 11};
  switch (random.below(4)) {
    case 0:
      store32(data + 4 * start, ids[random.below(6)] | static_cast<uint32_t>(random.below(3)) << 21);
      break;
    case 1:
      store32(data + 4 * start, (random.address() & reg::OFFSET_MASK) |
                                    static_cast<uint32_t>(random.below(4)) << 20 |
                                    static_cast<uint32_t>(random.one_in(8) ? random.below(4) : 0) << 22);
      break;
    default: store32(data + 4 * start, random.word());
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  const size_t head = size == 0 ? 0 : 1 + kPatchBytes * (data[0] & 3);
  if (size < head + 12 || random.one_in(3)) return LLVMFuzzerMutate(data, size, limit);
  for (uint64_t n = 1 + random.below(4); n > 0; --n) change_packet(data + head, size - head, random);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  ControlPackets packets;
  size_t at = 1;
  for (uint32_t i = 0; i < (data[0] & 3u) && at + kPatchBytes <= size; ++i, at += kPatchBytes)
    packets.patches.push_back(
        PacketPatch{load32(data + at), data[at + 4] % 20u, uint64_t{data[at + 6]} * 4, data[at + 5] % 2 != 0});
  packets.bytes.assign(data + at, data + size);
  const fuzz::Bytes transaction = sender(static_cast<uint32_t>(packets.bytes.size() / 4));
  fuzz::expect_typed_errors([&] {
    sim::ReplaySimulator simulator(find_device("npu2_2col"), fuzz::small_options());
    simulator.replay(transaction.data(), transaction.size(), packets);
  });
  return 0;
}
