// SPDX-License-Identifier: Apache-2.0
// What kernels print: C's printf with the types of a tensor, and safe. Header-only, for custom kernels.
//
//   %hhd %hhu %hhx   8 bits, signed or not      %f %e %g    float
//   %hd %hu %hx      16 bits                    %bf %be %bg a float, rounded to bfloat16
//   %d %i %u %x      32 bits                    %hf %he %hg a float, rounded to half precision
//   %ld %lu %lx      64 bits                    %s          text            %%  a percent sign
//
// Capitals, the flags "-+ #0", width, precision and "*" for either are as C has them, in the "C" locale. Integers
// are converted to the width that the format says, as C does it. What does not go together is marked in the text
// and is never undefined: a value of another kind "%!d(1.5)", a value that does not fit into 32 bits where the
// format has no l, a missing value "%!d(no value)", a format that there is none of "%!y(no such format)", and
// values that no format asks for " %!(2 values too many)". Text ends at a zero byte.
#pragma once
#include <algorithm>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#if !defined(_WIN32)
#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#endif
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "onedispatch/kernel.h"

namespace onedispatch::printing {

constexpr int kWidest = 1000;  // width and precision at most

// One value, of whatever type it was.
struct Value {
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat, kText, kOther };
  Kind kind = Kind::kSigned;
  int64_t number = 0;   // kSigned; kUnsigned: its bits
  double real = 0;      // kFloat
  std::string_view text;  // kText; kOther: what it is, which no format prints

  static Value other(std::string_view what) {
    Value value;
    value.kind = Kind::kOther;
    value.text = what;
    return value;
  }
};

template <class Type>
Value value_of(const Type& given) {
  Value value;
  if constexpr (std::is_enum_v<Type>) {
    return value_of(static_cast<std::underlying_type_t<Type>>(given));
  } else if constexpr (std::is_integral_v<Type>) {
    static_assert(sizeof(Type) <= 8, "integers of at most 64 bits are printed");
    value.kind = std::is_signed_v<Type> ? Value::Kind::kSigned : Value::Kind::kUnsigned;
    value.number = static_cast<int64_t>(given);
  } else if constexpr (std::is_floating_point_v<Type>) {
    value.kind = Value::Kind::kFloat;
    value.real = static_cast<double>(given);
  } else if constexpr (std::is_convertible_v<const Type&, const char*>) {
    const char* const text = given;
    value.kind = Value::Kind::kText;
    value.text = text == nullptr ? "(null)" : text;
  } else if constexpr (std::is_convertible_v<const Type&, std::string_view>) {
    value.kind = Value::Kind::kText;
    value.text = given;
  } else {
    static_assert(std::is_convertible_v<const Type&, double>, "numbers and text are printed; vectors by a loop");
    value.kind = Value::Kind::kFloat;  // bfloat16, half precision: classes that become a float
    value.real = static_cast<double>(given);
  }
  return value;
}

namespace detail {

// To `bits` significant ones, ties to even, with the exponents from `least` to `most` that a format of bytes has.
inline double rounded(double value, int bits, int least, int most) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // below 2^exponent
  const int unit = std::max(exponent - bits, least - bits + 1);
  const double scaled = std::ldexp(value, -unit), below = std::floor(scaled), rest = scaled - below;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
  const double result = std::ldexp(up ? below + 1 : below, unit);
  return std::fabs(result) >= std::ldexp(1.0, most + 1) ? std::copysign(HUGE_VAL, value) : std::copysign(result, value);
}

// One conversion of a format.
struct Spec {
  std::string flags;
  int width = -1, precision = -1;
  std::string_view length;
  char what = 0;
  bool too_wide = false;

  std::string name() const { return std::string(length) + what; }
};

inline bool is_one_of(char letter, const char* letters) { return letter != 0 && std::strchr(letters, letter) != nullptr; }

#if !defined(_WIN32)
// A comma for a point is none of a kernel's business.
class PlainLocale {
 public:
  PlainLocale() : before_(uselocale(plain())) {}
  ~PlainLocale() { uselocale(before_); }
  PlainLocale(const PlainLocale&) = delete;
  PlainLocale& operator=(const PlainLocale&) = delete;

 private:
  static locale_t plain() {
    static const locale_t made = newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }
  locale_t before_;
};
#else
struct PlainLocale {};
#endif

