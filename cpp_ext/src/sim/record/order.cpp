// SPDX-License-Identifier: Apache-2.0
#include "sim/record/order.h"

#include <algorithm>
#include <string>

namespace onedispatch::sim {

Order::Order(const Dataflow& flow, const DdrRegions& regions)
    : flow_(flow), consumers_(flow.accesses.size()), writes_(flow.accesses.size()), decides_(flow.accesses.size()), words_(regions.size()) {
  for (Bits* bits : {&outside_, &deciding_, &written_}) {
    bits->resize(regions.size());
    for (size_t i = 0; i < regions.size(); ++i) (*bits)[i].resize(regions[i]->bytes / 4);
  }
  for (const DdrAccess& access : flow.accesses) {
    if (access.write) words_[access.argument].resize(regions[access.argument]->bytes / 4);
  }
  mark_deciding();
}

void Order::reads_access(uint32_t occurrence, uint32_t access) {
  std::vector<uint32_t>& all = consumers_[access];
  const auto at = std::lower_bound(all.begin(), all.end(), occurrence);
  if (at == all.end() || *at != occurrence) all.insert(at, occurrence);
}

void Order::reads(uint32_t occurrence, const Slice& slice) {
  Space last(Space::kLiteral, 0);
  flow_.segments.for_runs(slice, [&](Space space, uint32_t, uint32_t) {
    if (space == last) return;
    last = space;
    if (space.kind() == Space::kDdr) reads_access(occurrence, space.id());
    if (space.kind() == Space::kOut) precede(flow_.units[space.id()].occurrence, occurrence);
  });
}

void Order::writes(uint32_t access, uint32_t part, uint32_t first, uint32_t words) {
  std::vector<Written>& all = writes_[access];
  if (!all.empty() && all.back().part == part && all.back().first + all.back().words == first) {
    all.back().words += words;
  } else {
    all.push_back({part, first, words});
  }
}

// The words that packets and blocks were made of must come from device memory, or from instructions.
void Order::mark_deciding() {
  for (const Slice& slice : flow_.deciding) {
    flow_.segments.for_runs(slice, [&](Space space, uint32_t first, uint32_t words) {
      if (space.kind() == Space::kOut || space.kind() == Space::kScratch) throw NotRecordable{"packets or parameter blocks depend on what kernels computed"};
      if (space.kind() != Space::kDdr) return;
      decides_[space.id()] = 1;
      std::vector<bool>& bits = deciding_[flow_.accesses[space.id()].argument];
      std::fill_n(bits.begin() + first, words, true);
    });
  }
}

void Order::precede(uint32_t first, uint32_t second) {
  if (first == second) throw NotRecordable{"tiles of one operation depend on each other"};
  edges_.insert(uint64_t{first} << 32 | second);
}

// The set with the members in it.
uint32_t Order::with(uint32_t set, const std::vector<uint32_t>& members) {
  for (const uint32_t member : members) {
    const auto [at, added] = grown_.try_emplace(uint64_t{set} << 32 | member, static_cast<uint32_t>(sets_.size()));
    if (added) {
      std::vector<uint32_t> grown = sets_[set];
      if (std::binary_search(grown.begin(), grown.end(), member)) {
        at->second = set;
      } else {
        grown.insert(std::lower_bound(grown.begin(), grown.end(), member), member);
        sets_.push_back(std::move(grown));
      }
    }
    set = at->second;
  }
  return set;
}

void Order::follow_read(uint32_t index) {
  const DdrAccess& access = flow_.accesses[index];
  const std::vector<uint32_t>& consumers = consumers_[index];
  std::vector<Word>& words = words_[access.argument];
  std::vector<bool>& outside = outside_[access.argument];
  uint32_t writer = 0, before = ~0u, after = 0;
  flow_.segments.for_runs(flow_.segments.whole(access.segment), [&](Space, uint32_t first, uint32_t count) {
    if (words.empty()) {
      std::fill_n(outside.begin() + first, count, true);
      return;
    }
    for (uint32_t at = first; at < first + count; ++at) {
      Word& word = words[at];
      if (word.writer == 0) outside[at] = true;
      if (word.writer != writer) {
        writer = word.writer;
        if (writer != 0 && decides_[index] != 0) throw NotRecordable{"packets or parameter blocks depend on words that it wrote"};
        for (const uint32_t consumer : consumers)
          if (writer != 0) precede(occurrence_of(writer - 1), consumer);
      }
      if (word.readers != before) {
        before = word.readers;
        after = with(before, consumers);
      }
      word.readers = after;
    }
  });
}

void Order::follow_write(uint32_t index) {
  const uint32_t argument = flow_.accesses[index].argument;
  std::vector<Word>& words = words_[argument];
  const std::vector<bool>& outside = outside_[argument];
  std::vector<bool>& written = written_[argument];
  for (const Written& one : writes_[index]) {
    const uint32_t occurrence = occurrence_of(one.part);
    uint32_t writer = 0, readers = 0, access = ~0u;
    bool cut = false;  // the writer is another part of the same occurrence
    for (uint32_t at = one.first; at < one.first + one.words; ++at) {
      Word& word = words[at];
      if (word.writer == 0 && outside[at]) throw NotRecordable{"it overwrites device memory that it has read"};
      if (word.writer != writer || word.access != access) {
        writer = word.writer;
        access = word.access;
        cut = writer != 0 && writer != one.part + 1 && occurrence_of(writer - 1) == occurrence;
        if (cut) cuts_.push_back({access, writer - 1, at, 0});
        if (writer != 0 && occurrence_of(writer - 1) != occurrence) precede(occurrence_of(writer - 1), occurrence);
      }
      if (cut) ++cuts_.back().words;
      if (word.readers != readers) {
        readers = word.readers;
        for (const uint32_t reader : sets_[readers]) precede(reader, occurrence);
      }
      word = {one.part + 1, index, 0};
    }
    std::fill_n(written.begin() + one.first, one.words, true);
  }
}

void Order::follow() {
  for (uint32_t index = 0; index < flow_.accesses.size(); ++index) {
    if (flow_.accesses[index].write) {
      follow_write(index);
    } else {
      follow_read(index);
    }
  }
}

std::vector<uint32_t> Order::levels(const std::vector<Recording::Part>& parts, uint32_t occurrences) {
  parts_ = &parts;
  follow();
  std::vector<std::vector<uint32_t>> later(occurrences);
  std::vector<uint32_t> before(occurrences, 0), level(occurrences, 0), ready;
  for (const uint64_t edge : edges_) {
    later[edge >> 32].push_back(static_cast<uint32_t>(edge));
    ++before[static_cast<uint32_t>(edge)];
  }
  for (uint32_t i = 0; i < occurrences; ++i)
    if (before[i] == 0) ready.push_back(i);
  uint32_t done = 0;
  for (; !ready.empty(); ++done) {
    const uint32_t one = ready.back();
    ready.pop_back();
    for (const uint32_t next : later[one]) {
      level[next] = std::max(level[next], level[one] + 1);
      if (--before[next] == 0) ready.push_back(next);
    }
  }
  if (done != occurrences) throw NotRecordable{"operations depend on each other in a circle"};
  return level;
}

std::vector<WordRange> Order::ranges(const Bits& bits) const {
  std::vector<WordRange> found;
  for (uint32_t argument = 0; argument < bits.size(); ++argument) {
    const std::vector<bool>& words = bits[argument];
    for (auto at = std::find(words.begin(), words.end(), true); at != words.end();) {
      const auto end = std::find(at, words.end(), false);
      found.push_back({argument, static_cast<uint32_t>(at - words.begin()), static_cast<uint32_t>(end - at)});
      at = std::find(end, words.end(), true);
    }
  }
  return found;
}

}  // namespace onedispatch::sim
