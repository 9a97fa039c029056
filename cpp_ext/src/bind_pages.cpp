// SPDX-License-Identifier: Apache-2.0
#include "bind_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace py = pybind11;

namespace {

struct Range {
  std::atomic<uintptr_t> first{0}, end{0};
  std::atomic<bool> missed{false};  // a page was not there
};

// The handler looks through all of them; who finds none free reads files otherwise.
std::array<Range, 64> ranges;  // taken and freed under the GIL
struct sigaction before;
const uintptr_t page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));

bool put_zeros(uintptr_t address) {
  void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
  const int error = errno;
  const bool done = mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
  errno = error;
  return done;
}

void on_missing_page(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range& range : ranges) {
    if (address < range.first || address >= range.end || !put_zeros(address)) continue;
    range.missed = true;
    return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// Once: handlers that come later call this one for what is not theirs, and put it back.
void install() {
  struct sigaction ours = {};
  ours.sa_sigaction = on_missing_page;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, &before);
}

// The number of the range; -1 where there is no room for it.
int guard(const py::buffer& data) {
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  const py::buffer_info info = data.request();
  const auto first = reinterpret_cast<uintptr_t>(info.ptr);
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first != 0) continue;
    ranges[i].missed = false;
    ranges[i].first = first;
    ranges[i].end = first + static_cast<uintptr_t>(info.size * info.itemsize);
    return static_cast<int>(i);
  }
  return -1;
}

void unguard(size_t number) {
  Range& range = ranges.at(number);
  range.end = 0;
  range.first = 0;
}

}  // namespace

void bind_pages(py::module_& m) {
  m.def("guard_pages", &guard, py::arg("data"));
  m.def("unguard_pages", &unguard, py::arg("number"));
  m.def("missed_pages", [](size_t number) { return ranges.at(number).missed.load(); }, py::arg("number"));
}