template <class Number>
std::string print_number(const Spec& spec, const char* length, Number number) {
  [[maybe_unused]] const PlainLocale plain;
  std::string format = "%" + spec.flags;
  if (spec.width >= 0) format += std::to_string(spec.width);
  if (spec.precision >= 0) format += "." + std::to_string(spec.precision);
  format += std::string(length) + spec.what;
  char fits[128];
  const int needed = std::snprintf(fits, sizeof fits, format.c_str(), number);
  if (needed < static_cast<int>(sizeof fits)) return std::string(fits, needed < 0 ? 0 : static_cast<size_t>(needed));
  std::string text(static_cast<size_t>(needed) + 1, '\0');
  std::snprintf(text.data(), text.size(), format.c_str(), number);
  text.pop_back();
  return text;
}

inline std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kSigned: return std::to_string(value.number);
    case Value::Kind::kUnsigned: return std::to_string(static_cast<uint64_t>(value.number));
    case Value::Kind::kText: return "\"" + std::string(value.text.substr(0, value.text.find('\0'))) + "\"";
    case Value::Kind::kOther: return std::string(value.text);
    case Value::Kind::kFloat: break;
  }
  Spec spec;
  spec.what = 'g';
  spec.precision = 9;
  return print_number(spec, "", value.real);
}

inline std::string marked(const Spec& spec, const std::string& why) { return "%!" + spec.name() + "(" + why + ")"; }

inline std::string print_integer(const Spec& spec, const Value& value) {
  const bool is_unsigned = value.kind == Value::Kind::kUnsigned;
  if (!is_unsigned && value.kind != Value::Kind::kSigned) return marked(spec, shown(value));
  const bool is_long = spec.length == "l" || spec.length == "ll";
  const bool negative = !is_unsigned && value.number < 0;
  const bool fits = negative ? value.number >= INT32_MIN : static_cast<uint64_t>(value.number) <= UINT32_MAX;
  if (!is_long && !fits) return marked(spec, shown(value) + ": more than 32 bits");
  const bool is_signed = spec.what == 'd' || spec.what == 'i';
  long long number = value.number;
  if (spec.length == "hh") number = is_signed ? static_cast<long long>(static_cast<int8_t>(number)) : static_cast<uint8_t>(number);
  else if (spec.length == "h") number = is_signed ? static_cast<long long>(static_cast<int16_t>(number)) : static_cast<uint16_t>(number);
  else if (!is_long) number = is_signed ? static_cast<long long>(static_cast<int32_t>(number)) : static_cast<uint32_t>(number);
  return is_signed ? print_number(spec, "ll", number) : print_number(spec, "ll", static_cast<unsigned long long>(number));
}

inline std::string print_real(const Spec& spec, const Value& value) {
  if (value.kind != Value::Kind::kFloat) return marked(spec, shown(value));
  double real = value.real;
  if (spec.length == "b") real = rounded(real, 8, -126, 127);
  if (spec.length == "h") real = rounded(real, 11, -14, 15);
  return print_number(spec, "", real);
}

inline std::string print_text(const Spec& spec, const Value& value) {
  if (value.kind != Value::Kind::kText) return marked(spec, shown(value));
  std::string text(value.text.substr(0, value.text.find('\0')));
  if (spec.precision >= 0 && text.size() > static_cast<size_t>(spec.precision)) {
    size_t end = static_cast<size_t>(spec.precision);
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // no part of a letter
    text.resize(end);
  }
  const size_t width = spec.width < 0 ? 0 : static_cast<size_t>(spec.width);
  if (text.size() < width) text.insert(spec.flags.find('-') != std::string::npos ? text.size() : 0, width - text.size(), ' ');
  return text;
}

// The format's text, and how far it has been gone through.
class Reader {
 public:
  Reader(const char* format, const Value* values, size_t count) : rest_(format), values_(values), count_(count) {}

  std::string all() {
    std::string text;
    while (*rest_ != 0) {
      if (*rest_ != '%') {
        const size_t plain = std::strcspn(rest_, "%");
        text.append(rest_, plain);
        rest_ += plain;
      } else {
        ++rest_;
        text += conversion();
      }
    }
    if (next_ < count_) text += " %!(" + std::to_string(count_ - next_) + (count_ - next_ == 1 ? " value" : " values") + " too many)";
    return text;
  }

