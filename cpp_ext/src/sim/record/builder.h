// SPDX-License-Identifier: Apache-2.0
// Makes a recording of what a run moved and computed.
#pragma once
#include <memory>
#include <vector>

#include "sim/record/dataflow.h"
#include "sim/record/join.h"
#include "sim/record/kept_chunks.h"
#include "sim/record/order.h"
#include "sim/record/recording.h"

namespace onedispatch::sim {

class RecordingBuilder {
 public:
  // Throws NotRecordable where the run cannot be made again. It will be by so many threads, or any number; 0: several.
  static std::shared_ptr<Recording> make(Dataflow flow, const DdrRegions& regions, unsigned threads);

 private:
  RecordingBuilder(Dataflow flow, const DdrRegions& regions, unsigned threads);
  std::shared_ptr<Recording> build();
  void add_views();
  void add_calls();
  void add_stores();
  void add_store(const DdrAccess& access);
  void add_units();
  void add_run(Space space, uint32_t first, uint32_t local, uint32_t words);
  uint32_t add_view(uint32_t words);
  void read_all();
  void order();
  void group();
  void cut();
  void move_kept();
  void keep();
  void forget();
  void join();
  void share(const Join& join, std::vector<JoinedPart>& parts);
  template <typename Use>
  void written_last(const std::vector<Stored>& all, std::vector<size_t> places, Use use) const;
  void store_all();
  void sort();

  Dataflow flow_;
  const DdrRegions& regions_;
  unsigned threads_;
  DdrRegions places_;  // the regions, and what is kept
  std::shared_ptr<Recording> made_ = std::make_shared<Recording>();
  Order order_;
  KeptChunks kept_;
  BlockBuilder data_, padding_;
  std::vector<Stored> stored_;  // as it happened, then by parts
  std::vector<uint32_t> ends_;  // of each access
  uint32_t occurrences_;
  std::vector<uint32_t> level_;    // of each occurrence
  std::unordered_map<uint32_t, const CallableOperation*> in_place_;  // by part
  std::vector<uint8_t> replaced_;  // by part: joined ones compute what it did
};

}  // namespace onedispatch::sim
