// SPDX-License-Identifier: Apache-2.0
// What the host API's tests share: a container without routes, and a host program around it.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "onedispatch/xrt.h"
#include "test_sim_support.h"

namespace onedispatch::xrt::testing {

using sim::store32;
using sim::testing::Builder;

inline uint32_t crc32(const std::vector<uint8_t>& data, size_t from) {
  uint32_t crc = ~0u;
  for (size_t i = from; i < data.size(); ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

// A container with one kernel and one PDI, as transactions/format/xclbin.py lays it out.
inline std::vector<uint8_t> container(const std::string& device = "npu2_2col") {
  const std::vector<uint8_t> pdi = Builder().bytes();
  std::vector<uint8_t> data(80 + 64 + 16, 0);
  const std::string magic = "ODXCLBIN", kernel = "MLIR_AIE";
  std::copy(magic.begin(), magic.end(), data.begin());
  std::copy(device.begin(), device.end(), data.begin() + 16);
  std::copy(kernel.begin(), kernel.end(), data.begin() + 80);
  store32(&data[8], 1);
  store32(&data[12], static_cast<uint32_t>(data.size() + pdi.size()));
  data[48] = 0xAB;
  store32(&data[64], 1);
  store32(&data[68], 1);
  store32(&data[148], static_cast<uint32_t>(pdi.size()));
  store32(&data[152], static_cast<uint32_t>(data.size()));
  data.insert(data.end(), pdi.begin(), pdi.end());
  store32(&data[72], crc32(data, 80));
  return data;
}

inline xclbin make_xclbin(const std::string& device = "npu2_2col") {
  const std::vector<uint8_t> data = container(device);
  return xclbin::from_bytes(data.data(), data.size());
}

struct Host {
  device npu{"npu2"};
  xclbin binary = make_xclbin();
  hw_context context{npu, npu.register_xclbin(binary)};
  kernel super{context, "MLIR_AIE"};

  bo buffer(const std::vector<uint8_t>& bytes) {
    bo made(npu, bytes.size());
    made.write(bytes.data(), bytes.size(), 0);
    return made;
  }
  run call(const bo& instructions, uint64_t count) {
    run one(super);
    one.set_arg(0, uint64_t{3});
    one.set_arg(1, instructions);
    one.set_arg(2, count);
    one.start();
    return one;
  }
};

// A call with two buffers, ready to start.
inline run prepared(const kernel& of, const bo& instructions, const bo& from, const bo& to) {
  run made(of);
  made.set_arg(0, uint64_t{3});
  made.set_arg(1, instructions);
  made.set_arg(2, uint64_t{instructions.size()});
  made.set_arg(3, from);
  made.set_arg(4, to);
  return made;
}

// Pushes of the BDs that copy_words() left.
inline void push_copies(Builder& b) {
  using namespace sim::testing;  // NOLINT: registers and tasks
  b.write(kMemOut, task(24)).write(kMemIn, task(0));
  b.write(kShimWrite, task(1, 1, true)).write(kShimRead, task(0));
  b.token(0, 0, false, 0);
}
inline std::vector<uint8_t> push_again() {
  Builder b;
  push_copies(b);
  return b.bytes();
}

// Argument 0 through the memory tile into argument 1.
inline std::vector<uint8_t> copy_words(uint32_t words) {
  using namespace sim::testing;  // NOLINT: routes and descriptors
  Builder b;
  lay_feed_and_drain(b, 0);
  lay_tokens(b, 0);
  const BdList take = {
      {bd::mem::acquire_enable, 1}, {bd::mem::acquire_lock, 65}, {bd::mem::acquire_value, -1}};
  for (const uint32_t i : {0u, 1u}) b.block(shim_bd_at(i), shim_bd({{bd::shim::length, words}})).patch(0, i, i, 0);
  b.block(mem_bd_at(0), mem_bd(0, words, {{bd::mem::release_lock, 65}, {bd::mem::release_value, 1}}));
  b.block(mem_bd_at(24), mem_bd(0, words, take));
  push_copies(b);
  return b.bytes();
}

}  // namespace onedispatch::xrt::testing
