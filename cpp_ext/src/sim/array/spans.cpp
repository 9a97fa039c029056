// SPDX-License-Identifier: Apache-2.0
// What a trace has of DMA channels and cores: called where one is requested, and only then.
#include <algorithm>

#include "sim/array/array.h"

namespace onedispatch::sim {

// A segment that moves from `start` on, passed the stream at `streamed`, and ends when device memory has served it.
void Array::trace_segment(const Channel& s, uint64_t start, uint64_t streamed, uint64_t end) {
  const auto trace = [&](const Channel& c) {
    const uint64_t ready = trace_.flow(c.index).ready;
    if (c.reply) return;
    if (start > ready) trace_.add(Traced::kStream, place(c), ready, start, 0, c.bd_id);
    if (end > streamed && c.region != nullptr) trace_.add(Traced::kMemory, place(c), streamed, end, 0, c.bd_id);
  };
  trace(s);
  for (const Destination& d : s.route->destinations)
    if (channels_[d.channel].state == ChannelState::kMoving) trace(channels_[d.channel]);
}

// A segment has moved: its channels are ready for the next one.
void Array::trace_ready(const Channel& s) {
  trace_.flow(s.index).ready = now;
  for (const Destination& d : s.route->destinations)
    if (channels_[d.channel].state == ChannelState::kMoving) trace_.flow(d.channel).ready = now;
}

// A descriptor that waits for its lock has moved nothing.
void Array::trace_bd(const Channel& c) {
  Trace::Flow& flow = trace_.flow(c.index);
  const uint64_t words = c.state == ChannelState::kAcquire ? 0 : c.bd.shape.length - c.words_left;
  trace_.add(Traced::kBd, place(c), flow.bd, now, 4 * words, c.bd_id, flow.packets);
  flow.packets = false;
}

// An overlay's tasks go on from run to run.
void Array::trace_task(const Channel& c) {
  if (!c.task.resident) trace_.add(Traced::kTask, place(c), trace_.flow(c.index).task, now, 0, c.task.start_bd);
}

void Array::end_spans(const Channel& c) {
  if (!c.running || c.reply) return;
  const uint64_t ready = trace_.flow(c.index).ready;
  if (c.state == ChannelState::kAcquire) trace_.add(Traced::kLock, place(c), c.locked_since, now);
  if (c.state == ChannelState::kReady && now > ready) trace_.add(Traced::kStream, place(c), ready, now, 0, c.bd_id);
  trace_bd(c);
  trace_task(c);
}

void Array::end_spans() {
  for (const Channel& channel : channels_) end_spans(channel);
  for (const Core& core : cores_) {
    if (core.state != Core::State::kAcquire || core.action->lock == core.home_lock) continue;
    trace_.add(Traced::kLock, {tiles_[core.tile].column, tiles_[core.tile].row}, core.blocked_at, now);
  }
}

}  // namespace onedispatch::sim
