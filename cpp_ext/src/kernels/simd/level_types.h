// SPDX-License-Identifier: Apache-2.0
// Element types: kernels compute in vectors of 32-bit words (f32 for floats, int32 or uint32 for
// integers); what is narrower is widened on the way in, and rounded or saturated on the way out.
namespace onedispatch::kernels::OD_LEVEL {

// A vector of as many elements as a vector of words has.
template <class Element>
struct VectorOf;
#define OD_VECTOR_OF(element) \
  template <>                 \
  struct VectorOf<element> {  \
    using type = element __attribute__((vector_size(sizeof(element) * kLanes))); \
  }
OD_VECTOR_OF(float);
OD_VECTOR_OF(int32_t);
OD_VECTOR_OF(uint32_t);
OD_VECTOR_OF(int16_t);
OD_VECTOR_OF(uint16_t);
OD_VECTOR_OF(int8_t);
OD_VECTOR_OF(uint8_t);
#undef OD_VECTOR_OF
template <class Element>
using Vector = typename VectorOf<Element>::type;

template <class Word>
OD_INLINE Vector<Word> splat_as(Word x) {
  if constexpr (std::is_same_v<Word, float>) {
    return splat(x);
  } else {
    return (Vector<Word>)splat_i(static_cast<int32_t>(x));
  }
}
template <class Word>
OD_INLINE Vector<Word> load_as(const Word* p) {
  return (Vector<Word>)load_i(p);
}
template <class Word>
OD_INLINE Vector<Word> load_part_as(const Word* p, int n) {
  return (Vector<Word>)load_part(reinterpret_cast<const float*>(p), n);
}
template <class Word, class V>
OD_INLINE void store_as(Word* p, V v) {
  store_i(p, (I)v);
}
template <class Word, class V>
OD_INLINE void store_part_as(Word* p, V v, int n) {
  store_part(reinterpret_cast<float*>(p), (F)v, n);
}

// The same whole numbers as another element type, what does not fit cut off. Between bytes and words by an instruction
// where the level has one, else in two steps: the compiler takes one step apart, element by element.
template <class To, class V>
OD_INLINE Vector<To> converted(V x) {
  using From = std::decay_t<decltype(x[0])>;
  constexpr bool widens = sizeof(To) == 4 * sizeof(From), narrows = sizeof(From) == 4 * sizeof(To);
  if constexpr (!widens && !narrows) {
    return __builtin_convertvector(x, Vector<To>);
  } else {
#if OD_CONVERTS_BYTES
    if constexpr (widens) return (Vector<To>)words_of((__m128i)x, std::is_signed_v<From>);
    else return (Vector<To>)bytes_of((I)x);
#else
    using Between = std::conditional_t<std::is_signed_v<From>, int16_t, uint16_t>;
    return __builtin_convertvector(__builtin_convertvector(x, Vector<Between>), Vector<To>);
#endif
  }
}

// n bytes, fewer than two pieces: no call for the few that are left at the end of a row.
template <size_t Piece>
OD_INLINE void copy_few(const void* x, void* y, size_t n) {
  const size_t here = n & Piece;
  if (here != 0) __builtin_memcpy(y, x, Piece);
  if constexpr (Piece > 1) copy_few<Piece / 2>(static_cast<const uint8_t*>(x) + here, static_cast<uint8_t*>(y) + here, n);
}

// One element type: how it is stored, the word that it is computed in, and the way there and back.
template <class Stored, class Wide>
struct Integer {
  using Element = Stored;
  using Word = Wide;
  using Narrow = Vector<Stored>;
  OD_INLINE Vector<Word> widen(Narrow x) { return converted<Word>(x); }
  OD_INLINE Narrow narrow(Vector<Word> x) {  // saturates
    using Limits = std::numeric_limits<Stored>;
    const auto low = splat_as<Word>(static_cast<Word>(Limits::min())), high = splat_as<Word>(static_cast<Word>(Limits::max()));
    x = x < low ? low : x;
    return converted<Stored>(x > high ? high : x);
  }
};

using Halves = Vector<uint16_t>;

struct Bf16 {
  using Element = uint16_t;
  using Word = float;
  using Narrow = Halves;
  OD_INLINE F widen(Narrow x) { return (F)(__builtin_convertvector(x, U) << 16); }
  // The upper half of each word is x to nearest even, unless that is a NaN whose lower half is not empty.
  OD_INLINE U nearest(F x) { return (U)x + 0x7FFFu + ((U)x >> 16 & 1u); }
  OD_INLINE U upper(F x) { return x != x ? ((U)x | 0x400000u) : nearest(x); }  // a NaN stays one
  OD_INLINE Narrow narrow(F x) { return __builtin_convertvector(upper(x) >> 16, Halves); }
  OD_INLINE F rounded(F x) { return (F)(upper(x) & 0xFFFF0000u); }  // widen(narrow(x)), in its place
};

struct F16 {
  using Element = uint16_t;
  using Word = float;
  using Narrow = Halves;
  OD_INLINE F widen(Narrow x) {
    const U bits = __builtin_convertvector(x, U), size = bits & 0x7FFFu;
    // The exponent's bias by a product, which takes denormals along; infinities and NaN keep theirs.
    const U scaled = (U)((F)(size << 13) * splat(0x1p112f));
    return (F)((size >= 0x7C00u ? (scaled | 0x7F800000u) : scaled) | (bits & 0x8000u) << 16);
  }
  OD_INLINE Narrow narrow(F x) {  // to nearest even
    const U bits = (U)x, size = bits & 0x7FFFFFFFu;
    const F magic = (F)splat_as<uint32_t>(126u << 23);  // 0.5, whose last bit is half's smallest step
    const U tiny = (U)((F)size + magic) - (126u << 23);
    const U plain = (size - (112u << 23) + 0xFFFu + (size >> 13 & 1u)) >> 13;
    const U finite = size < 113u << 23 ? tiny : plain;
    const U beyond = size > 0x7F800000u ? splat_as<uint32_t>(0x7E00u) : splat_as<uint32_t>(0x7C00u);
    const U half = size >= 143u << 23 ? beyond : finite;
    return __builtin_convertvector(half | (bits >> 16 & 0x8000u), Halves);
  }
  OD_INLINE F rounded(F x) { return widen(narrow(x)); }
};

// Calls use(type) for the element type of a code of params::dtype; false for 32-bit words.
template <class Use>
OD_INLINE bool for_narrow(uint32_t dtype, Use use) {
  namespace d = params::dtype;
  switch (dtype) {
    case d::bf16: use(Bf16{}); return true;
    case d::f16: use(F16{}); return true;
    case d::i8: use(Integer<int8_t, int32_t>{}); return true;
    case d::u8:
    case d::boolean: use(Integer<uint8_t, int32_t>{}); return true;
    case d::i16: use(Integer<int16_t, int32_t>{}); return true;
    case d::u16: use(Integer<uint16_t, int32_t>{}); return true;
    default: return false;
  }
}

constexpr size_t kElementsAhead = 512;  // that are fetched before they are widened: weights come from memory, panel by panel

template <class Type>
static void widen_as(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const typename Type::Element*>(from);
  auto* y = static_cast<typename Type::Word*>(to);
  typename Type::Narrow v{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    __builtin_prefetch(x + i + kElementsAhead);
    __builtin_memcpy(&v, x + i, sizeof v);
    store_as(y + i, Type::widen(v));
  }
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  __builtin_memcpy(&v, x + i, static_cast<size_t>(rest) * sizeof *x);
  store_part_as(y + i, Type::widen(v), rest);
}

template <class Type>
static void narrow_as(const void* from, void* to, size_t n) {
  const auto* x = static_cast<const typename Type::Word*>(from);
  auto* y = static_cast<typename Type::Element*>(to);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const typename Type::Narrow v = Type::narrow(load_as(x + i));
    __builtin_memcpy(y + i, &v, sizeof v);
  }
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  const typename Type::Narrow v = Type::narrow(load_part_as(x + i, rest));
  __builtin_memcpy(y + i, &v, static_cast<size_t>(rest) * sizeof *y);
}

static void widen_elements(uint32_t dtype, const void* x, void* words, size_t n) {
  const bool done = for_narrow(dtype, [&](auto type) { widen_as<decltype(type)>(x, words, n); });
  if (!done && n != 0) __builtin_memcpy(words, x, n * 4);
}

static void narrow_words(uint32_t dtype, const void* words, void* y, size_t n) {
  const bool done = for_narrow(dtype, [&](auto type) { narrow_as<decltype(type)>(words, y, n); });
  if (!done && n != 0) __builtin_memmove(y, words, n * 4);
}

}  // namespace onedispatch::kernels::OD_LEVEL