 private:
  const Value* take() { return next_ < count_ ? &values_[next_++] : nullptr; }

  // Digits, or the value that "*" stands for; -1 where there is none of both.
  int number(Spec& spec, bool is_width) {
    if (*rest_ == '*') {
      ++rest_;
      const Value* const given = take();
      const bool good = given != nullptr && (given->kind == Value::Kind::kSigned || given->kind == Value::Kind::kUnsigned);
      if (!good || given->number > kWidest || given->number < -kWidest) return spec.too_wide = true, -1;
      const int found = static_cast<int>(given->number);
      if (found < 0 && is_width) spec.flags += '-';
      return found < 0 ? (is_width ? -found : -1) : found;
    }
    if (*rest_ < '0' || *rest_ > '9') return -1;
    int found = 0;
    for (; *rest_ >= '0' && *rest_ <= '9'; ++rest_) found = std::min(10 * found + (*rest_ - '0'), kWidest + 1);
    if (found > kWidest) spec.too_wide = true;
    return found;
  }

  std::string conversion() {
    if (*rest_ == '%') return ++rest_, "%";
    Spec spec;
    while (is_one_of(*rest_, "-+ #0")) {
      if (spec.flags.find(*rest_) == std::string::npos) spec.flags += *rest_;
      ++rest_;
    }
    spec.width = number(spec, true);
    if (*rest_ == '.') {
      ++rest_;
      const bool given = *rest_ == '*';
      spec.precision = number(spec, false);
      if (spec.precision < 0 && !given) spec.precision = 0;
    }
    const char* const length = rest_;
    while (rest_ - length < 2 && (is_one_of(*rest_, "hl") ? rest_ == length || *length == *rest_ : *rest_ == 'b' && rest_ == length)) ++rest_;
    spec.length = std::string_view(length, static_cast<size_t>(rest_ - length));
    if (*rest_ == 0) return "%!(no format)";
    spec.what = *rest_++;
    return converted(spec);
  }

  std::string converted(const Spec& spec) {
    const std::string_view length = spec.length;
    const bool integer = is_one_of(spec.what, "diuxX") && length != "b";
    const bool real = is_one_of(spec.what, "fFeEgG") && (length.empty() || length == "b" || length == "h" || length == "l");
    const bool text = spec.what == 's' && length.empty();
    if (!integer && !real && !text) return marked(spec, "no such format");
    if (spec.too_wide) return take(), marked(spec, "width and precision: at most " + std::to_string(kWidest));
    const Value* const value = take();
    if (value == nullptr) return marked(spec, "no value");
    return integer ? print_integer(spec, *value) : real ? print_real(spec, *value) : print_text(spec, *value);
  }

  const char* rest_;
  const Value* values_;
  size_t count_, next_ = 0;
};

}  // namespace detail

// The text, without the line feed that it may end with: every print is a line of its own.
inline std::string format_values(const char* format, const Value* values, size_t count) {
  std::string text = detail::Reader(format == nullptr ? "(null)" : format, values, count).all();
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

template <class... Values>
std::string format(const char* text, const Values&... values) {
  const Value all[sizeof...(Values) + 1] = {value_of(values)...};
  return format_values(text, all, sizeof...(Values));
}

// Prints a line of a call; `member`: global coordinates [OD_MAX_DIMS], OD_NO_MEMBER from the index space's rank on,
// or null for the first member of the call. Throws std::invalid_argument where the kernel does not declare that it
// prints, and where it declares one value per line and there are more.
template <class... Values>
void print(const od_call& call, const od_kernel_spec& spec, const uint32_t* member, const char* text, const Values&... values) {
  if (spec.prints == OD_PRINT_NO) throw std::invalid_argument(std::string(spec.name) + " prints, and its declaration does not say so; accepted: prints");
  if (spec.prints == OD_PRINT_ONE && sizeof...(Values) > 1) {
    throw std::invalid_argument(std::string(spec.name) + " prints " + std::to_string(sizeof...(Values)) +
                                " values in a line; accepted: at most one, as its declaration says");
  }
  if (call.host == nullptr || call.host->print == nullptr) return;
  call.host->print(call.host, member, format(text, values...).c_str());
}

}  // namespace onedispatch::printing
