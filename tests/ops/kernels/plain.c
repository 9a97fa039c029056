/* SPDX-License-Identifier: Apache-2.0 */
/* A library of custom kernels in plain C: z = a*x + y, and z = table[x] with a table of the node's own. */
#include <stdlib.h>
#include <string.h>

#include "onedispatch/plugin.h"

#define F32 (1u << OD_DTYPE_F32)
#define U8 (1u << OD_DTYPE_U8)

static od_status refuse(od_error* error, od_status status, const char* text) {
  strncpy(error->text, text, OD_ERROR_BYTES - 1);
  return status;
}

/* The index space is the first input; every operand lies as it does. */
static od_status elementwise(const od_node* node, od_instance* instance, uint32_t operands, uint32_t dtype) {
  const od_node_tensor* x = node->inputs;
  uint32_t i, d;
  instance->rank = instance->outputs[0].rank = x->rank;
  instance->outputs[0].dtype = dtype;
  for (d = 0; d < x->rank; ++d) {
    instance->index_space[d] = instance->outputs[0].shape[d] = x->shape[d];
    for (i = 0; i < operands; ++i) instance->access[i][d].dim = d;
  }
  return OD_OK;
}

static od_status prepare(const od_setup* setup, void** plan, od_error* error) {
  od_setup* copy = malloc(sizeof *copy);
  if (copy == NULL) return refuse(error, OD_OUT_OF_MEMORY, "");
  *copy = *setup;
  *plan = copy;
  return OD_OK;
}

/* Elements from the chunk's beginning to that of the member at `at`, counted from the call's first. */
static int64_t element(const od_operand* operand, const od_call* call, const uint32_t* at) {
  int64_t offset = 0;
  uint32_t i;
  for (i = 0; i < operand->n_axes; ++i) {
    const od_axis* axis = operand->axes + i;
    const int64_t member = axis->along == OD_ALONG_NOTHING ? 0 : at[axis->along];
    offset += (od_member_first(axis, call, member) - od_chunk_first(axis, call)) * axis->stride;
  }
  return offset;
}

/* The next member, the last dimension innermost; 0 after the last one. */
static int next(const od_call* call, uint32_t* at) {
  uint32_t d;
  for (d = OD_MAX_DIMS; d-- > 0;) {
    if (++at[d] < call->count[d]) return 1;
    at[d] = 0;
  }
  return 0;
}

/* ---- z = a*x + y ---- */

static const od_declared_operand scale_add_operands[] = {
    {"x", OD_ROLE_INPUT, 0, F32, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"y", OD_ROLE_INPUT, 0, F32, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"z", OD_ROLE_OUTPUT, 0, F32, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0}};
static const od_declared_scalar scale_add_scalars[] = {{"a", OD_SCALAR_F32, 0, 0, 0, 0, 0}};
static const od_declared scale_add_declared = {
    "plain::scale_add", "a*x + y", scale_add_operands, 3, scale_add_scalars, 1, NULL, 0, 0, 1, {1, 1}, 0, 0};

static od_status scale_add_instantiate(const od_node* node, od_instance* instance, od_error* error) {
  const od_node_tensor *x = node->inputs, *y = node->inputs + 1;
  if (x->rank != y->rank || memcmp(x->shape, y->shape, sizeof x->shape) != 0) return refuse(error, OD_INPUT_SIZE, "x and y of two shapes");
  return elementwise(node, instance, 3, OD_DTYPE_F32);
}

static od_status scale_add_run(const void* plan, const od_call* call, od_error* error) {
  const od_setup* setup = plan;
  uint32_t at[OD_MAX_DIMS] = {0, 0, 0, 0, 0};
  float a;
  (void)error;
  memcpy(&a, setup->scalars, sizeof a);
  do {
    const float x = ((const float*)call->operand[0])[element(setup->operands, call, at)];
    const float y = ((const float*)call->operand[1])[element(setup->operands + 1, call, at)];
    ((float*)call->operand[2])[element(setup->operands + 2, call, at)] = a * x + y;
  } while (next(call, at));
  return OD_OK;
}

/* ---- z = table[x], the table larger than the first buffer ---- */

#define ENTRIES 2048u

static const od_declared_operand lookup_operands[] = {
    {"x", OD_ROLE_INPUT, 0, U8, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"table", OD_ROLE_AUX, 0, F32, 1, 1, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"z", OD_ROLE_OUTPUT, 0, F32, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0}};
static const od_declared_scalar lookup_scalars[] = {{"base", OD_SCALAR_I32, 1, 0, 1000, 1, 3}};
static const char* const lookup_devices[] = {"npu2"};
static const od_declared lookup_declared = {
    "plain::lookup@2", NULL, lookup_operands, 3, lookup_scalars, 1, lookup_devices, 1, 1024, 0, {0}, 0, 0};

static od_status lookup_instantiate(const od_node* node, od_instance* instance, od_error* error) {
  uint32_t i;
  od_aux* table = instance->aux;
  table->rank = 1;
  table->shape[0] = ENTRIES;
  table->bytes = ENTRIES * sizeof(float);
  if (table->bytes > table->capacity) return refuse(error, OD_AUX_BUFFER_TOO_SMALL, "the table");
  for (i = 0; i < ENTRIES; ++i) ((float*)table->data)[i] = (float)instance->scalars[0] + (float)i * 0.25f;
  return elementwise(node, instance, 2, OD_DTYPE_F32);
}

static od_status lookup_run(const void* plan, const od_call* call, od_error* error) {
  const od_setup* setup = plan;
  const float* table = (const float*)call->operand[1];
  uint32_t at[OD_MAX_DIMS] = {0, 0, 0, 0, 0};
  (void)error;
  do {
    const uint8_t x = call->operand[0][element(setup->operands, call, at)];
    ((float*)call->operand[2])[element(setup->operands + 2, call, at)] = table[x * setup->operands[1].axes[0].stride];
  } while (next(call, at));
  return OD_OK;
}

static const od_plugin scale_add = {OD_PLUGIN_HEAD, &scale_add_declared, scale_add_instantiate, prepare, NULL, scale_add_run, free};
static const od_plugin lookup = {OD_PLUGIN_HEAD, &lookup_declared, lookup_instantiate, prepare, NULL, lookup_run, free};

OD_PLUGINS("plain", &scale_add, &lookup)
