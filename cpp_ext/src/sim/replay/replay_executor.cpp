// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay_executor.h"

namespace onedispatch::sim {

void ReplayExecutor::move(Channel& s, const Route& route, uint64_t words) {
  overlay_.note_segment(s);
  for (const Destination& d : route.destinations) overlay_.note_segment(array_.channels()[d.channel]);
  if (route.destinations.empty()) return overlay_.open(s);  // the cursor may stay: the BD ends by its count of words
  uint8_t* const moved = scratch(words);
  if (s.region && s.region->open) {
    overlay_.pattern(s, moved, words);
  } else {
    read_deciding(s, s.cursor, moved, words);
  }
  for (const Destination& d : route.destinations) {
    Channel& c = array_.channels()[d.channel];
    if (!c.region) DataExecutor::deliver(c, moved, words);
  }
}

void ReplayExecutor::deliver(Channel& c, const uint8_t* words, uint64_t count) {
  if (!c.region || !c.region->open) DataExecutor::deliver(c, words, count);
}

// Unwritten memory reads as zeros.
void ReplayExecutor::read_deciding(const Channel& s, Cursor& from, uint8_t* to, uint64_t words) {
  settle(s);
  from.gather(to, words);
}

}  // namespace onedispatch::sim
