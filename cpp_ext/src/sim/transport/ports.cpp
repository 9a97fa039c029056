// SPDX-License-Identifier: Apache-2.0
#include "sim/transport/ports.h"

namespace onedispatch::sim {
namespace {

struct Groups {
  const reg::PortGroup* first;
  uint32_t count;
};

template <uint32_t N>
constexpr Groups groups(const reg::PortGroup (&table)[N]) {
  return Groups{table, N};
}

Groups table_of(TileKind kind, bool master) {
  switch (kind) {
    case TileKind::kShim: return master ? groups(reg::shim::kMasterGroups) : groups(reg::shim::kSlaveGroups);
    case TileKind::kMem: return master ? groups(reg::mem::kMasterGroups) : groups(reg::mem::kSlaveGroups);
    case TileKind::kCore: break;
  }
  return master ? groups(reg::core::kMasterGroups) : groups(reg::core::kSlaveGroups);
}

const char* side_name(Side side) {
  switch (side) {
    case Side::kCore: return "Core";
    case Side::kDma: return "DMA";
    case Side::kControl: return "Control";
    case Side::kFifo: return "FIFO";
    case Side::kSouth: return "South";
    case Side::kWest: return "West";
    case Side::kNorth: return "North";
    case Side::kEast: return "East";
    case Side::kTrace: return "Trace";
  }
  return "?";
}

const uint32_t* connections(TileKind kind) {
  switch (kind) {
    case TileKind::kShim: return reg::shim::kConnections;
    case TileKind::kMem: return reg::mem::kConnections;
    case TileKind::kCore: break;
  }
  return reg::core::kConnections;
}

}  // namespace

uint32_t port_count(TileKind kind, bool master) {
  const Groups table = table_of(kind, master);
  uint32_t all = 0;
  for (uint32_t g = 0; g < table.count; ++g) all += table.first[g].lanes;
  return all;
}

Port port_at(TileKind kind, bool master, uint32_t index) {
  const Groups table = table_of(kind, master);
  for (uint32_t g = 0; g < table.count; ++g) {
    if (index < table.first[g].lanes) return Port{table.first[g].side, index};
    index -= table.first[g].lanes;
  }
  return Port{Side::kTrace, index};
}

int port_index(TileKind kind, bool master, Port port) {
  const Groups table = table_of(kind, master);
  uint32_t first = 0;
  for (uint32_t g = 0; g < table.count; ++g) {
    if (table.first[g].side == port.side)
      return port.lane < table.first[g].lanes ? static_cast<int>(first + port.lane) : -1;
    first += table.first[g].lanes;
  }
  return -1;
}

std::string port_name(TileKind kind, bool master, uint32_t index) {
  const Port port = port_at(kind, master, index);
  return std::string(side_name(port.side)) + (master ? " master " : " slave ") + std::to_string(port.lane);
}

bool connects(TileKind kind, uint32_t slave, uint32_t master) {
  return slave < port_count(kind, false) && ((connections(kind)[slave] >> master) & 1) != 0;
}

std::string slaves_of(TileKind kind, uint32_t master) {
  std::string text;
  for (uint32_t slave = 0; slave < port_count(kind, false); ++slave)
    if (connects(kind, slave, master)) text += (text.empty() ? "" : ", ") + port_name(kind, false, slave);
  return text;
}

}  // namespace onedispatch::sim
