// SPDX-License-Identifier: Apache-2.0
// What the instrumentation of the sanitized libraries calls, in programs that no fuzzer drives: nothing is
// counted. AddressSanitizer's library has the comparisons of integers.
extern "C" {

void __sanitizer_cov_trace_pc() {}
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

}  // extern "C"
