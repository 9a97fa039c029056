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

using Coordinates = std::array<uint32_t, OD_MAX_DIMS>;

// The first member of a call; OD_NO_MEMBER behind the last dimension of a member kernel's index space. Blocks say of
// dimensions that it has and that are not cut that they are whole, also where they have one member only.
inline Coordinates first_of(const od_setup& setup, const od_call& call) {
  Coordinates first{};
  const bool members = setup.spec->members != 0;
  std::copy_n(members ? call.member : call.origin, OD_MAX_DIMS, first.begin());
  for (size_t d = OD_MAX_DIMS; members && d-- > 1 && setup.total[d] == 1 && setup.whole[d] == 0;) first[d] = OD_NO_MEMBER;
  return first;
}

// For one call, on the thread that makes it.
class PrintHost {
 public:
  // `first`: the member of the tile that lines are of which name none.
  PrintHost(PrintLog* log, const Coordinates& first) : host_{&print, nullptr, this}, log_(log), first_(first) {}
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
    Coordinates of = self.first_;
    for (size_t d = 0; member != nullptr && d < of.size() && of[d] != OD_NO_MEMBER; ++d) of[d] = member[d];
    try {
      self.log_->add(of, text == nullptr ? "" : std::string(text, strnlen(text, kMostPrintBytes)));
    } catch (const std::bad_alloc&) {
      self.log_->lose();
    }
  }

  Face host_;
  PrintLog* log_;
  Coordinates first_;
};

}  // namespace onedispatch
