// SPDX-License-Identifier: Apache-2.0
// Task completion tokens: packets from the tile's control port to the controller.
//
// When a task with "token issue" ends, its tile sends a packet with the channel's controller id. It
// takes the way that the switches give to that id, arbiters included, behind what else leaves by the
// control port, and must come to the shim's port to the controller. There it counts.
// tests/array_model/README.md (Readings) says what of this is certain.
#include "sim/array/array.h"
#include "onedispatch/txn_format.h"

namespace onedispatch::sim {
namespace {

// The controller id is a stream header's: five bits of packet id. No public file uses the others.
constexpr uint32_t kIdMask = 31;

}  // namespace

// Where the token of the channel's task goes. Null: by way of an overlay that is not here.
const Route* Array::route_of_token(const Channel& c, uint32_t id) {
  const Channel& port = channels_[tiles_[c.tile].answers];
  const auto where = [&] {
    return "token of " + channel_name(c) + ", task pushed by op " + std::to_string(c.task.op.index) +
           ", controller id " + std::to_string(id);
  };
  try {
    const Route* route = find_route(port, true, id);
    if (route->controller) return route;
    if (overlay_->provides_token_route()) return nullptr;
  } catch (SimulationError& error) {
    error.complaint.where = where() + ": " + error.complaint.where;
    error.complaint.remedy = "Lay the token's route in the overlay, or push the task without token.";
    SimulationError full(error.kind, error.complaint, error.column, error.row);
    full.op = c.task.op;
    throw full;
  }
  fail(c, "route",
       {where(), "a route to a DMA or a control port", "a route to South master 0 of a shim: the controller",
        "Give tokens a packet id of their own, and set it as the channel's controller id."});
}

void Array::issue_token(Channel& c) {
  const auto id = static_cast<uint32_t>(reg::channel::controller_id.get(c.control)) & kIdMask;
  if (route_of_token(c, id) == nullptr) {
    ++c.tokens;
    ++tokens_arrived;
    return;
  }
  Channel& port = channels_[tiles_[c.tile].answers];
  answer_ports_[c.tile].push(Answer{id, {}, c.task.op, c.index});
  if (!port.running) start_answer(port);
}

void Array::finish_token(Channel& port) {
  Channel& c = channels_[port.token_of];
  port.token_of = kNone;
  port.words_left = 0;
  port.busy += now - port.segment_start;
  port.last_end = now;
  ++c.tokens;
  ++tokens_arrived;
  finish_answer(port);
}

}  // namespace onedispatch::sim
