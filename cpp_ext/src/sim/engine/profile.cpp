// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/profile.h"

namespace onedispatch::sim {

void Profile::start(uint64_t now, size_t channels, size_t cores, uint32_t columns) {
  *this = Profile();
  start_ = since_ = now;
  columns_ = columns;
  report_.bin_cycles = 64;
  report_.bins.assign(columns, {});
  for (auto& column : report_.bins) column.fill(std::vector<uint64_t>(kBins));
  forget(channels, cores);
}

void Profile::forget(size_t channels, size_t cores) {
  channels_.assign(channels, {});
  ready_.assign(channels, {});
  cores_.assign(cores, {});
}

void Profile::transfer(uint32_t column, bool write, uint64_t start, uint64_t end, uint64_t bytes) {
  bytes_[write ? 1 : 0] += bytes;
  spread(column, write ? 2 : 1, start, end - std::min(end, start), bytes);
}

void Profile::mark(uint32_t id, uint64_t now) {
  report_.windows.push_back(ProfileWindow{id, now - since_, current_.parts, busy_, bytes_[0], bytes_[1], bursts_});
  busy_ = bursts_ = 0;
  bytes_ = {};
  since_ = now;
  current_ = {++mark_, {}};
}

// An amount over the bins that the cycles lie in; what is cut off by rounding goes to the last one.
void Profile::spread(uint32_t column, size_t what, uint64_t start, uint64_t cycles, uint64_t amount) {
  if (amount == 0 || column >= columns_) return;
  const uint64_t from = start - std::min(start, start_), to = from + std::max<uint64_t>(cycles, 1);
  while (to > kBins * report_.bin_cycles) widen();
  std::vector<uint64_t>& bins = report_.bins[column][what];
  const uint64_t width = report_.bin_cycles;
  uint64_t left = amount;
  for (uint64_t bin = from / width; bin < (to - 1) / width; ++bin) {
    const uint64_t inside = (bin + 1) * width - std::max(from, bin * width);
    const auto share = static_cast<uint64_t>(static_cast<double>(amount) * static_cast<double>(inside) / static_cast<double>(to - from));
    bins[bin] += std::min(left, share);
    left -= std::min(left, share);
  }
  bins[(to - 1) / width] += left;
}

void Profile::widen() {
  for (auto& column : report_.bins) {
    for (std::vector<uint64_t>& bins : column) {
      for (size_t bin = 0; bin < kBins / 2; ++bin) bins[bin] = bins[2 * bin] + bins[2 * bin + 1];
      std::fill(bins.begin() + kBins / 2, bins.end(), 0);
    }
  }
  report_.bin_cycles *= 2;
}

}  // namespace onedispatch::sim
