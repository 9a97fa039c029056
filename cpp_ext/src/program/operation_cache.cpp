// SPDX-License-Identifier: Apache-2.0
#include "operation_cache.h"

#include <algorithm>
#include <utility>

namespace onedispatch {

namespace {

constexpr size_t kMost = 4096;  // operations; a model has hundreds

uint64_t hash_of(const uint32_t* words, uint32_t count) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a, a word at a time
  for (uint32_t i = 0; i < count; ++i) hash = (hash ^ words[i]) * 0x100000001B3ull;
  return hash;
}

}  // namespace

std::shared_ptr<OperationCache> make_operation_cache(const DeviceDescription& device) { return std::make_shared<OperationCache>(device); }

std::shared_ptr<ReadOperation> OperationCache::find(const od_kernel_spec& spec, const uint32_t* words) const {
  const auto [first, end] = read_.equal_range(hash_of(words, spec.words));
  for (auto at = first; at != end; ++at) {
    const ReadOperation& read = *at->second;
    if (read.operation.setup.spec == &spec && std::equal(words, words + spec.words, read.words.begin())) return at->second;
  }
  return nullptr;
}

void OperationCache::add(std::shared_ptr<ReadOperation> read) {
  if (read->plan->origin() != Origin::kOwn) return;
  if (read_.size() == kMost) read_.clear();
  const uint64_t hash = hash_of(read->words.data(), read->operation.setup.spec->words);
  read_.emplace(hash, std::move(read));
}

}  // namespace onedispatch
