// SPDX-License-Identifier: Apache-2.0
// Reads the container that transactions/format/xclbin.py writes; its docstring gives the layout.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "sim/array/bytes.h"
#include "state.h"
#include "onedispatch/text.h"

namespace onedispatch::xrt {
namespace {

namespace layout = onedispatch::xclbin;

constexpr uintmax_t kMostBytes = uintmax_t{1} << 28;  // of a container; ours have some 100 KB
constexpr size_t kMagicBytes = sizeof layout::MAGIC - 1;

// Eight bytes at a time: table k is of a byte with k zeros behind it.
uint32_t crc32(const uint8_t* data, size_t size) {
  static const std::array<std::array<uint32_t, 256>, 8> tables = [] {
    std::array<std::array<uint32_t, 256>, 8> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) ? 0xEDB88320u ^ (value >> 1) : value >> 1;
      made[0][i] = value;
    }
    for (size_t k = 1; k < made.size(); ++k)
      for (size_t i = 0; i < 256; ++i) made[k][i] = made[0][made[k - 1][i] & 0xFF] ^ (made[k - 1][i] >> 8);
    return made;
  }();
  uint32_t crc = ~0u;
  for (; size >= 8; size -= 8, data += 8) {
    const uint32_t low = sim::load32(data) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 4; ++k) crc ^= tables[7 - k][(low >> (8 * k)) & 0xFF] ^ tables[3 - k][data[4 + k]];
  }
  for (; size > 0; --size, ++data) crc = tables[0][(crc ^ *data) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

[[noreturn]] void refuse(const std::string& given, const std::string& accepted) {
  throw ContainerError(
      {"xclbin", given, accepted, "Write the file again with onedispatch.transactions.format.xclbin."});
}

std::string padded_text(const uint8_t* data, size_t size) {
  size_t length = 0;
  while (length < size && data[length] != 0) ++length;
  return std::string(reinterpret_cast<const char*>(data), length);
}

void read_overlays(xclbin::Content& content, const uint8_t* data, size_t size, size_t at, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i, at += layout::PDI_ENTRY_BYTES) {
    const uint32_t id = sim::load32(data + at);
    const uint64_t bytes = sim::load32(data + at + 4);
    const uint64_t offset = sim::load64(data + at + 8);
    if (offset > size || bytes > size - offset)
      refuse("PDI " + std::to_string(id) + " at " + std::to_string(offset) + " with " +
                 counted(bytes, "byte"),
             "PDIs inside the " + counted(size, "byte") + " of the container");
    content.overlays[id].assign(data + offset, data + offset + bytes);
  }
  if (content.overlays.count(0) == 0) refuse("no PDI 0", "a container with PDI 0");
}

}  // namespace

std::string uuid::to_string() const {
  static const char* const digits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

xclbin::xclbin(const std::string& path) {
  std::error_code unknown;
  // Folders open, and fail to read; pipes wait for a writer; devices never end.
  const bool is_file = std::filesystem::is_regular_file(path, unknown);
  std::ifstream file;
  if (is_file) file.open(path, std::ios::binary);
  if (!is_file || !file)
    throw ContainerError(
        {"xclbin", "no readable file " + path, "the path of a container", "Check the path."});
  const auto size = std::filesystem::file_size(path, unknown);
  if (size > kMostBytes) refuse(counted(size, "byte"), "up to " + counted(kMostBytes, "byte"));
  const std::vector<char> data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  *this = from_bytes(reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

xclbin xclbin::from_bytes(const uint8_t* data, size_t size) {
  if (size < layout::KERNELS_AT)
    refuse(counted(size, "byte"), "at least " + counted(layout::KERNELS_AT, "byte"));
  if (std::memcmp(data, layout::MAGIC, kMagicBytes) != 0)
    refuse("a file without the magic ODXCLBIN", "the simulator's own containers, not vendor xclbin files");
  const uint32_t version = sim::load32(data + kMagicBytes), stated = sim::load32(data + kMagicBytes + 4);
  if (version != layout::VERSION) refuse("version " + std::to_string(version), "version " + std::to_string(layout::VERSION));
  if (stated != size)
    refuse(counted(size, "byte") + " of a container of " + std::to_string(stated),
           "the whole container");
  const uint32_t kernels = sim::load32(data + layout::COUNTS_AT), pdis = sim::load32(data + layout::COUNTS_AT + 4);
  const size_t table_at = layout::KERNELS_AT + size_t{layout::KERNEL_BYTES} * std::min(kernels, layout::MAX_ENTRIES + 1);
  if (kernels == 0 || kernels > layout::MAX_ENTRIES || pdis > layout::MAX_ENTRIES ||
      table_at + size_t{layout::PDI_ENTRY_BYTES} * pdis > size)
    refuse(counted(kernels, "kernel") + " and " + counted(pdis, "PDI"),
           "numbers that fit the size");
  if (crc32(data + layout::KERNELS_AT, size - layout::KERNELS_AT) != sim::load32(data + layout::COUNTS_AT + 8))
    refuse("a CRC that does not match", "an undamaged container");

  auto content = std::make_shared<Content>();
  content->device = padded_text(data + layout::DEVICE_AT, layout::DEVICE_BYTES);
  std::copy(data + layout::UUID_AT, data + layout::UUID_AT + content->id.bytes.size(), content->id.bytes.begin());
  for (uint32_t i = 0; i < kernels; ++i)
    content->kernels.push_back(padded_text(data + layout::KERNELS_AT + layout::KERNEL_BYTES * i, layout::KERNEL_BYTES));
  read_overlays(*content, data, size, table_at, pdis);
  xclbin made;
  made.content_ = std::move(content);
  return made;
}

const std::vector<std::string>& xclbin::kernels() const { return content_->kernels; }
uuid xclbin::get_uuid() const { return content_->id; }
const std::string& xclbin::device_name() const { return content_->device; }

}  // namespace onedispatch::xrt
