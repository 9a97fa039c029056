/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom kernels in plain C: a declaration, a function that places a node, and the functions of
 * kernel.h. The host lays out parameter blocks, digests declarations and charges calls; a plug-in does not.
 *
 *   static od_status instantiate(const od_node* node, od_instance* instance, od_error* error) {...}
 *   static const od_plugin scale_add = {OD_PLUGIN_HEAD, &declared, instantiate, prepare, NULL, run, release};
 *   OD_PLUGINS("acme", &scale_add)
 *
 * Built by: gcc -O2 -shared -fPIC -I$(onedispatch kernel include) acme.c -o libacme.so
 * C++ has less to write: see plugin_cpp.h. Where bits must be those of a Python body, no -ffast-math, and
 * -ffp-contract=off where the target has fused multiply-adds (gcc -std=c99 implies it).
 */
#ifndef ONEDISPATCH_PLUGIN_H
#define ONEDISPATCH_PLUGIN_H

#include <string.h>

#include "onedispatch/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OD_MAX_RANK OD_MAX_DIMS
#define OD_WHOLE 255u   /* od_interval.dim: any member may touch anything of the tensor dimension */
#define OD_NO_DIM 255u  /* od_instance.preferred_split: none */
#define OD_AUX_TRIES 4u /* how often instantiate is called at most, each time with larger buffers */
#define OD_NAME_BYTES (OD_MAX_NAME_BYTES + 1u) /* of a name and its zero byte */

/* ---- Declarations ---------------------------------------------------------------------------------- */

enum { OD_QUANTISED_ANY = 0, OD_QUANTISED_NEVER = 1, OD_QUANTISED_ALWAYS = 2 };

typedef struct od_declared_operand {
  const char* name; /* lower-case letters, digits, underscores */
  uint32_t role;    /* OD_ROLE_... */
  uint32_t scratch; /* of OD_ROLE_AUX: 1 where it is scratch in the core's memory and has no data; then the last of them */
  uint32_t dtypes;  /* bit per OD_DTYPE_...; one of OD_ROLE_AUX; 0: those of the operand that it is like */
  uint32_t min_rank, max_rank; /* at most OD_MAX_RANK */
  uint32_t optional;           /* inputs that may be absent */
  uint32_t quantised;          /* OD_QUANTISED_... */
  const char* like;            /* operand that must have the same element type; null: none */
  uint32_t has_value;          /* 1: value is the pad of an input, the fill of an output */
  double value;
} od_declared_operand;

/* A number of the node: its attribute of that name. */
typedef struct od_declared_scalar {
  const char* name;
  uint32_t type;        /* OD_SCALAR_U32, OD_SCALAR_I32, OD_SCALAR_F32 */
  uint32_t has_bounds;  /* 1: low to high, ends included */
  double low, high;
  uint32_t has_default; /* 0: the node must give it */
  double standard;
} od_declared_scalar;

typedef struct od_declared {
  const char* name;    /* namespace::name or namespace::name@version (none: 1), at most OD_MAX_NAME_BYTES */
  const char* summary; /* a sentence; may be null */
  const od_declared_operand* operands; /* inputs, auxiliary tensors, outputs */
  uint32_t n_operands;
  const od_declared_scalar* scalars; /* at most 32 */
  uint32_t n_scalars;
  const char* const* devices; /* that it runs on; none: every one */
  uint32_t n_devices;
  uint32_t code_bytes; /* of program memory, a multiple of 16; 0: as the host assumes */
  uint32_t has_work;   /* 1: work says what a member takes */
  double work[OD_WORK_TERMS]; /* element operations per member, as od_work of the device names them */
  uint32_t varies;     /* 1: the same inputs may give other bits; advisory */
  uint32_t prints;     /* OD_PRINT_... */
} od_declared;

/* ---- What instantiate is handed ------------------------------------------------------------------------ */

