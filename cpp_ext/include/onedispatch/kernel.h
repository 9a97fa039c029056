/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel is to the simulator, in plain C: a declaration and three pure functions.
 *
 * A library of kernels is one od_library; a shared object exports od_kernel_library(), which returns it.
 * Our own kernels are such a library too. Before a kernel runs, a parameter block is read and checked by
 * its declaration (element types, extents, spans, scalars, dimensions), so that the functions only judge
 * what is left: how the values fit together.
 *
 * Contract. Functions keep no state outside the plan: what they write is what prepare returns, their
 * output chunks and the scratch of the call. So any thread may make any call of a plan at any time, also
 * two at once, and a call may be repeated. They return a status, OD_OK or one of the others with a text
 * in od_error; nothing is thrown over this border. Chunks lie in a core's data memory, row-major as the
 * axes say, from a multiple of four bytes on.
 */
#ifndef ONEDISPATCH_KERNEL_H
#define ONEDISPATCH_KERNEL_H

#include <stdint.h>

#include "onedispatch/kernel_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OD_KERNEL_ABI_VERSION 4u
#define OD_ERROR_BYTES 1024u

typedef int32_t od_status; /* OD_OK, OD_... of kernel_codes.h */

/* Why a function did not return OD_OK: UTF-8 that ends with a zero byte. What was given, what is accepted. */
typedef struct od_error {
  char text[OD_ERROR_BYTES];
} od_error;

/* ---- Declarations: the tables that `python -m onedispatch.operators.codegen.genheader` writes ------------- */

/* An instruction of a formula: a stack machine over IEEE doubles. */
typedef struct od_step {
  uint32_t op; /* OD_OP_... */
  uint16_t a, b, c;
  double value; /* OD_OP_NUMBER */
} od_step;

typedef struct od_dtype_spec {
  const char* name;
  const char* rates; /* whose device constants hold for it */
  const char* sums;  /* whose device constants hold for sums of it */
  uint32_t bytes;
} od_dtype_spec;

typedef struct od_function_spec {
  const char* name;
  double work[OD_WORK_TERMS];   /* how often a vector of elements takes each, as od_work names them */
  double finish[OD_WORK_TERMS]; /* how often a vector of results does, in the end */
  uint32_t dtypes; /* bit per OD_DTYPE_...: elements that it is defined for */
  /* Of a function that came later: what images name its code by; blocks carry the half from bit OD_MARK_SHIFT on
   * above the function's code. 0: the kernel's digest knows it, and the kernel's code has it. */
  uint32_t digest;
  uint32_t code_bytes; /* of program memory, for each element type that it is linked for; 0: the kernel's */
} od_function_spec;

typedef struct od_axis_spec {
  const char* name;
  /* Of the kernel's (where it names none: index dimension), OD_ALONG_REDUCTION, OD_ALONG_NOTHING; all axes of
   * a member kernel: OD_ALONG_BLOCK. */
  uint32_t dim;
} od_axis_spec;

typedef struct od_operand_spec {
  const char* name;
  uint32_t at;     /* its first word in the parameter block */
  uint32_t dtypes; /* bit per OD_DTYPE_... */
  uint32_t role;   /* OD_ROLE_... */
  uint32_t optional;
  double pad, fill; /* for elements outside of an input; for those of an output that nothing is computed for; none: NAN */
  /* The hidden scalars that say it instead (NAN: none), or OD_NO_SCALAR. */
  uint32_t pad_scalar, fill_scalar;
  uint32_t walk; /* OD_WALK_...: how members of the index find their elements */
  uint32_t like; /* index of the operand that must have the same element type; its own: none */
  uint32_t least_rank; /* of a member kernel's; the largest is n_axes */
  const od_axis_spec* axes;
  uint32_t n_axes;
} od_operand_spec;

