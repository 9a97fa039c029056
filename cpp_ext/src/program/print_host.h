// SPDX-License-Identifier: Apache-2.0
// What a call hands its lines to: the log of its core.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <utility>

#include "onedispatch/kernel.h"
#include "onedispatch/print_log.h"

namespace onedispatch {

// For one call, on the thread that makes it.
class PrintHost {
 public:
  // `first`: the member of the tile that lines are of which name none.
  PrintHost(PrintLog* log, const uint32_t (&first)[OD_MAX_DIMS]) : host_{&print, nullptr, this}, log_(log) {
    std::copy(std::begin(first), std::end(first), first_.begin());
  }
  PrintHost(const PrintHost&) = delete;
  PrintHost& operator=(const PrintHost&) = delete;
  const od_host* host() const { return &host_.base; }

 private:
  struct Face {
    od_host base;
    PrintHost* self;
    Face(void (*print)(const od_host*, const uint32_t*, const char*), void (*touched)(const od_host*, uint32_t, const int64_t*, uint32_t, uint32_t),
         PrintHost* owner)
        : base{print, touched}, self(owner) {}
  };

  // Comes from a kernel in C: nothing is thrown into it.
  static void print(const od_host* host, const uint32_t* member, const char* text) noexcept {
    PrintHost& self = *reinterpret_cast<const Face*>(host)->self;
    std::array<uint32_t, OD_MAX_DIMS> of = self.first_;
    if (member != nullptr) std::copy(member, member + OD_MAX_DIMS, of.begin());
    try {
      self.log_->add(of, text == nullptr ? "" : std::string(text, strnlen(text, kMostPrintBytes)));
    } catch (const std::bad_alloc&) {
      self.log_->lose();
    }
  }

  Face host_;
  PrintLog* log_;
  std::array<uint32_t, OD_MAX_DIMS> first_{};
};

}  // namespace onedispatch
