// SPDX-License-Identifier: Apache-2.0
#include "sim/record/order.h"

#include <algorithm>
#include <set>

namespace onedispatch::sim {

namespace {

uint64_t edge(uint32_t from, uint32_t to) { return uint64_t{from} << 32 | to; }

using Successors = std::vector<std::vector<uint32_t>>;  // by occurrence

// Appends `from` and what it leads to that was not seen yet, each behind what it leads to itself.
void walk(uint32_t from, const Successors& successors, std::vector<bool>& seen, std::vector<uint32_t>& ended) {
  std::vector<std::pair<uint32_t, size_t>> path;  // and the successor whose turn it is
  const auto enter = [&](uint32_t one) {
    if (!seen[one]) path.emplace_back(one, 0);
    seen[one] = true;
  };
  for (enter(from); !path.empty();) {
    auto& [one, next] = path.back();
    if (next < successors[one].size()) {
      enter(successors[one][next++]);
    } else {
      ended.push_back(one);
      path.pop_back();
    }
  }
}

}  // namespace

Order::Order(const Dataflow& flow, const DdrRegions& regions)
    : flow_(flow), consumers_(flow.accesses.size()), decides_(flow.accesses.size()), arguments_(regions.size()) {
  for (const DdrAccess& access : flow.accesses) {
    Argument& argument = arguments_[access.argument];
    argument.words = regions[access.argument]->bytes / 4;
    if (argument.outside.empty()) argument.outside = WordSet(argument.words);
    if (!access.write || argument.lines.size() != 0) continue;
    argument.written = WordSet(argument.words);
    argument.lines = Zeros<Share>((argument.words + kLine - 1) / kLine);
  }
  mark_deciding();
}

void Order::reads_access(uint32_t occurrence, uint32_t access) {
  consumers_[access] = with(consumers_[access], occurrence);
}

void Order::reads(uint32_t occurrence, const Slice& slice) {
  Space last(Space::kLiteral, 0);
  flow_.segments.for_runs(slice, [&](Space space, uint32_t, uint32_t) {
    if (space == last) return;
    last = space;
    if (space.kind() == Space::kDdr) reads_access(occurrence, space.id());
    if (space.kind() != Space::kOut) return;
    const uint32_t writer = flow_.units[space.id()].occurrence;
    precede(writer, occurrence);
    on_chip_.insert(edge(writer, occurrence));
  });
}

std::vector<Order::Handed> Order::on_chip() const {
  std::vector<Handed> all;
  for (const uint64_t one : on_chip_) all.push_back({static_cast<uint32_t>(one >> 32), static_cast<uint32_t>(one)});
  return all;
}

// The words that packets and blocks were made of must come from device memory, or from instructions.
void Order::mark_deciding() {
  for (const Slice& slice : flow_.deciding) {
    flow_.segments.for_runs(slice, [&](Space space, uint32_t first, uint32_t words) {
      if (space.kind() == Space::kOut || space.kind() == Space::kScratch) throw NotRecordable{"packets or parameter blocks depend on what kernels computed"};
      if (space.kind() != Space::kDdr) return;
      decides_[space.id()] = 1;
      Argument& argument = arguments_[flow_.accesses[space.id()].argument];
      if (argument.deciding.empty()) argument.deciding = WordSet(argument.words);
      argument.deciding.add(first, words);
    });
  }
}

void Order::precede(uint32_t first, uint32_t second) {
  edges_.insert(edge(first, second));
}

// The set with the member in it.
uint32_t Order::with(uint32_t set, uint32_t member) {
  const auto [at, added] = grown_.try_emplace(uint64_t{set} << 32 | member, static_cast<uint32_t>(sets_.size()));
  if (added) {
    std::vector<uint32_t> grown = sets_[set];
    const auto place = std::lower_bound(grown.begin(), grown.end(), member);
    if (place != grown.end() && *place == member) {
      at->second = set;
    } else {
      grown.insert(place, member);
      sets_.push_back(std::move(grown));
    }
  }
  return at->second;
}

void Order::follow_read(uint32_t index) {
  const DdrAccess& access = flow_.accesses[index];
  Argument& argument = arguments_[access.argument];
  Reader reader{index};
  flow_.segments.for_runs(flow_.segments.whole(access.segment), [&](Space, uint32_t first, uint32_t count) {
    if (argument.lines.size() == 0) return argument.outside.add(first, count);
    for_lines(first, count, [&](uint32_t line, uint64_t words) { read_line(reader, argument, line, words); });
  });
}

void Order::read_line(Reader& reader, Argument& argument, uint32_t line, uint64_t words) {
  moved_.clear();
  for (Share* share = &argument.lines[line]; share != nullptr; share = after(*share)) {
    const uint64_t read = share->words & words;
    if (read == 0) continue;
    words &= ~read;
    meet(reader, *share);
    if (reader.after == share->readers) continue;
    share->words &= ~read;
    moved_.push_back({read, share->writer, reader.after, 0});
  }
  argument.outside.line(line) |= words;
  for (const Share& share : moved_) put(argument.lines[line], share);
}

// What it reads next is of the share.
void Order::meet(Reader& reader, const Share& share) {
  const std::vector<uint32_t>& consumers = sets_[consumers_[reader.access]];
  if (share.writer != reader.writer) {
    reader.writer = share.writer;
    if (decides_[reader.access] != 0) throw NotRecordable{"packets or parameter blocks depend on words that it wrote"};
    for (const uint32_t consumer : consumers) precede(share.writer, consumer);
  }
  if (share.readers != reader.before) {
    reader.before = share.readers;
    reader.after = reader.before;
    for (const uint32_t consumer : consumers) reader.after = with(reader.after, consumer);
  }
}

void Order::follow_write(const Stored& stored, uint32_t occurrence) {
  Argument& argument = arguments_[stored.argument];
  for_lines(stored.first, stored.words, [&](uint32_t line, uint64_t words) {
    if ((argument.outside.line(line) & words) != 0) throw NotRecordable{"it overwrites device memory that it has read"};
    for (Share* share = &argument.lines[line]; share != nullptr; share = after(*share)) {
      if ((share->words & words) == 0) continue;
      share->words &= ~words;
      overwrite(*share, occurrence);
    }
    put(argument.lines[line], {words, occurrence, 0, 0});
    argument.written.line(line) |= words;
  });
}

void Order::overwrite(const Share& share, uint32_t occurrence) {
  if (occurrence == writes_ && share.writer == overwritten_.writer && share.readers == overwritten_.readers) return;
  writes_ = occurrence;
  overwritten_ = share;
  if (share.writer == occurrence) {
    rewrites_[occurrence] = 1;
  } else {
    precede(share.writer, occurrence);
  }
  for (const uint32_t reader : sets_[share.readers]) precede(reader, occurrence);
}

// Adds the share to those of a line.
void Order::put(Share& first, const Share& added) {
  Share* empty = nullptr;
  for (Share* share = &first; share != nullptr; share = after(*share)) {
    if (share->words == 0) {
      empty = share;
    } else if (share->writer == added.writer && share->readers == added.readers) {
      share->words |= added.words;
      return;
    }
  }
  if (empty != nullptr) {
    *empty = {added.words, added.writer, added.readers, empty->next};
  } else {
    shares_.push_back({added.words, added.writer, added.readers, first.next});
    first.next = static_cast<uint32_t>(shares_.size() - 1);
  }
}

std::vector<uint32_t> Order::levels(const std::vector<Recording::Part>& parts, const std::vector<Stored>& stored, const std::vector<uint32_t>& ends, uint32_t occurrences) {
  rewrites_.assign(occurrences, 0);
  uint32_t next = 0;
  for (uint32_t access = 0; access < flow_.accesses.size(); ++access) {
    if (!flow_.accesses[access].write) follow_read(access);
    for (; next < ends[access]; ++next) follow_write(stored[next], parts[stored[next].part].occurrence);
  }
  return sorted(occurrences);
}

// Circles are strongly connected components of more than one occurrence, or an edge to itself: by Kosaraju's algorithm.
std::vector<uint32_t> Order::sorted(uint32_t occurrences) const {
  Successors later(occurrences), earlier(occurrences);
  std::set<uint32_t> circles;
  for (const uint64_t edge : edges_) {
    const auto from = static_cast<uint32_t>(edge >> 32), to = static_cast<uint32_t>(edge);
    if (from == to) circles.insert(from);
    later[from].push_back(to);
    earlier[to].push_back(from);
  }
  std::vector<bool> seen(occurrences), seen_back(occurrences);
  std::vector<uint32_t> order, level(occurrences, 0);
  for (uint32_t i = 0; i < occurrences; ++i) walk(i, later, seen, order);
  std::reverse(order.begin(), order.end());
  for (const uint32_t one : order) {
    std::vector<uint32_t> component;
    walk(one, earlier, seen_back, component);
    if (component.size() > 1) circles.insert(component.begin(), component.end());
    for (const uint32_t next : later[one]) level[next] = std::max(level[next], level[one] + 1);
  }
  if (!circles.empty()) throw Circle({circles.begin(), circles.end()});
  return level;
}

std::vector<WordRange> Order::ranges(WordSet Argument::*set) const {
  std::vector<WordRange> found;
  for (uint32_t i = 0; i < arguments_.size(); ++i)
    (arguments_[i].*set).for_runs([&](uint32_t first, uint32_t words) { found.push_back({i, first, words}); });
  return found;
}

}  // namespace onedispatch::sim
