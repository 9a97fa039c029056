// SPDX-License-Identifier: Apache-2.0
// How the program around a run stops it. A run executes on the thread that called start(), so
// that thread has to be asked now and then whether the run should go on.
#pragma once

namespace onedispatch {

// Thrown by an interrupt check; derive from it to say more. Passes through every layer: the run
// becomes ABORT, and its context loads the overlay afresh before the next run.
class Interrupted {
 public:
  virtual ~Interrupted() = default;
};

// Called about ten times a second on every thread that simulates or waits for another that does,
// with no lock held. One per process; nullptr: no thread is asked.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);

// What a thread holds of the program around us (an interpreter's lock) that others may need to end what it
// waits for: it is given back around every such wait. `step_back` returns what `step_forth` is handed, null
// where there was nothing to give back.
using StepBack = void* (*)();
using StepForth = void (*)(void* held);
void set_waiting_hooks(StepBack step_back, StepForth step_forth);

}  // namespace onedispatch
