// SPDX-License-Identifier: Apache-2.0
// Stands in for the overlay that a foreign transaction was written for. What the overlay would have set up is open, and
// everything that the transaction itself states is real.
//
// - A stream that no switch register leads on swallows what an MM2S channel sends; an S2MM channel
//   whose switch port was never enabled is fed a pattern. Both at the rate of the stream.
// - Host buffers are as large as BDs reach. They hold no bytes: reads give the pattern (replay_executor.h).
// - A core without program answers like a super kernel that waits for parameters: lock 14 starts at
//   1, and a while after lock 15 was released it takes that and releases 14.
// - Locks start at 0. Some have a partner that the transaction does not show (a BD or an initial
//   value of the overlay). It acts only when nothing else can happen any more, and then sets the
//   lock to what is waited for. Assumed of locks that no actor ever set or released; where no such
//   lock is waited for, of those that were not released since they were set. A lock that an actor
//   releases has its partner in the transaction, so waiting for it is a real deadlock.
// - Outputs may overtake inputs; catch_up.cpp keeps the order that cores would have kept.
// - A BD that the transaction never wrote belongs to the overlay or to control packets that were not
//   given: it moves nothing. Given ones come with routes to the control ports, laid beforehand, and
//   go there as in any run. What holds no bytes passes these routes as if they were not there.
// - A token of a memory tile's or core's channel that never had a task is one of a task that control packets push:
//   where they were not given and nothing else can happen any more, it is taken to have come.
// - A lock that is released above 63 and never acquired is emptied by its unseen partner.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "sim/array/array.h"
#include "sim/array/overlay_policy.h"

namespace onedispatch::sim {

constexpr uint64_t kAnswerCycles = 1000;  // from lock 15 of an absent core program to lock 14

class AbsentOverlay final : public OverlayPolicy {
 public:
  explicit AbsentOverlay(Array& array) : array_(array) {}

  void reset() override;
  bool provides_bd(Channel& channel) override;
  bool provides_route(const Channel& channel, bool packet) const override;
  bool provides_token_route() override;
  bool empties(const Lock& lock, uint32_t tile) override;
  void relax_padding(Channel& channel) const override;
  bool feeds(Channel& channel) override;
  void fed(Channel& channel) override;
  void lock_changed(const Tile& tile) override;
  void answer(Core& core) override;
  bool is_open(const Channel& channel) const override { return streams_[channel.index].open; }

  // Nothing can happen any more. Serves locks as a partner would whom the transaction does not show: the one of a lock
  // request that the controller polls, and those that channels wait for. False when there is no such lock.
  bool serve_starved(const uint64_t* polled_address);
  // The same for tokens that come of control packets alone. False when the channels have none of them due.
  bool give_tokens_of_packets(const std::vector<Channel*>& waited_for);
  // A channel whose tasks control packets push, if anything does.
  bool has_unseen_tasks(const Channel& channel) const;
  // A write of these words takes away what a running task still needs (catch_up.cpp).
  bool takes_away(uint64_t address, uint32_t words, uint32_t value) const;
  // The controller no longer waits for the tasks that run now.
  void give_up();
  // What tasks whose chains end have done; it ends with them.
  uint64_t progress() const { return array_.progress + segments_; }

  // --- For the executor ---
  void note_segment(const Channel& channel);
  void open(const Channel& channel) { streams_[channel.index].open = true; }
  // The next words of the pattern that the channel's open side supplies.
  void pattern(const Channel& channel, uint8_t* to, uint64_t words);

  // --- For the report ---
  using Place = std::pair<uint32_t, uint32_t>;  // a tile, and a number in it
  const std::map<Place, uint32_t>& absent_bds() const { return absent_bds_; }
  const std::map<Place, uint32_t>& assumed_locks() const { return assumed_locks_; }
  uint64_t answers() const { return answers_; }
  uint64_t assumed_tokens() const { return assumed_tokens_; }
  uint64_t packet_tokens() const { return packet_tokens_; }
  bool answers_soon(const Core& core) const { return due_[core.index] != 0; }

 private:
  struct Stream {
    bool open = false;
    uint64_t words = 0;       // of the pattern that its open side supplied
    uint32_t given_up = 0;  // its task of this number: a write that took something from it waited in vain
  };

  bool is_open_source(const Channel& channel) const;
  bool serve_as_partner(Tile& tile, uint32_t id, int32_t wanted, bool set_ones);
  bool is_waited_for(const Channel& channel) const { return channel.running && streams_[channel.index].given_up != channel.tasks; }
  bool takes_bds(const Tile& tile, uint32_t first, uint32_t last) const;
  bool takes_lock(const Tile& tile, uint32_t id, int32_t value) const;

  Array& array_;
  std::vector<Stream> streams_;          // by channel
  std::vector<uint8_t> due_;             // by core: an absent program will answer
  std::map<Place, uint32_t> absent_bds_;     // queued without having been written, how often
  std::map<Place, uint32_t> assumed_locks_;  // times that an unseen partner was taken to have served one
  uint64_t answers_ = 0, assumed_tokens_ = 0, packet_tokens_ = 0, segments_ = 0;
  std::vector<uint8_t> scratch_;
};

}  // namespace onedispatch::sim
