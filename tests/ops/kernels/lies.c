/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in whose instance is wrong in the way that attribute "lie" names; z is x. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onedispatch/plugin.h"

#ifndef DECLARED_NAME
#define DECLARED_NAME "lies::liar"
#endif
#ifndef X_DTYPES
#define X_DTYPES (1u << OD_DTYPE_F32)
#endif
#ifndef X_ROLE
#define X_ROLE OD_ROLE_INPUT
#endif
#ifndef OPERANDS
#define OPERANDS operands, 3
#endif
#ifndef SCALARS
#define SCALARS NULL, 0
#endif
#ifndef DEVICES
#define DEVICES NULL, 0
#endif
#ifndef FUNCTIONS
#define FUNCTIONS instantiate, prepare, NULL, run, free
#endif
#ifndef HEAD
#define HEAD OD_PLUGIN_HEAD
#endif
#ifndef DECLARED
#define DECLARED &declared
#endif
#ifndef PLUGIN
#define PLUGIN &liar
#endif

static const od_declared_operand operands[] = {
    {"x", X_ROLE, 0, X_DTYPES, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"table", OD_ROLE_AUX, 0, 1u << OD_DTYPE_F32, 1, 1, 0, OD_QUANTISED_ANY, NULL, 0, 0},
    {"z", OD_ROLE_OUTPUT, 0, 1u << OD_DTYPE_F32, 1, 5, 0, OD_QUANTISED_ANY, NULL, 0, 0}};
static const od_declared_scalar many[300] = {{"s", OD_SCALAR_F32, 0, 0, 0, 0, 0}};
static const od_declared_scalar typed[] = {{"s", 7, 0, 0, 0, 0, 0}};
static const char* const devices[] = {NULL};
static const od_declared declared = {DECLARED_NAME, NULL, OPERANDS, SCALARS, DEVICES, 0, 0, {0}, 0, 0};

static int is(const od_node* node, const char* lie) {
  uint32_t i;
  for (i = 0; i < node->n_attributes; ++i) {
    if (strcmp(node->attributes[i].name, "lie") == 0) return strcmp(node->attributes[i].text, lie) == 0;
  }
  return 0;
}

static od_status instantiate(const od_node* node, od_instance* instance, od_error* error) {
  const od_node_tensor* x = node->inputs;
  od_aux* table = instance->aux;
  uint32_t d;
  instance->rank = instance->outputs[0].rank = x->rank;
  for (d = 0; d < x->rank; ++d) {
    instance->index_space[d] = instance->outputs[0].shape[d] = x->shape[d];
    instance->access[0][d].dim = instance->access[1][d].dim = d;
  }
  table->rank = 1;
  table->shape[0] = 2;
  table->bytes = 8;
  ((float*)table->data)[0] = ((float*)table->data)[1] = 1;
  if (is(node, "index rank")) instance->rank = 4000000000u;
  if (is(node, "index size")) instance->index_space[0] = -5;
  if (is(node, "output rank")) instance->outputs[0].rank = 6;
  if (is(node, "output dtype")) instance->outputs[0].dtype = 77;
  if (is(node, "other dtype")) instance->outputs[0].dtype = OD_DTYPE_I8;
  if (is(node, "output size")) instance->outputs[0].shape[0] = INT64_MIN;
  if (is(node, "dimension")) instance->access[0][0].dim = 3;
  if (is(node, "denominator")) instance->access[0][0].den = 0;
  if (is(node, "numerator")) instance->access[0][0].a = INT64_MAX;
  if (is(node, "end")) instance->access[0][0].end = -4;
  if (is(node, "race")) instance->access[1][0].end = 1;
  if (is(node, "gap")) instance->access[1][0].a = 2;
  if (is(node, "pad")) instance->values[0] = 0.5, instance->value_mask = 1;
  if (is(node, "nan pad")) instance->values[0] = NAN, instance->value_mask = 1;
  if (is(node, "mask")) instance->value_mask = instance->scalar_mask = 0xFFFFFFFFu, instance->in_place = 0xFFFFFFFFu;
  if (is(node, "outputs")) instance->n_outputs = 3;
  if (is(node, "aux count")) instance->n_aux = 17;
  if (is(node, "aux rank")) table->rank = 99;
  if (is(node, "aux size")) table->shape[0] = 7;
  if (is(node, "aux bytes")) table->bytes = 1u << 20;
  if (is(node, "aux beyond")) memset(table->data, 1, table->capacity + 8);
  if (is(node, "split")) instance->preferred_split = 4;
  if (is(node, "work")) instance->has_work = 1, instance->work[0] = -1;
  if (is(node, "status")) return 12345;
  if (is(node, "silent")) return OD_LAYER_CONFIGURATION;
  if (is(node, "endless text")) return memset(error->text, 'e', sizeof error->text), OD_FAILURE;
  if (is(node, "no utf-8")) return memcpy(error->text, "\xff\xfe", 3), OD_FAILURE;
  if (is(node, "always more")) return table->bytes = table->capacity + 4, OD_AUX_BUFFER_TOO_SMALL;
  if (is(node, "no more")) return OD_AUX_BUFFER_TOO_SMALL;
  if (is(node, "too much")) return table->bytes = UINT64_MAX, OD_AUX_BUFFER_TOO_SMALL;
  if (is(node, "twice more") && table->capacity < 12000) return table->bytes = table->capacity + 4000, OD_AUX_BUFFER_TOO_SMALL;
  return OD_OK;
}

static od_status prepare(const od_setup* setup, void** plan, od_error* error) {
  (void)setup, (void)error;
  *plan = malloc(1);
  return OD_OK;
}

static od_status run(const void* plan, const od_call* call, od_error* error) {
  (void)plan, (void)call, (void)error;
  return OD_OK;
}

static const od_plugin liar = {HEAD, DECLARED, FUNCTIONS};

OD_PLUGINS("lies", PLUGIN)
