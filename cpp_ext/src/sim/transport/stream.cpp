// SPDX-License-Identifier: Apache-2.0
// Transfers: segments of words that go from one MM2S channel to all its destinations at once.
#include <algorithm>
#include <cmath>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {

bool Array::paused(const Channel& c) const {
  return c.kind == TileKind::kShim &&
         (reg::channel::pause_memory.get(c.control) || reg::channel::pause_stream.get(c.control));
}

// A channel has become able to move data.
void Array::ready(Channel& c) {
  if (c.mm2s) return try_start(c);
  if (overlay_->feeds(c)) return;
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
  if (s.route->packets() && !(s.region && s.region->open) && !start_packet(s)) return;
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
  if (options_.profile) profile_.serve(bytes);
  const uint64_t free = ddr_.free_at();
  uint64_t served = ddr_.serve(now, bytes);
  if (c.mm2s) served = std::max(served, ddr_reads_.serve(now, bytes));
  if (options_.trace && bytes != 0) trace_.add(Traced::kRequest, place(c), std::max(now, free), ddr_.free_at(), bytes, c.bd_id);
  return served;
}

// What a segment follows: what is handled now, or the channel whose descriptor was ready last.
Link Array::cause_of(const Channel& s, uint64_t start) const {
  if (start <= now) return Link(profile_.current(), {});
  if (s.ready_time == start) return profile_.prepared(s.index);
  for (const Destination& d : s.route->destinations)
    if (channels_[d.channel].ready_time == start) return profile_.prepared(d.channel);
  return Link(profile_.current(), {{Part::kTask, start - now}});
}

// Words that the channel has moved from or to device memory, if that is where its BD lies.
void Array::count_ddr(Channel& c, uint64_t words) {
  if (!c.region) return;
  (c.mm2s ? c.region->bytes_read : c.region->bytes_written) += 4 * words;
  const uint64_t since = c.state == ChannelState::kMoving ? std::min(c.segment_start, now) : now;  // headers are taken at once
  if (options_.profile) profile_.transfer(tiles_[c.tile].column, !c.mm2s, since, now, 4 * words);
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
  const uint64_t streamed = end;
  if (s.region) end = std::max(end, serve_ddr(s, words));
  for (const Destination& d : route.destinations) {
    Channel& c = channels_[d.channel];
    if (header && !d.keeps_header) continue;
    c.state = ChannelState::kMoving;
    c.segment_start = start;
    changed(c.tile);
    if (c.region) end = std::max(end, serve_ddr(c, words));
  }
  s.header_segment = header;
  if (options_.trace) trace_segment(s, start, streamed, end);
  if (options_.profile) {
    Link link = cause_of(s, start);
    const bool commands = s.reply || !route.controls.empty();
    link.add({end > streamed ? Part::kDdr : commands ? Part::kPacket : Part::kStream, end - start});
    profile_.schedule_channel(s.index, link);
  }
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
  if (!s.mm2s) return overlay_->fed(s);
  if (s.token_of != kNone) return finish_token(s);
  if (!s.packet_words.empty()) return finish_packet_segment(s);
  const Route* const route = s.route;  // s may take another one below
  const uint64_t words = s.segment_words;
  const uint64_t took = now - s.segment_start;
  const bool header = s.header_segment;
  if (header) {
    deliver_header(s, *route);
  } else {
    executor_->move(s, *route, words);
    count_moved(s, *route, words);
    s.words_left -= words;
    s.bytes += words * 4;
  }
  s.busy += took;
  s.last_end = now;
  s.state = ChannelState::kReady;
  if (options_.trace) trace_ready(s);
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
    executor_->deliver(c, bytes, 1);
    count_ddr(c, 1);
  }
  s.header_due = false;
}

// Counts what has moved from and to device memory; polls of memory look again.
void Array::count_moved(Channel& s, const Route& route, uint64_t words) {
  count_ddr(s, words);
  for (const Destination& d : route.destinations) {
    Channel& c = channels_[d.channel];
    changed_memory(c);
    count_ddr(c, words);
  }
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