typedef struct od_scalar_spec {
  const char* name;
  uint32_t at;
  uint32_t type;    /* OD_SCALAR_... */
  double low, high; /* ends included */
  const od_function_spec* functions; /* OD_SCALAR_FUNCTION: high + 1 of them */
  uint32_t of; /* index of the operand whose elements they see */
  uint32_t hidden; /* 1: an instance of a member kernel says it beside its own */
} od_scalar_spec;

typedef struct od_kernel_spec {
  const char* name; /* namespace::name@version, at most OD_MAX_NAME_BYTES, "@1" aside */
  uint32_t digest;  /* what parameter blocks and program images name it by */
  const char* const* dims;
  uint32_t n_dims;
  uint32_t reduces;
  /* 1: a member kernel. Its blocks say the index space, and what members touch of every dimension of every
   * operand; a call takes a box of members. Output chunks with a fill, or with rows that are padded to whole
   * words, are filled before the call. */
  uint32_t members;
  const od_operand_spec* operands; /* inputs, then outputs */
  uint32_t n_operands;
  /* Element types that go together: per row a bit per OD_DTYPE_... for every operand; none: all do. */
  const uint32_t* types;
  uint32_t n_types;
  const od_scalar_spec* scalars;
  uint32_t n_scalars;
  const od_step* cost; /* core cycles of a call */
  uint32_t n_cost;
  const od_step* scratch; /* bytes of scratch of a call; none: 0 */
  uint32_t n_scratch;
  uint32_t keeps_scratch; /* 1: a step finds in scratch what the step before it, of the same tile, left there */
  const char* const* constants; /* of section [kernel] of the device description */
  uint32_t n_constants;
  uint32_t words;      /* of the parameter block that are read */
  uint32_t block_words; /* of the parameter block as it is sent */
  uint32_t code_bytes; /* of program memory */
  uint32_t prints;     /* OD_PRINT_...: whether calls print, which is charged */
  /* OD_JOIN_...: what one call may compute instead of many, to the same bits; only said of our own kernels. Such a
   * call finds inputs wherever their strides lead, its output as it always lies (OD_JOIN_PANELS: where strides lead). */
  uint32_t joins;
} od_kernel_spec;

/* ---- What a call is made of ------------------------------------------------------------------------ */

typedef struct od_dim {
  uint32_t extent, tile;
} od_dim;

/*
 * How a chunk lies along one dimension of its tensor. Member i of the index dimension touches
 * [a*i/den + b, ...], the quotient rounded down. The chunk of the tile at o begins at
 * clamp(align_down(a*o/den + b), 0, extent - chunk). `stride` counts elements of the chunk; 0 repeats one.
 *
 * Of a member kernel's operands, i and o count from the first member of the setup, and b has it in it. The
 * last `padding` of `extent` fill up words: the tensor ends before them.
 */
typedef struct od_axis {
  int64_t extent, chunk, stride, a, den, align, b;
  uint32_t span;           /* of a member kernel's: elements that a member touches; 0: it may touch all */
  uint16_t along, padding; /* the index dimension that it follows, or OD_ALONG_NOTHING */
} od_axis;

typedef struct od_operand {
  uint32_t present;
  uint32_t dtype; /* OD_DTYPE_... */
  uint32_t bytes; /* that the call may touch from its address on */
  uint32_t n_axes; /* of a member kernel's: the rank of the tensor */
  double pad, fill; /* for elements outside of an input, and of an output that nothing is computed for; none: NAN */
  od_axis axes[OD_MAX_AXES];
} od_operand;

/* What an operation says before its first tile; read and checked by the declaration. */
typedef struct od_setup {
  const od_kernel_spec* spec;
  const uint32_t* words; /* the parameter block, for messages */
  od_dim dims[OD_MAX_DIMS];
  uint32_t roles[OD_MAX_DIMS]; /* index dimension of each of the kernel's dimensions */
  uint32_t k_extent, k_tile, inner_steps;
  uint32_t scratch_bytes;
  /* Of a member kernel: the member that tiles count from, members in all, and 1 where every call has all. */
  uint32_t first[OD_MAX_DIMS], total[OD_MAX_DIMS], whole[OD_MAX_DIMS];
  uint32_t scalars[OD_MAX_SCALARS]; /* as their types say */
  od_operand operands[OD_MAX_OPERANDS];
} od_setup;

