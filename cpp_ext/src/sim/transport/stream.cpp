// SPDX-License-Identifier: Apache-2.0
// Transfers: segments of words that go from one MM2S channel to all its destinations at once.
#include <algorithm>
#include <cmath>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "sim/array/observer.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

bool Array::paused(const Channel& c) const {
  return c.kind == TileKind::kShim &&
         (reg::channel::pause_memory.get(c.control) || reg::channel::pause_stream.get(c.control));
}

// A channel has become able to move data.
void Array::ready(Channel& c) {
  if (c.mm2s) return try_start(c);
  if (options_.replay && is_open_source(c)) return supply(c);
  if (c.waiting_sources.empty()) return;
  if (c.waiting_sources.size() == 1) {  // nearly always
    Channel& source = channels_[c.waiting_sources[0]];
    c.waiting_sources.clear();
    return try_start(source);
  }
  const std::vector<uint32_t> sources = c.waiting_sources;
  c.waiting_sources.clear();
  for (const uint32_t source : sources) try_start(channels_[source]);
}

void Array::try_start(Channel& s) {
  if (s.state != ChannelState::kReady || s.words_left == 0 || paused(s)) return;
  if (!s.route) s.route = route_of(s);
  if (s.route->packets() && !(options_.replay && s.region && s.region->open) && !start_packet(s)) return;
  if (s.header_due && !s.packet_open && !open_packet(s)) return;

  const auto& destinations = s.route->destinations;
  const bool header = s.header_due && std::any_of(destinations.begin(), destinations.end(),
                                                  [](const Destination& d) { return d.keeps_header; });
  uint64_t words = header ? 1 : s.words_left;
  uint64_t start = std::max(now, s.ready_time);
  for (const Destination& d : destinations) {
    if (header && !d.keeps_header) continue;
    Channel& c = channels_[d.channel];
    if (c.state != ChannelState::kReady || c.words_left == 0 || paused(c)) {
      if (std::find(c.waiting_sources.begin(), c.waiting_sources.end(), s.index) == c.waiting_sources.end())
        c.waiting_sources.push_back(s.index);
      return;
    }
    words = std::min(words, c.words_left);
    start = std::max(start, c.ready_time);
  }
  begin_segment(s, header, words, start);
}

// When host memory has served the next words of a shim's BD. It serves whole bursts: of 64 bytes, by
// address and length, whatever the BD's burst length says, which is that of its longest request.
uint64_t Array::serve_ddr(Channel& c, uint64_t words) {
  const unsigned shift = timing_.ddr_burst_shift;
  const uint64_t bytes = c.bursts.bursts(words, c.region->origin, shift) << shift;
  c.region->burst_bytes += bytes;
  return ddr_.serve(now, bytes);
}

void Array::begin_segment(Channel& s, bool header, uint64_t words, uint64_t start, uint64_t packets) {
  const Route& route = *s.route;
  const auto is_shims = [this](const Destination& d) { return channels_[d.channel].region != nullptr; };
  const bool shim = s.kind == TileKind::kShim ||
                    (route.to_shim && std::any_of(route.destinations.begin(), route.destinations.end(), is_shims));
  if (shim) words = std::min(words, timing_.ddr_segment_words);

  const double rate = shim ? timing_.shim_words_per_cycle : timing_.words_per_cycle;
  uint64_t end =
      start + (rate == 1.0 ? words : static_cast<uint64_t>(std::ceil(static_cast<double>(words) / rate)));
  if (s.header_due && !header) {
    ++end;  // the header passes, and every destination drops it
    s.header_due = false;
  }
  // A stream that stood still pays the way through the switches again.
  if (start > s.last_end + timing_.bd_setup + timing_.channel_start + timing_.bd_chain) end += route.latency;
  end += packets * timing_.control_packet;  // the port takes them one after the other, and holds the stream up
  if (s.region) end = std::max(end, serve_ddr(s, words));
  for (const Destination& d : route.destinations) {
    Channel& c = channels_[d.channel];
    if (header && !d.keeps_header) continue;
    c.state = ChannelState::kMoving;
    changed(c.tile);
    if (c.region) end = std::max(end, serve_ddr(c, words));
  }
  s.header_segment = header;
  move_segment(s, words, start, end);
}

