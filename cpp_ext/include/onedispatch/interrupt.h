// SPDX-License-Identifier: Apache-2.0
// How the program around a run stops it. A run executes on the thread that called start(), so
// somebody has to ask that thread now and then whether it should go on.
#pragma once

namespace onedispatch {

// Thrown by an interrupt check; derive from it to say more. Passes through every layer: the run
// becomes ABORT, and its context loads the overlay afresh before the next run.
class Interrupted {
 public:
  virtual ~Interrupted() = default;
};

// Called about ten times a second on every thread that simulates or waits for another that does,
// with no lock held. One per process; nullptr: nobody asks.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);

}  // namespace onedispatch