/*
 * What a call may tell the host, which never changes results. Either function may be null; an
 * implementation puts an od_host first in a structure of its own.
 */
typedef struct od_host {
  /* A line, UTF-8 that ends with a zero byte, of the member [OD_MAX_DIMS] of the index space, which ends with
   * OD_NO_MEMBER where it has fewer dimensions; null: of the first member of the call. */
  void (*print)(const struct od_host* host, const uint32_t* member, const char* text);
  /* Where accesses are checked: `count` elements of `operand` along its last dimension, from the global
   * coordinate on (a number per tensor dimension), were read (write 0) or written (write 1). */
  void (*touched)(const struct od_host* host, uint32_t operand, const int64_t* coordinate, uint32_t count, uint32_t write);
} od_host;

/* One reduction step of one tile. */
typedef struct od_call {
  uint32_t origin[OD_MAX_DIMS];    /* of the tile */
  /* Of a member kernel: the first member of the call, and how many it has along each dimension. */
  uint32_t member[OD_MAX_DIMS], count[OD_MAX_DIMS];
  uint32_t k_first, k_count;       /* members of the reduction */
  uint32_t k_index, k_last;        /* number of the step; 1 in the last one */
  uint8_t* operand[OD_MAX_OPERANDS]; /* where each one's chunk lies, in the order of the declaration; absent: null */
  /* scratch_bytes of the core's memory, null where there are none. Anything is in them, or where scratch is
   * kept and k_index is not 0, what the step before left. */
  uint8_t* scratch;
  const od_host* host; /* null: no listener */
} od_call;

/* ---- Kernels and libraries --------------------------------------------------------------------------- */

typedef struct od_kernel {
  const od_kernel_spec* spec;
  /* Refuses what the declaration leaves open; else *plan is what the other functions are handed. */
  od_status (*prepare)(const od_setup* setup, void** plan, od_error* error);
  /* Whether the chunks of the call hold what it needs; comes before run, in constant time. May be null. */
  od_status (*check)(const void* plan, const od_call* call, od_error* error);
  od_status (*run)(const void* plan, const od_call* call, od_error* error);
  void (*release)(void* plan);
} od_kernel;

typedef struct od_library {
  uint32_t abi_version; /* OD_KERNEL_ABI_VERSION of the header that the library was compiled with */
  uint32_t library_bytes, kernel_bytes, spec_bytes, setup_bytes, call_bytes; /* sizeof od_library, ... */
  const char* name;
  const od_kernel* const* kernels;
  uint32_t n_kernels;
  const struct od_plugin* const* plugins; /* of onedispatch/plugin.h: kernels that the host lays out and digests */
  uint32_t n_plugins;
} od_library;

/* The first six fields of an od_library. */
#define OD_LIBRARY_HEAD                                                                              \
  OD_KERNEL_ABI_VERSION, (uint32_t)sizeof(od_library), (uint32_t)sizeof(od_kernel),                   \
      (uint32_t)sizeof(od_kernel_spec), (uint32_t)sizeof(od_setup), (uint32_t)sizeof(od_call)

#if defined(_WIN32)
#define OD_EXPORT __declspec(dllexport)
#else
#define OD_EXPORT __attribute__((visibility("default")))
#endif

/* What a shared object exports; it stays valid as long as the object is loaded. */
typedef const od_library* (*od_kernel_library_function)(void);
#define OD_KERNEL_LIBRARY_SYMBOL "od_kernel_library"

#ifdef __cplusplus
}
#endif

#endif
