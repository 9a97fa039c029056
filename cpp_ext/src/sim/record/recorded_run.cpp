// SPDX-License-Identifier: Apache-2.0
// Runs of a context that records: on the engine, or as they were recorded.
#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "sim/array/bytes.h"
#include "sim/control/controller.h"
#include "sim/record/builder.h"
#include "sim/record/playback.h"
#include "sim/record/recorder.h"

namespace onedispatch::sim {

namespace {

// What the run writes of device memory, one range after the other.
std::vector<uint8_t> copy_of(const std::vector<WordRange>& ranges, const DdrRegions& regions) {
  std::vector<uint8_t> copy;
  for (const WordRange& range : ranges) {
    const uint8_t* const from = words_at(*regions[range.argument], range.first);
    copy.insert(copy.end(), from, from + size_t{4} * range.words);
  }
  return copy;
}

void put_back(const std::vector<uint8_t>& copy, const std::vector<WordRange>& ranges, const DdrRegions& regions) {
  const uint8_t* from = copy.data();
  for (const WordRange& range : ranges) {
    std::memcpy(words_at(*regions[range.argument], range.first), from, size_t{4} * range.words);
    from += size_t{4} * range.words;
  }
}

constexpr uint8_t kScrambled = 0xA5;

// Which NaN comes of several depends on the order of operands of an instruction, which is the compiler's. Words do not say
// what they hold: one NaN of 32 bits, or two values of 16.
bool same_but_for_nans(const uint8_t* a, const uint8_t* b) {
  const uint32_t x = load32(a), y = load32(b);
  const auto nan = [](uint32_t word) { return (word & 0x7FFFFFFFu) > 0x7F800000u; };
  const auto half_nan = [](uint32_t half) { return (half & 0x7FFFu) > 0x7C00u; };  // those of bf16, too
  const auto same_half = [&](uint32_t p, uint32_t q) { return p == q || (half_nan(p) && half_nan(q)); };
  return x == y || (nan(x) && nan(y)) || (same_half(x & 0xFFFFu, y & 0xFFFFu) && same_half(x >> 16, y >> 16));
}

std::string first_difference(const std::vector<uint8_t>& played, const std::vector<uint8_t>& by_engine, const std::vector<WordRange>& ranges) {
  size_t at = 0;
  for (const WordRange& range : ranges) {
    for (uint32_t i = 0; i < range.words; ++i, at += 4)
      if (!same_but_for_nans(&played[at], &by_engine[at])) return "word " + std::to_string(range.first + i) + " of argument " + std::to_string(range.argument);
  }
  return "";
}

// Only a recording says beforehand what a run will write: the engine works in staging buffers, whose results `give_back`
// copies to the caller's memory.
class Staged {
 public:
  explicit Staged(const DdrRegions& regions) {
    for (const auto& region : regions) {
      if (region->staging == nullptr) continue;
      std::swap(region->staging, region->data);
      if (!region->is_written) copy(region->staging, region->data, *region);
      moved_.push_back(region);
    }
  }
  void give_back() {
    for (const auto& region : moved_) {
      if (region->is_written) copy(region->data, region->staging, *region);
    }
  }

 private:
  static void copy(const uint8_t* from, uint8_t* to, const DdrRegion& region) {
    const uint64_t first = region.address - region.origin;
    std::memcpy(to + first, from + first, region.bytes);
  }

  DdrRegions moved_;
};

// To make a recording takes many times the memory that it keeps: this returns the rest to the system.
struct GivesBack {
  ~GivesBack() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  }
};

bool writes_to_inputs(const Recording& recording, const DdrRegions& regions) {
  return std::any_of(recording.written.begin(), recording.written.end(), [&](const WordRange& range) {
    const DdrRegion& region = *regions[range.argument];
    return region.staging != nullptr && !region.is_written;
  });
}

}  // namespace

// Why this context's runs stay on the engine; empty where they need not.
std::string Simulator::why_never_recorded() const {
  if (options_.clock) return kTimed;
  if (options_.record == Record::kOff) return "recording is off";
  if (options_.trace) return "kernel calls are traced";
  if (options_.profile) return "the run is profiled";
  if (options_.event_limit != Options{}.event_limit) return "an event limit was set";
  return "";
}

ArrayState Simulator::state() {
  if (!state_known_) {
    std::vector<uint8_t> now = array_.state();
    if (state_ == nullptr || *state_ != now) state_ = std::make_shared<const std::vector<uint8_t>>(std::move(now));
    state_known_ = true;
  }
  return state_;
}

RunReport Simulator::run(const uint8_t* bytes, size_t size, DdrRegions arguments) {
  std::string why = why_never_recorded();
  bool refused = false;
  if (why.empty() && options_.record == Record::kOn) {
    const std::shared_ptr<const Recording> found = holding(bytes, size, arguments);
    if (found != nullptr && play(*found, arguments)) return played(*found, arguments);
    refused = found != nullptr;
  }
  Staged staged(arguments);
  RunReport report;
  if (!why.empty()) {
    report = run_engine(bytes, size, std::move(arguments));
    report.recorded = why;
  } else if (options_.record == Record::kVerify) {
    report = verified_run(holding(bytes, size, arguments).get(), bytes, size, arguments);
  } else {
    report = run_on_engine(bytes, size, std::move(arguments), refused ? "a kernel refused its data" : "");
  }
  staged.give_back();
  return report;
}

