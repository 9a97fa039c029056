/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test::blend@1 in plain C: five inputs, an auxiliary tensor, 32 scalars, scratch and two outputs over a box of
 * rank five. total = the inputs weighted + the other weights + the table's sum; spread = largest - smallest.
 */
#include <stdlib.h>
#include <string.h>

#include "blend_specs.h"

enum { INPUTS = 5 };

typedef struct plan {
  od_setup setup;
  float weights[OD_MAX_SCALARS];
} plan;

static od_status refuse(od_error* error, od_status status, const char* text) {
  strncpy(error->text, text, sizeof error->text - 1);
  error->text[sizeof error->text - 1] = 0;
  return status;
}

static od_status prepare(const od_setup* setup, void** made, od_error* error) {
  plan* p;
  uint32_t i;
  float first;
  memcpy(&first, setup->scalars, sizeof first);
  if (first == 13.0f) return refuse(error, OD_NOT_SUPPORTED, "w0 is 13; accepted: any other weight");
  if (first == 15.0f) return refuse(error, OD_NOT_SUPPORTED, "w0 is \xff\xfe");
  if (first == 14.0f) return refuse(error, 77, "a code that nobody knows");
  p = malloc(sizeof *p);
  if (p == NULL) return refuse(error, OD_OUT_OF_MEMORY, "no memory for a plan");
  p->setup = *setup;
  for (i = 0; i < OD_MAX_SCALARS; ++i) memcpy(p->weights + i, setup->scalars + i, sizeof *p->weights);
  *made = p;
  return OD_OK;
}

static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y < 0); }

/* Element of the chunk that member `at` of the tile takes, along all axes. */
static int64_t element(const od_operand* x, const od_call* call, const uint32_t at[OD_MAX_DIMS]) {
  int64_t found = 0;
  uint32_t d;
  for (d = 0; d < x->n_axes; ++d) {
    const od_axis* axis = x->axes + d;
    int64_t begins = floor_div(axis->a * call->origin[d], axis->den) + axis->b;
    const int64_t wanted = floor_div(axis->a * ((int64_t)call->origin[d] + at[d]), axis->den) + axis->b;
    if (axis->stride == 0) continue;
    begins = floor_div(begins, axis->align) * axis->align;
    if (begins > axis->extent - axis->chunk) begins = axis->extent - axis->chunk;
    if (begins < 0) begins = 0;
    found += (wanted - begins) * axis->stride;
  }
  return found;
}

static od_status run(const void* made, const od_call* call, od_error* error) {
  const plan* p = made;
  const od_setup* setup = &p->setup;
  const float* table = (const float*)call->operand[TEST_BLEND_TABLE];
  float* spread = (float*)call->operand[TEST_BLEND_SPREAD];
  float* kept = (float*)call->scratch;
  const int64_t entries = setup->operands[TEST_BLEND_TABLE].axes[0].chunk;
  float constant = 0;
  uint32_t at[OD_MAX_DIMS] = {0, 0, 0, 0, 0};
  uint32_t n = 0, i, elements = 1;
  int64_t e;
  for (i = INPUTS; i < OD_MAX_SCALARS; ++i) constant += p->weights[i];
  for (e = 0; e < entries; ++e) constant += table[e];
  for (i = 0; i < OD_MAX_DIMS; ++i) elements *= setup->dims[i].tile;
  if (setup->scratch_bytes < elements * sizeof(float)) return refuse(error, OD_BUFFER_TOO_SMALL, "scratch");
  for (n = 0; n < elements; ++n) {
    float total = 0, low = 0, high = 0;
    for (i = 0; i < INPUTS; ++i) {
      const float x = ((const float*)call->operand[i])[element(setup->operands + i, call, at)];
      total += p->weights[i] * x;
      low = i == 0 || x < low ? x : low;
      high = i == 0 || x > high ? x : high;
    }
    kept[n] = total + constant;
    spread[n] = high - low;
    for (i = OD_MAX_DIMS; i-- > 0 && ++at[i] == setup->dims[i].tile;) at[i] = 0;
  }
  memcpy(call->operand[TEST_BLEND_TOTAL], kept, elements * sizeof(float));
  return OD_OK;
}

static const od_kernel blend = {&test_blend_spec, prepare, NULL, run, free};
static const od_kernel* const kernels[] = {&blend};
static const od_library library = {OD_LIBRARY_HEAD, "test", kernels, 1, 0, 0};

OD_EXPORT const od_library* od_kernel_library(void);
const od_library* od_kernel_library(void) { return &library; }