typedef struct od_node_tensor {
  uint32_t present;
  uint32_t known; /* 1: element type and shape are known; of outputs, what the model declares */
  uint32_t dtype; /* OD_DTYPE_... */
  uint32_t rank;
  int64_t shape[OD_MAX_RANK];
  /* 1: a real number is scale * (element - zero_point); 2: there is one of each per coordinate of a dimension, and
   * these are the first */
  uint32_t quantised;
  double scale;
  int64_t zero_point;
  const void* value; /* of constant inputs: elements, row-major; else null */
  uint64_t value_bytes;
} od_node_tensor;

enum { OD_ATTRIBUTE_INTS = 0, OD_ATTRIBUTE_FLOATS = 1, OD_ATTRIBUTE_TEXT = 2 };

typedef struct od_attribute {
  const char* name;
  uint32_t type;  /* OD_ATTRIBUTE_... */
  uint32_t count; /* of numbers: 1 for a single one; of bytes of a text, without its zero byte */
  const int64_t* ints;
  const double* floats;
  const char* text;
} od_attribute;

typedef struct od_node {
  const char* name;   /* for messages */
  const char* kernel; /* as od_kernel_names lists it */
  const char* device;
  uint32_t max_cores; /* the kernel must give the same bits on 1 up to so many */
  const od_node_tensor* inputs;
  uint32_t n_inputs;
  const od_node_tensor* outputs;
  uint32_t n_outputs;
  const od_attribute* attributes;
  uint32_t n_attributes;
} od_node;

/* ---- What instantiate fills ------------------------------------------------------------------------------ */

/* Member i of index dimension `dim` touches [floor(a*i/den) + start, floor(a*i/den) + end] of a tensor dimension. */
typedef struct od_interval {
  uint32_t dim; /* or OD_WHOLE */
  int64_t a, den, start, end;
} od_interval;

typedef struct od_result {
  uint32_t dtype, rank;
  int64_t shape[OD_MAX_RANK];
} od_result;

/*
 * An auxiliary tensor of this node. `bytes` is set to what it takes; where that is more than `capacity`, nothing
 * is written to `data`, and instantiate returns OD_AUX_BUFFER_TOO_SMALL: it is called again with larger buffers, at most
 * OD_AUX_TRIES times in all. Of scratch, `data` is null and `bytes` is what one core takes of its memory.
 */
typedef struct od_aux {
  uint32_t rank;
  int64_t shape[OD_MAX_RANK];
  void* data;
  uint64_t capacity, bytes;
} od_aux;

/* Before the call: zeros, intervals OD_WHOLE with a and den 1, scalars from the node, buffers of `capacity` bytes. */
typedef struct od_instance {
  uint32_t n_outputs, n_aux; /* arrays' lengths, of the declaration; they stay as they are */
  uint32_t rank;             /* of the index space: 1 to OD_MAX_DIMS */
  int64_t index_space[OD_MAX_DIMS];
  od_result outputs[OD_MAX_OPERANDS];
  /* Of inputs, then outputs, auxiliary tensors left out; a tensor dimension each. */
  od_interval access[OD_MAX_OPERANDS][OD_MAX_RANK];
  uint32_t value_mask; /* bit per input, then output: values has its pad or fill for this node */
  double values[OD_MAX_OPERANDS];
  uint32_t scalar_mask; /* bit per scalar: set by the node or by instantiate */
  double scalars[OD_MAX_SCALARS];
  od_aux aux[OD_MAX_OPERANDS];
  uint32_t scratch_mask; /* bit per auxiliary tensor: scratch; for reading, the declaration decides */
  uint32_t has_work;     /* 1: work replaces that of the declaration */
  double work[OD_WORK_TERMS];
  uint32_t preferred_split; /* index dimension to divide among cores first, or OD_NO_DIM; advisory */
  uint32_t in_place;        /* bit per input: the first output may take its place; advisory */
} od_instance;

/* ---- Plug-ins --------------------------------------------------------------------------------------------- */

typedef struct od_plugin {
  uint32_t plugin_bytes, declared_bytes, node_bytes, instance_bytes; /* OD_PLUGIN_HEAD */
  const od_declared* declared;
  /* Judges what the declaration leaves open, and fills the instance. Pure: the same node, the same instance. */
  od_status (*instantiate)(const od_node* node, od_instance* instance, od_error* error);
  /* As those of od_kernel; operands of a setup are those of the declaration without scratch. */
  od_status (*prepare)(const od_setup* setup, void** plan, od_error* error);
  od_status (*check)(const void* plan, const od_call* call, od_error* error); /* may be null */
  od_status (*run)(const void* plan, const od_call* call, od_error* error);
  void (*release)(void* plan);
} od_plugin;

