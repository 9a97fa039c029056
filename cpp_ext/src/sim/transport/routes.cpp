// SPDX-License-Identifier: Apache-2.0
// Follows a stream through the switches, from an MM2S channel to every S2MM channel or control port
// that it reaches.
#include <algorithm>

#include "sim/array/array.h"
#include "sim/array/bytes.h"
#include "onedispatch/txn_format.h"
#include "sim/transport/ports.h"

namespace onedispatch::sim {

struct Array::RouteTrace {
  const Channel* source;
  bool packet;
  uint32_t id;
  Route* route;
  std::vector<uint32_t> seen;  // tile * 64 + slave
};

namespace {

constexpr uint32_t kRoutesPerChannel = 33;  // 32 packet ids and "no packet"
constexpr uint32_t kMuxDma = 1;

// Whether packets come to an arbiter by other ports than `slave`.
bool others_use(const Switch& switches, uint32_t slave, uint32_t arbiter) {
  for (uint32_t i = 0; i < switches.slots.size(); ++i) {
    const uint32_t port = i / reg::SLOTS_PER_SLAVE, value = switches.slaves[port], slot = switches.slots[i];
    if (port == slave || !reg::switch_slave::enable.get(value) || !reg::switch_slave::packet.get(value)) continue;
    if (reg::switch_slot::enable.get(slot) && reg::switch_slot::arbiter.get(slot) == arbiter) return true;
  }
  return false;
}

}  // namespace

void Array::fail_route(const RouteTrace& trace, uint32_t tile, const std::string& port, const std::string& given,
                       const std::string& accepted) const {
  std::string stream = "stream of " + channel_name(*trace.source);
  if (trace.packet) stream += ", packet id " + std::to_string(trace.id);
  fail(*trace.source, "route",
       {stream + ", at " + tile_name(tile) + " " + port, given, accepted,
        "Program the stream switches on the way before the channel starts."});
}

uint32_t Array::source_slave(const Channel& c) const {
  const Tile& tile = tiles_[c.tile];
  if (c.reply) return static_cast<uint32_t>(port_index(tile.kind, false, Port{Side::kControl, 0}));
  if (tile.kind != TileKind::kShim)
    return static_cast<uint32_t>(port_index(tile.kind, false, Port{Side::kDma, c.number}));
  return reg::SHIM_MM2S_SLAVES[c.number];
}

// A switch register was written. Transfers under way keep the route that they began with.
void Array::forget_routes() {
  if (!routes_known_) return;
  for (auto& route : routes_)
    if (route) old_routes_.push_back(std::move(route));
  routes_known_ = false;
}

// Of a stream that begins with the header of the channel's BD, or with none.
const Route* Array::route_of(const Channel& c) { return find_route(c, c.header_due, c.bd.packet_id); }

const Route* Array::find_route(const Channel& c, bool packet, uint32_t id) {
  auto& cached = routes_[c.index * kRoutesPerChannel + (packet ? id : 32)];
  if (cached) return cached.get();
  auto route = std::make_unique<Route>();
  RouteTrace trace{&c, packet, id, route.get(), {}};
  try {
    follow_source(trace);
    check_mixture(c, *route);
  } catch (const SimulationError&) {
    if (!overlay_->provides_route(c, packet)) throw;
  }
  std::sort(route->arbiters.begin(), route->arbiters.end(),
            [](const Route::Arbiter& a, const Route::Arbiter& b) { return a.key < b.key; });
  for (const uint32_t tile : route->controls) {
    const auto same = [&](uint32_t other) { return tiles_[other].kind == tiles_[tile].kind; };
    auto& kinds = route->control_kinds;
    if (std::none_of(kinds.begin(), kinds.end(), same)) kinds.push_back(tile);
  }
  cached = std::move(route);
  routes_known_ = true;
  return cached.get();
}

void Array::check_mixture(const Channel& c, const Route& route) const {
  if (route.controller && (!c.reply || !route.destinations.empty() || !route.controls.empty()))
    fail(c, "route",
         {"stream of " + channel_name(c), "a way to the controller for what is no token",
          "tokens alone, with an id of their own", "Give the packets of data other ids, or other routes."});
  if (!route.packets() || route.destinations.empty()) return;
  fail(c, "unsupported",
       {"stream of " + channel_name(c),
        route.headers_in_data ? "a route to a DMA and, with headers in the data, to a packet-switched port"
                              : "a packet that is routed to a DMA and to a control port",
        "routes to DMAs, or to control ports", "Give the packets ids of their own."});
}

// Where a stream would go now, for explanations; nowhere when its way is not laid.
std::vector<Destination> Array::destinations_of(const Channel& c, bool packet, uint32_t id) const {
  Route route;
  RouteTrace trace{&c, packet, id, &route, {}};
  try {
    follow_source(trace);
  } catch (const SimulationError&) {
    return {};
  }
  return route.destinations;
}

void Array::follow_source(RouteTrace& trace) const {
  const Channel& c = *trace.source;
  const Tile& tile = tiles_[c.tile];
  if (tile.kind == TileKind::kShim && !c.reply) {
    const auto selected = (c.number == 0 ? reg::mux::south_3 : reg::mux::south_7).get(tile.mux);
    if (selected != kMuxDma)
      fail_route(
          trace, c.tile, "MUX register",
          "South slave " + std::string(c.number == 0 ? "3" : "7") + " set to " + std::to_string(selected),
          "1 (DMA)");
  }
  follow_slave(trace, c.tile, source_slave(c), 0, false);
}

void Array::follow_slave(RouteTrace& trace, uint32_t tile_id, uint32_t slave, uint32_t latency, bool drops) const {
  const Tile& tile = tiles_[tile_id];
  const std::string port = port_name(tile.kind, false, slave);
  const uint32_t mark = tile_id * 64 + slave;
  if (std::find(trace.seen.begin(), trace.seen.end(), mark) != trace.seen.end())
    fail_route(trace, tile_id, port, "a route that comes back to a port", "routes that reach each port once");
  trace.seen.push_back(mark);
  const uint32_t value = tile.switches.slaves[slave];
  if (!reg::switch_slave::enable.get(value))
    fail_route(trace, tile_id, port, "the port is not enabled (" + hex(value) + ")", "an enabled slave port");
  const bool packet = reg::switch_slave::packet.get(value) != 0;
  if (packet && !trace.packet) {
    trace.route->headers_in_data = true;  // their ids decide, packet by packet
    return;
  }
  if (packet && drops)
    fail_route(trace, tile_id, port, "a packet whose header an earlier master dropped",
               "headers dropped only behind the last packet-switched port");
  latency += timing_.hop_tile;

  uint32_t arbiter = kNone, msel = 0;
  for (uint32_t i = 0; packet && i < reg::SLOTS_PER_SLAVE && arbiter == kNone; ++i) {
    const uint32_t slot = tile.switches.slots[slave * reg::SLOTS_PER_SLAVE + i];
    if (!reg::switch_slot::enable.get(slot)) continue;
    if ((trace.id & reg::switch_slot::mask.get(slot)) != reg::switch_slot::id.get(slot)) continue;
    arbiter = static_cast<uint32_t>(reg::switch_slot::arbiter.get(slot));
    msel = static_cast<uint32_t>(reg::switch_slot::msel.get(slot));
  }
  if (packet && arbiter == kNone)
    fail_route(trace, tile_id, port, "no slot matches the packet id", "a slot with (id & mask) == its id");
  if (packet) {
    const uint32_t key = tile_id * reg::ARBITERS + arbiter;
    auto& all = trace.route->arbiters;
    const auto same = [key](const Route::Arbiter& a) { return a.key == key; };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back({key, slave});
    trace.route->shared = trace.route->shared || others_use(tile.switches, slave, arbiter);
  }

  bool any = false;
  for (uint32_t m = 0; m < tile.switches.masters.size(); ++m) {
    const uint32_t master = tile.switches.masters[m];
    if (!reg::switch_master::enable.get(master)) continue;
    if ((reg::switch_master::packet.get(master) != 0) != packet) continue;
    const bool mine = packet ? reg::switch_master::arbiter.get(master) == arbiter &&
                                   ((reg::switch_master::msel_enable.get(master) >> msel) & 1) != 0
                             : reg::switch_master::slave.get(master) == slave;
    if (!mine) continue;
    any = true;
    if (!connects(tile.kind, slave, m))
      fail_route(trace, tile_id, port + " SWITCH_SLOT register",
                 "packets sent to " + port_name(tile.kind, true, m),
                 "ports that this kind of tile has a wire from: " + slaves_of(tile.kind, m));
    leave_tile(trace, tile_id, m, latency, drops || (packet && reg::switch_master::drop_header.get(master)));
  }
  if (!any)
    fail_route(
        trace, tile_id, port,
        packet ? "no master port takes arbiter " + std::to_string(arbiter) + " msel " + std::to_string(msel)
               : "no master port takes this slave",
        "a master port that leads on");
}

void Array::leave_tile(RouteTrace& trace, uint32_t tile_id, uint32_t master, uint32_t latency, bool drops) const {
  const Tile& tile = tiles_[tile_id];
  const Port port = port_at(tile.kind, true, master);
  const std::string name = port_name(tile.kind, true, master);
  uint32_t number = port.lane;
  bool dma = port.side == Side::kDma;
  if (tile.kind == TileKind::kShim && port.side == Side::kSouth) {
    if (master == reg::CONTROLLER_MASTER && trace.packet) {
      trace.route->controller = true;
      trace.route->latency = std::max(trace.route->latency, latency);
      return;
    }
    const bool first = master == reg::SHIM_S2MM_MASTERS[0];
    if (!first && master != reg::SHIM_S2MM_MASTERS[1])
      fail_route(trace, tile_id, name, "a stream to the PL or NoC", "South master 2 (S2MM0) or 3 (S2MM1)");
    if ((first ? reg::demux::south_2 : reg::demux::south_3).get(tile.demux) != kMuxDma)
      fail_route(trace, tile_id, "DEMUX register", name + " not set to DMA", "1 (DMA)");
    dma = true;
    number = first ? 0 : 1;
  }
  if (dma) {
    trace.route->to_shim = trace.route->to_shim || tile.kind == TileKind::kShim;
    trace.route->destinations.push_back(Destination{tile.first_s2mm + number, trace.packet && !drops});
    trace.route->latency = std::max(trace.route->latency, latency);
    return;
  }
  if (port.side == Side::kControl) {
    if (!trace.packet)
      fail_route(trace, tile_id, name, "a stream without packet header",
                 "packets: with a header from the BD, or through a packet-switched port");
    trace.route->controls.push_back(tile_id);
    trace.route->latency = std::max(trace.route->latency, latency);
    return;
  }
  int columns = 0, rows = 0;
  Side arrives = Side::kSouth;
  switch (port.side) {
    case Side::kNorth:
      rows = 1;
      arrives = Side::kSouth;
      break;
    case Side::kSouth:
      rows = -1;
      arrives = Side::kNorth;
      break;
    case Side::kEast:
      columns = 1;
      arrives = Side::kWest;
      break;
    case Side::kWest:
      columns = -1;
      arrives = Side::kEast;
      break;
    default: fail_route(trace, tile_id, name, "a stream into this port", "ports that lead to a DMA or a control port");
  }
  const Tile* next = neighbour(tile, columns, rows);
  const int slave = next == nullptr ? -1 : port_index(next->kind, false, Port{arrives, port.lane});
  if (slave < 0)
    fail_route(trace, tile_id, name, "a stream that leaves the array", "ports with a tile on the other side");
  follow_slave(trace, next->index, static_cast<uint32_t>(slave), latency + timing_.hop_link, drops);
}

}  // namespace onedispatch::sim
