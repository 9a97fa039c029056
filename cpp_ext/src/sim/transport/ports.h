// SPDX-License-Identifier: Apache-2.0
// Ports of the stream switches: what a port index means, and what lies on its other side.
#pragma once
#include <cstdint>
#include <string>

#include "onedispatch/register_map.h"
#include "sim/transport/bd.h"

namespace onedispatch::sim {

using Side = reg::PortSide;

struct Port {
  Side side;
  uint32_t lane;
};

uint32_t port_count(TileKind kind, bool master);
Port port_at(TileKind kind, bool master, uint32_t index);
// Index of a port, or -1 when the tile has no such port.
int port_index(TileKind kind, bool master, Port port);
std::string port_name(TileKind kind, bool master, uint32_t index);
// Whether the switch has a wire from a slave port to a master port (transactions/machine/switches.py).
bool connects(TileKind kind, uint32_t slave, uint32_t master);
// The ports that can feed a master port, for messages.
std::string slaves_of(TileKind kind, uint32_t master);

}  // namespace onedispatch::sim