// A run that no recording makes; `why`, where it is not worth one either.
RunReport Simulator::run_on_engine(const uint8_t* bytes, size_t size, DdrRegions arguments, std::string why) {
  array_.forget_data();  // whether the runs before were made by the engine or not: their words do not count
  Recordings::History& history = recordings_.history(bytes, size);
  std::shared_ptr<const Recording> made;
  if (why.empty() && !broken_ && history.worth_recording()) return recording_run(bytes, size, arguments, made);
  if (why.empty()) why = history.worth_recording() ? "the run before it failed" : history.why();
  history.ran = true;
  RunReport report = run_engine(bytes, size, std::move(arguments));
  report.recorded = why;
  return report;
}

// The recording of such a run; null where there is none.
std::shared_ptr<const Recording> Simulator::holding(const uint8_t* bytes, size_t size, const DdrRegions& arguments) {
  if (broken_ || !recordings_.knows(bytes, size)) return nullptr;
  std::shared_ptr<const Recording> found = recordings_.find(bytes, size, arguments, state(), array_);
  return found != nullptr && writes_to_inputs(*found, arguments) ? nullptr : found;
}

RunReport Simulator::played(const Recording& recording, const DdrRegions& arguments) {
  for (const WordRange& range : recording.written) {
    const DdrRegion& region = *arguments[range.argument];
    region.valid->mark(word_of(region, range.first), range.words);
  }
  recording.descriptors.leave_in(array_);
  array_.now += recording.took;
  prints_.clear();
  RunReport report = recording.report;
  report.recorded = kPlayed;
  return report;
}

// A run of the engine that is written down; `made` is null where it could not be. It serves other runs where it
// leaves the array as it found it, but for BDs that it writes.
RunReport Simulator::recording_run(const uint8_t* bytes, size_t size, const DdrRegions& arguments, std::shared_ptr<const Recording>& made) {
  const GivesBack gives_back;
  const ArrayState before = broken_ ? nullptr : state();
  const uint64_t start = array_.now;
  Recorder recorder(array_, arguments);
  RunReport report = run_engine(bytes, size, arguments);
  Recordings::History& history = recordings_.history(bytes, size);
  report.recorded = kRecorded;
  try {
    if (!recorder.refusal().empty()) throw NotRecordable{recorder.refusal()};
    if (overlap(arguments)) {
      report.recorded = "two of its arguments overlap";
      ++history.failures;
      return report;
    }
    std::shared_ptr<Recording> recording = RecordingBuilder::make(recorder.take(), arguments, options_.threads);
    recording->guard.instructions.assign(bytes, bytes + size);
    recording->descriptors = recorder.descriptors();
    recording->report = report;
    recording->report.calls_made = recording->kernel_calls();
    recording->report.kept_bytes = uint64_t{4} * recording->kept_words;
    recording->took = array_.now - start;
    made = std::move(recording);
  } catch (const NotRecordable& reason) {
    if (before != nullptr) history.refusal = reason.why;
    report.recorded = reason.why;
    return report;
  }
  if (state() == before && made->descriptors.are_in(array_)) {
    recordings_.add(made, before);
  } else {
    report.recorded = "it leaves the array in another state than it found";
    ++history.failures;
  }
  return report;
}

bool Simulator::play(const Recording& recording, const DdrRegions& arguments) {
  return Playback(recording, arguments, kept_, options_.threads).run();
}

// Both ways: from the recording that holds, or else from that of the very run, which is another one to the data.
RunReport Simulator::verified_run(const Recording* found, const uint8_t* bytes, size_t size, const DdrRegions& arguments) {
  std::vector<uint8_t> before, played;
  bool complete = true;
  if (found != nullptr) {
    before = copy_of(found->written, arguments);
    complete = play(*found, arguments);
    played = copy_of(found->written, arguments);
    put_back(before, found->written, arguments);
  }
  array_.forget_data();
  std::shared_ptr<const Recording> made;
  RunReport report = recording_run(bytes, size, arguments, made);
  const Recording* const judged = found != nullptr ? found : made.get();
  if (judged == nullptr) return report;
  const std::vector<uint8_t> by_engine = copy_of(judged->written, arguments);
  if (found == nullptr) {
    put_back(std::vector<uint8_t>(by_engine.size(), kScrambled), judged->written, arguments);
    complete = play(*judged, arguments);
    played = copy_of(judged->written, arguments);
    put_back(by_engine, judged->written, arguments);
  }
  std::string difference = complete ? "" : "a kernel refuses its data, which";
  if (report.cycles != judged->report.cycles) difference = std::to_string(judged->report.cycles) + " cycles, which";
  if (difference.empty()) difference = first_difference(played, by_engine, judged->written);
  if (!difference.empty()) {
    throw SimulationError("recording", {"a run that was recorded", difference + " differs on the engine", "the same words and cycles both ways",
                                        "Run with record=False, and report this as an error of the simulator."});
  }
  report.recorded = kVerified;
  return report;
}

}  // namespace onedispatch::sim
