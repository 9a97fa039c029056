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

od_call ReadOperation::bound(const KernelCall& call, const CallMemory& memory) const {
  const od_setup& setup = operation.setup;
  od_call bound{};
  std::copy(call.origin.begin(), call.origin.end(), bound.origin);
  bound.k_index = call.step;
  bound.k_first = call.step * setup.k_tile;
  bound.k_count = std::min(setup.k_tile, setup.k_extent - std::min(bound.k_first, setup.k_extent));
  bound.k_last = call.step + 1 == setup.inner_steps ? 1 : 0;
  bind_operands(operation, memory.chunks, bound);
  if (setup.spec->members != 0) count_members(setup, bound);
  bound.scratch = memory.scratch;
  return bound;
}

void ReadOperation::run(const KernelCall& call, const CallMemory& memory) const {
  const od_call given = bound(call, memory);
  try {
    plan->check(given);
    for (size_t i = 0; fills != nullptr && i < fills->size(); ++i) (*fills)[i](given);
    plan->run(given);
  } catch (const KernelError& error) {
    reject(error.what, error.status, error.cause);
  }
}

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
