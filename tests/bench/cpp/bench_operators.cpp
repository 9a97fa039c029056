// SPDX-License-Identifier: Apache-2.0
// Whole operators in recorded runs, whose calls are joined: from kernel arguments to kernel arguments, nothing of Python
// around them. Cases are those of tests/cpp/make_cases.py that say their work: `float work AMOUNT`, `text unit UNIT`.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "../../cpp/operators/case_file.h"
#include "bench.h"

namespace onedispatch::benchmarks {

namespace {

using operator_tests::CaseFile;

// Recorded at the level that is in use. One is kept: a benchmark is called again for each repetition.
class RecordedRun {
 public:
  static RecordedRun& of(const std::filesystem::path& manifest, const std::string& level) {
    static std::unique_ptr<RecordedRun> last;
    const std::string key = manifest.string() + level;
    if (last == nullptr || last->key_ != key) last = std::make_unique<RecordedRun>(manifest, key);
    return *last;
  }

  RecordedRun(const std::filesystem::path& manifest, const std::string& key) : key_(key), case_(manifest), prepared_(case_.prepared(device())) {
    for (int warm_up = 0; warm_up < 3; ++warm_up) run();
  }
  void run() {
    prepared_.run.start();
    prepared_.run.wait();
  }
  std::string made() const { return prepared_.run.report().recorded; }
  const CaseFile& of_case() const { return case_; }

 private:
  xrt::device device() const {
    xrt::device made = case_.device();
    made.set_threads(1);
    made.set_record("on");
    return made;
  }

  std::string key_;
  CaseFile case_;
  CaseFile::Prepared prepared_;
};

void measure(benchmark::State& state, const std::filesystem::path& manifest, const std::string& level) {
  try {
    RecordedRun& recorded = RecordedRun::of(manifest, level);
    for (auto _ : state) recorded.run();
    set_rate(state, recorded.of_case().text("unit", "runs"), recorded.of_case().number("work", 1));
    state.SetLabel(recorded.made());
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

}  // namespace

void register_operators(const std::string& folder) {
  std::vector<std::filesystem::path> manifests;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".case") manifests.push_back(entry.path());
  std::sort(manifests.begin(), manifests.end());
  for (const auto& manifest : manifests)
    each_level(manifest.stem().string(), [manifest](benchmark::State& state, const char* level) { measure(state, manifest, level); });
}

}  // namespace onedispatch::benchmarks
