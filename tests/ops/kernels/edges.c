/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test::edges@1 in plain C: the sum of three neighbours for every second member of the last dimension. What lies
 * outside of the tensor, and what outputs between hold, stands in the declaration.
 */
#include <stdlib.h>

#include "edges_specs.h"

enum { LAST = OD_MAX_DIMS - 1 };

static od_status prepare(const od_setup* setup, void** made, od_error* error) {
  od_setup* kept = malloc(sizeof *kept);
  (void)error;
  if (kept == NULL) return OD_OUT_OF_MEMORY;
  *kept = *setup;
  *made = kept;
  return OD_OK;
}

/* Coordinate that the chunk begins at, along one axis. */
static int64_t begins(const od_axis* axis, uint32_t origin) {
  const int64_t wanted = axis->a * origin + axis->b;
  if (wanted > axis->extent - axis->chunk) return axis->extent - axis->chunk;
  return wanted < 0 ? 0 : wanted;
}

static od_status run(const void* made, const od_call* call, od_error* error) {
  const od_setup* setup = made;
  const od_operand* x = setup->operands + TEST_EDGES_X;
  const float pad = (float)setup->spec->operands[TEST_EDGES_X].pad;
  const float fill = (float)setup->spec->operands[TEST_EDGES_Y].fill;
  float* y = (float*)call->operand[TEST_EDGES_Y];
  uint32_t at[OD_MAX_DIMS] = {0, 0, 0, 0, 0}, n, d, elements = 1;
  (void)error;
  for (d = 0; d < OD_MAX_DIMS; ++d) elements *= setup->dims[d].tile;
  for (n = 0; n < elements; ++n) {
    const int64_t member = (int64_t)call->origin[LAST] + at[LAST];
    int64_t row = 0, tap;
    float sum = 0;
    for (d = 0; d < LAST; ++d) row += (x->axes[d].a * (call->origin[d] + (int64_t)at[d]) - begins(x->axes + d, call->origin[d])) * x->axes[d].stride;
    for (tap = member - 1; tap <= member + 1; ++tap) {
      const int64_t local = tap - begins(x->axes + LAST, call->origin[LAST]);
      const int inside = tap >= 0 && tap < x->axes[LAST].extent;
      sum += inside ? ((const float*)call->operand[TEST_EDGES_X])[row + local * x->axes[LAST].stride] : pad;
    }
    y[n] = member % 2 == 0 ? sum : fill;
    for (d = OD_MAX_DIMS; d-- > 0 && ++at[d] == setup->dims[d].tile;) at[d] = 0;
  }
  return OD_OK;
}

static const od_kernel edges = {&test_edges_spec, prepare, NULL, run, free};
static const od_kernel* const kernels[] = {&edges};
static const od_library library = {OD_LIBRARY_HEAD, "edges", kernels, 1, 0, 0};

OD_EXPORT const od_library* od_kernel_library(void);
const od_library* od_kernel_library(void) { return &library; }
