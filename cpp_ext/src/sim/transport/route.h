// SPDX-License-Identifier: Apache-2.0
// Where a stream of an MM2S channel goes: what routes.cpp finds in the switches.
#pragma once
#include <cstdint>
#include <vector>

namespace onedispatch::sim {

struct Destination {
  uint32_t channel;
  bool keeps_header;
};

// All S2MM channels that a stream reaches, or all control ports that a packet does.
struct Route {
  std::vector<Destination> destinations;
  std::vector<uint32_t> controls;       // tiles
  std::vector<uint32_t> control_kinds;  // one of them of each kind: all tiles of a kind have the same
  bool to_shim = false;            // a destination is of a shim
  bool controller = false;         // leaves the array for the controller: tokens only
  bool headers_in_data = false;    // a stream without header at a packet-switched port
  bool shared = false;             // packets of other streams may come to one of its arbiters
  bool packets() const { return headers_in_data || !controls.empty(); }
  struct Arbiter {
    uint32_t key, slave;  // tile * 8 + arbiter; the port by which the stream comes to it
  };
  std::vector<Arbiter> arbiters;  // by key
  uint32_t latency = 0;            // cycles of the longest branch
};

}  // namespace onedispatch::sim
