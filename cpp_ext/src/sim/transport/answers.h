// SPDX-License-Identifier: Apache-2.0
// What leaves by the control port of a tile: words that packets asked for, and tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "onedispatch/errors.h"
#include "sim/array/memory.h"
#include "sim/transport/bd.h"

namespace onedispatch::sim {

// What a control port read for a packet, or a token, and where it goes.
struct Answer {
  uint32_t id;
  std::vector<uint32_t> words;
  OpRef op;  // that pushed the task: with the packet, or of the token
  uint32_t token_of = kNone;
};

struct AnswerPort {
  std::vector<Answer> waiting;  // in order, from `next` on: the room is kept
  size_t next = 0;              // at most half of them are behind
  Memory memory;  // of the one under way

  bool empty() const { return next == waiting.size(); }
  void push(Answer answer) { waiting.push_back(std::move(answer)); }
  Answer pop() {
    Answer first = std::move(waiting[next++]);
    if (2 * next < waiting.size()) return first;
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(next));
    next = 0;
    return first;
  }
};

}  // namespace onedispatch::sim