void Array::move_segment(Channel& c, uint64_t words, uint64_t start, uint64_t end) {
  c.state = ChannelState::kMoving;
  changed(c.tile);
  c.segment_words = words;
  c.segment_start = start;
  effort += words / 256;
  events.push(std::max(end, now + 1), EventKind::kSegment, c.index, c.generation);
}

void Array::finish_segment(Channel& s) {
  if (!s.mm2s) return finish_supply(s);
  if (s.token_of != kNone) return finish_token(s);
  if (!s.packet_words.empty()) return finish_packet_segment(s);
  const Route* const route = s.route;  // s may take another one below
  const uint64_t words = s.segment_words;
  const uint64_t took = now - s.segment_start;
  const bool header = s.header_segment;
  if (header) {
    deliver_header(s, *route);
  } else {
    if (options_.replay) {
      copy_replayed(s, *route, words);
    } else if (options_.clock) {
      pass_segment(s, *route, words);
    } else {
      copy_segment(s, *route, words);
    }
    s.words_left -= words;
    s.bytes += words * 4;
  }
  s.busy += took;
  s.last_end = now;
  s.state = ChannelState::kReady;
  for (const Destination& d : route->destinations) {
    if (header && !d.keeps_header) continue;
    Channel& c = channels_[d.channel];
    c.words_left -= words;
    c.bytes += words * 4;
    c.busy += took;
    c.state = ChannelState::kReady;
  }
  for (const Destination& d : route->destinations) {
    Channel& c = channels_[d.channel];
    if (c.state == ChannelState::kReady && c.words_left == 0 && c.running) finish_bd(c);
  }
  if (s.state == ChannelState::kReady && s.words_left == 0) {
    finish_bd(s);
  } else {
    try_start(s);
  }
  for (const Destination& d : route->destinations) {
    Channel& c = channels_[d.channel];
    if (c.state == ChannelState::kReady && !c.waiting_sources.empty()) ready(c);
  }
}

void Array::deliver_header(Channel& s, const Route& route) {
  uint8_t bytes[4];
  store32(bytes, s.header_word);
  for (const Destination& d : route.destinations) {
    if (!d.keeps_header) continue;
    Channel& c = channels_[d.channel];
    settle_jobs(c);
    if (observer != nullptr) observer->writes(c, s.header_word);
    if (options_.clock) {
      if (!c.region) learn(c, bytes, 1);
    } else if (!c.region || !c.region->open) {
      c.cursor.scatter(bytes, 1);
    }
    if (c.region) c.region->bytes_written += 4;
  }
  s.header_due = false;
}

// Waits for compute jobs that touch what the channel's BD touches.
void Array::settle_jobs(const Channel& c) {
  if (jobs_ != 0 && c.memory_tile != kNone && tiles_[c.memory_tile].core != kNone)
    join_overlapping(c.memory_tile, c.first_byte, c.span_bytes, !c.mm2s);
}

namespace {

// Whether two BDs touch the same bytes of a core's memory or of the memory tiles.
bool touch_the_same(const Channel& a, const Channel& b) {
  return a.memory != nullptr && a.memory == b.memory && a.first_byte < b.first_byte + b.span_bytes &&
         b.first_byte < a.first_byte + a.span_bytes;
}

}  // namespace

void Array::copy_segment(Channel& s, const Route& route, uint64_t words) {
  const size_t bytes = static_cast<size_t>(words) * 4;
  if (observer != nullptr) observer->moves(s, route, words);
  settle_jobs(s);
  bool shares_memory = false;
  for (const Destination& d : route.destinations) {
    const Channel& c = channels_[d.channel];
    settle_jobs(c);
    shares_memory = shares_memory || touch_the_same(s, c) || (c.region && s.region);
  }
  const uint8_t* from = shares_memory ? nullptr : s.cursor.contiguous(words);
  uint64_t unwritten;
  size_t first = 0;
  if (from != nullptr) {
    unwritten = s.cursor.skip_read(words);
  } else {
    Channel& c = channels_[route.destinations[0].channel];
    uint8_t* to = shares_memory ? nullptr : c.cursor.contiguous(words);
    if (to != nullptr) {
      // Gather straight into the first destination, and serve the others from there.
      c.cursor.skip_written(words);
      first = 1;
    } else {
      if (scratch_.size() < bytes) scratch_.resize(bytes);
      to = scratch_.data();
    }
    unwritten = s.cursor.gather(to, words);
    from = to;
  }
  if (unwritten != Cursor::kAllWritten) fail_unwritten(s, unwritten);
  count_ddr(s, route, words);
  for (size_t i = 0; i < route.destinations.size(); ++i) {
    Channel& c = channels_[route.destinations[i].channel];
    changed_memory(c);
    if (i >= first) c.cursor.scatter(from, words);
  }
}

