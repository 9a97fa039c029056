// SPDX-License-Identifier: Apache-2.0
// What the engine asks where a transaction relies on its overlay, the configuration that the array has before it runs. The
// overlay of a run is there: what it does not provide is an error. A replay has none (replay/absent_overlay.h).
#pragma once
#include <cstdint>

namespace onedispatch::sim {

struct Channel;
struct Core;
struct Lock;
struct Tile;

class OverlayPolicy {
 public:
  virtual ~OverlayPolicy() = default;
  virtual void reset() {}  // the array is as it was made

  // Asked before an error, whether the overlay provides what is missing:
  // the BD that the channel shall run, which was never written;
  virtual bool provides_bd(Channel&) { return false; }
  // the rest of a route of the channel, whose stream begins with the header of a packet or not;
  virtual bool provides_route(const Channel&, bool) const { return false; }
  // the route of a token of its task;
  virtual bool provides_token_route() { return false; }
  // who took from a lock of this tile, to which more is added than it can count.
  virtual bool empties(const Lock&, uint32_t) { return false; }
  // Padding of the channel's BD, before it is checked.
  virtual void relax_padding(Channel&) const {}

  // An S2MM channel can take data; true where its stream comes out of the overlay, which sends a segment then.
  virtual bool feeds(Channel&) { return false; }
  virtual void fed(Channel&) {}  // the segment has come
  // Something was added to a lock that is watched, or it was set.
  virtual void lock_changed(const Tile&) {}
  virtual void answer(Core&) {}  // an event that it asked for

  // Some of the channel's data went nowhere, or came from nowhere.
  virtual bool is_open(const Channel&) const { return false; }
};

}  // namespace onedispatch::sim
