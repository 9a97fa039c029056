// SPDX-License-Identifier: Apache-2.0
// The container of overlays, up to a hardware context that loads PDI 0. Device names are looked up on
// the way. Size and CRC are put right, or nothing would get past them.
#include "onedispatch/xrt.h"
#include "sim/array/bytes.h"
#include "target.h"

using namespace onedispatch;

namespace {

constexpr size_t kSizeAt = 12, kCrcAt = 72, kHead = 80;

uint32_t crc32(const uint8_t* data, size_t size) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

void load(const uint8_t* data, size_t size) {
  fuzz::expect_typed_errors([&] {
    const xrt::xclbin binary = xrt::xclbin::from_bytes(data, size);
    const std::string name = binary.device_name();
    xrt::device device(name.find("col") == std::string::npos ? "npu2_1col" : name);
    device.set_threads(1);
    device.set_event_limit(20'000);
    const xrt::hw_context context(device, device.register_xclbin(binary));
    for (const std::string& kernel : binary.kernels()) xrt::kernel(context, kernel);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  load(data, size);
  if (size < kHead) return 0;
  fuzz::Bytes whole(data, data + size);
  sim::store32(&whole[kSizeAt], static_cast<uint32_t>(size));
  sim::store32(&whole[kCrcAt], crc32(whole.data() + kHead, size - kHead));
  load(whole.data(), whole.size());
  return 0;
}