void Array::count_ddr(Channel& s, const Route& route, uint64_t words) {
  if (s.region) s.region->bytes_read += 4 * words;
  for (const Destination& d : route.destinations)
    if (DdrRegion* const region = channels_[d.channel].region) region->bytes_written += 4 * words;
}

std::string Array::place_of(const Channel& s, uint64_t word) const {
  std::string place;
  if (s.memory_tile != kNone) {
    const uint64_t behind = word * 4 - tiles_[s.memory_tile].memory.first_byte;
    const uint64_t tile_bytes = memory_window_of(tiles_[s.memory_tile]).pitch * 4;
    const auto tile = s.memory_tile + static_cast<uint32_t>(behind / tile_bytes) * rows_;
    place = "byte " + hex(behind % tile_bytes) + " of " + tile_name(tile);
  }
  if (s.region) {
    size_t argument = 0;
    while (argument < regions_.size() && regions_[argument].get() != s.region) ++argument;
    place = "byte " + std::to_string(s.region->origin + word * 4 - s.region->address) +
            " of kernel argument " + std::to_string(argument);
  }
  return place;
}

void Array::fail_unwritten(const Channel& s, uint64_t word) const {
  fail(s, "memory",
       {channel_name(s) + " BD " + std::to_string(s.bd_id) + " (written by op " +
            std::to_string(tiles_[s.tile].bd_writers[s.bd_id].index) + ") reads",
        place_of(s, word) + ", which was never written", "memory that the host, a DMA or a core wrote before",
        "Check the BD's address and length, the locks that order it, and that the host synced the buffer."});
}

bool Array::open_packet(Channel& s) {
  if (!take_arbiters(s)) return false;
  s.packet_open = true;
  return true;
}

bool Array::take_arbiters(Channel& s) {
  const auto& wanted = s.route->arbiters;
  const bool free = std::all_of(wanted.begin(), wanted.end(), [this](const Route::Arbiter& a) {
    return arbiter_owner_[a.key] == kNone && in_turn(a);
  });
  if (free) {
    for (const Route::Arbiter& a : wanted) arbiter_owner_[a.key] = s.index;
    return true;
  }
  if (!s.queued_for_arbiter) {
    s.queued_for_arbiter = true;
    const ArbiterRequest request{now, s.index};
    const auto later = [](const ArbiterRequest& a, const ArbiterRequest& b) {
      return a.time != b.time ? a.time < b.time : a.channel < b.channel;
    };
    arbiter_queue_.insert(std::upper_bound(arbiter_queue_.begin(), arbiter_queue_.end(), request, later),
                          request);
  }
  return false;
}

void Array::release_arbiters(Channel& s) {
  if (s.queued_for_arbiter) {
    s.queued_for_arbiter = false;
    arbiter_queue_.erase(std::remove_if(arbiter_queue_.begin(), arbiter_queue_.end(),
                                        [&s](const ArbiterRequest& r) { return r.channel == s.index; }),
                         arbiter_queue_.end());
  }
  s.header_due = false;
  s.packet_words.clear();
  if (!s.packet_open) return;
  s.packet_open = false;
  if (s.route->arbiters.empty()) return;
  for (const Route::Arbiter& a : s.route->arbiters) {
    if (arbiter_owner_[a.key] != s.index) continue;
    arbiter_owner_[a.key] = kNone;
    pass_turn(a.key);
  }
  serve_arbiter_queue();
}

void Array::serve_arbiter_queue() {
  for (size_t i = 0; i < arbiter_queue_.size();) {
    Channel& waiting = channels_[arbiter_queue_[i].channel];
    if (!take_arbiters(waiting)) {
      ++i;
      continue;
    }
    waiting.queued_for_arbiter = false;
    waiting.packet_open = true;
    arbiter_queue_.erase(arbiter_queue_.begin() + static_cast<std::ptrdiff_t>(i));
    try_start(waiting);
  }
}

}  // namespace onedispatch::sim
