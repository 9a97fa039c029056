// SPDX-License-Identifier: Apache-2.0
// Rows of mean 0 and variance 1 with the bits of onnxruntime's, at every level: sums have a fixed order, and every
// sum of a product is rounded once.
namespace onedispatch::kernels::OD_LEVEL {

constexpr int kSums = 8;  // that a row is added up in, whatever the width of vectors

// No compiler makes one operation of this product and a sum.
OD_INLINE float rounded_product(float a, float b) {
  float product = a * b;
  asm("" : "+x"(product));
  return product;
}

// Of pairs of f32 on the device; the bits that f64 has more change no mean.
static float mean_of(const float* x, int n) {
  double sums[kSums] = {}, sum = 0.0;
  int i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += x[i + j];
  }
  for (const double one : sums) sum += one;
  for (; i < n; ++i) sum += x[i];
  return static_cast<float>(sum / n);
}

// What is left of eights is added one by one: four of them as products that are rounded, if there are as many.
static float squares_of(const float* x, int n) {
  float sums[kSums] = {};
  int i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] = fused(x[i + j], x[i + j], sums[j]);
  }
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  float sum = sums[0];
  if (i + 4 <= n) {
    float products[4];
    for (int j = 0; j < 4; ++j) products[j] = rounded_product(x[i + j], x[i + j]);
    for (const float one : products) sum += one;
    i += 4;
  }
  for (; i < n; ++i) sum = fused(x[i], x[i], sum);
  return sum;
}

static void normal_row(const NormalRow& row) {
  const float *x = row.x, *scale = row.scale, *bias = row.bias;
  float* y = row.y;
  const int n = row.n;
  if (row.centre) {
    const float mean = mean_of(x, n);
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = x[i] - mean;
    x = y;
  }
  const float inverse = 1.0f / __builtin_sqrtf(squares_of(x, n) / static_cast<float>(n) + row.epsilon);
  if (scale == nullptr) {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = x[i] * inverse;
  } else if (bias == nullptr) {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = x[i] * inverse * scale[i];
  } else {
#pragma omp simd
    for (int i = 0; i < n; ++i) y[i] = fused(x[i] * inverse, scale[i], bias[i]);
  }
}

}  // namespace onedispatch::kernels::OD_LEVEL
