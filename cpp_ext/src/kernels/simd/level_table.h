// SPDX-License-Identifier: Apache-2.0
// The table of one level; OD_LEVEL_FUNCTION is defined here from the level's name.
#define OD_JOIN_(a, b) a##b
#define OD_JOIN(a, b) OD_JOIN_(a, b)
#define OD_TEXT_(a) #a
#define OD_TEXT(a) OD_TEXT_(a)
namespace onedispatch::kernels {
const SimdLevel& OD_JOIN(OD_LEVEL, _level)();
const SimdLevel& OD_JOIN(OD_LEVEL, _level)() {
  using namespace OD_LEVEL;
  static constexpr SimdLevel level{
      OD_TEXT(OD_LEVEL), word_level<float>(), word_level<int32_t>(), word_level<uint32_t>(), widen_elements, narrow_words,
      gemm_f32,          conv_f32,            nullptr,             gemm_i32,            gemm_i8,               requantise,             split_bytes, add_part, requantise_wide, unary,          binary,
      muladd,            add_scaled,          affine,                binary_int,             unary_int,      transpose,
      copy_strided,      copy_rows,           copy_byte_rows,        im2col,                 im2col_bytes,   taps_mac,
      taps_mac_i32,      taps_mac_bytes,      softmax_row,           softmax_columns,        lrn_row,        rotate,
      quantise,          dequantise,          shares,                widen_weights,         multiply_weights, combine,               normal_row, mean_of, squares_of, look_up,                compare,        select_elements,
      places,            found_places,        binary_func};
  return level;
}
}  // namespace onedispatch::kernels