#define OD_PLUGIN_HEAD                                                                                  \
  (uint32_t)sizeof(od_plugin), (uint32_t)sizeof(od_declared), (uint32_t)sizeof(od_node), (uint32_t)sizeof(od_instance)

/*
 * The names of a library's plug-ins that run on `device`. In: *count is how many `names` has room for. If all fit,
 * they are copied and *count is their number; otherwise nothing is copied and *count is the number that is needed.
 */
typedef od_status (*od_kernel_names_function)(const char* device, char (*names)[OD_NAME_BYTES], uint32_t* count);
#define OD_KERNEL_NAMES_SYMBOL "od_kernel_names"

static inline int od_runs_on(const od_declared* declared, const char* device) {
  uint32_t i = 0;
  while (i < declared->n_devices && strcmp(declared->devices[i], device) != 0) ++i;
  return declared->n_devices == 0 || i < declared->n_devices;
}

/* What od_kernel_names of a library does. */
static inline od_status od_list_names(const od_library* library, const char* device, char (*names)[OD_NAME_BYTES], uint32_t* count) {
  uint32_t i, capacity, needed = 0;
  if (device == 0 || count == 0 || (names == 0 && *count != 0)) return OD_NULL_POINTER;
  capacity = *count;
  for (i = 0; i < library->n_plugins; ++i) needed += od_runs_on(library->plugins[i]->declared, device) ? 1u : 0u;
  *count = needed;
  if (needed > capacity) return OD_OK;
  for (i = needed = 0; i < library->n_plugins; ++i) {
    const char* name = library->plugins[i]->declared->name;
    size_t length = strlen(name);
    if (!od_runs_on(library->plugins[i]->declared, device)) continue;
    if (length > OD_MAX_NAME_BYTES) length = OD_MAX_NAME_BYTES; /* the host refuses such a library */
    memcpy(names[needed], name, length);
    names[needed][length] = 0;
    ++needed;
  }
  return OD_OK;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------- */

static inline int64_t od_floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

/* Coordinate along `axis` that member `i` of the call (0: its first one) touches first; 0 where it may touch all. */
static inline int64_t od_member_first(const od_axis* axis, const od_call* call, int64_t i) {
  return axis->along == OD_ALONG_NOTHING ? 0 : od_floor_div(axis->a * (call->origin[axis->along] + i), axis->den) + axis->b;
}

/* The first coordinate along `axis` that the chunk of the call holds. */
static inline int64_t od_chunk_first(const od_axis* axis, const od_call* call) {
  int64_t first = od_member_first(axis, call, 0);
  const int64_t last = axis->extent - axis->chunk;
  first -= (first % axis->align + axis->align) % axis->align;
  return first < 0 ? 0 : first > last ? last : first;
}

/* Defines what a shared object with the given plug-ins exports: OD_PLUGINS("acme", &scale_add, &softmax) */
#define OD_PLUGINS(library_name, ...)                                                                                      \
  static const od_plugin* const od_own_plugins[] = {__VA_ARGS__};                                                          \
  static const od_library od_own_library = {OD_LIBRARY_HEAD, library_name, 0, 0, od_own_plugins,                            \
                                            (uint32_t)(sizeof od_own_plugins / sizeof *od_own_plugins)};                   \
  OD_EXPORT const od_library* od_kernel_library(void);                                                                     \
  OD_EXPORT const od_library* od_kernel_library(void) { return &od_own_library; }                                          \
  OD_EXPORT od_status od_kernel_names(const char* device, char (*names)[OD_NAME_BYTES], uint32_t* count);                  \
  OD_EXPORT od_status od_kernel_names(const char* device, char (*names)[OD_NAME_BYTES], uint32_t* count) {                 \
    return od_list_names(&od_own_library, device, names, count);                                                          \
  }

#ifdef __cplusplus
}
#endif

#endif
