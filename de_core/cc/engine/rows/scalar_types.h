// The floating-point element types of a row, and their conversions to the type of arithmetic: float
// for float32, half and bfloat16, double for float64.
//
// Every conversion rounds to nearest even, keeps infinities, denormals and the sign of zero, and
// makes NaN a quiet NaN with the same leading payload bits. No denormal float is an operand, so the
// bits are the same on threads that flush denormals (as TensorFlow's do). There are no branches, so
// loops vectorize.
#ifndef DE_CORE_ENGINE_SCALAR_TYPES_H_
#define DE_CORE_ENGINE_SCALAR_TYPES_H_

#include <cstdint>
#include <cstring>

#include "de_core/cc/engine/base/types.h"

namespace de::engine {

/// IEEE 754 binary16.
struct Half {
  uint16_t bits;
};

/// The upper half of an IEEE 754 binary32.
struct BFloat16 {
  uint16_t bits;
};

inline uint32_t BitsOf(float value) noexcept {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline uint64_t BitsOf(double value) noexcept {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatOfBits(uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline double DoubleOfBits(uint64_t bits) noexcept {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// a * b + c, rounded once. Gives the same result on every machine; one instruction where
/// available.
inline float FusedMultiplyAdd(float a, float b, float c) noexcept {
  return __builtin_fmaf(a, b, c);
}

/// yes ? a : b by bit masks. A branch would prevent vectorization, and so would a conditional float
/// operation.
inline uint32_t Select(bool yes, uint32_t a, uint32_t b) noexcept {
  const uint32_t mask = 0U - static_cast<uint32_t>(yes);
  return b ^ ((a ^ b) & mask);
}

inline float ToFloat(Half half) noexcept {
  const uint32_t sign = (half.bits & 0x8000U) << 16;
  const int32_t magnitude = (half.bits & 0x7fff) << 13;
  constexpr int32_t kRebias = (127 - 15) << 23;
  constexpr int32_t kInfinity = 0x7c00 << 13;
  constexpr int32_t kSmallestNormal = 0x0400 << 13;
  // For a denormal half: put its digits below a leading 1 that means 2^-14, then subtract 2^-14.
  constexpr int32_t kLeadingOne = (127 - 14) << 23;
  const uint32_t denormal = BitsOf(FloatOfBits(static_cast<uint32_t>(magnitude + kLeadingOne)) -
                                   FloatOfBits(static_cast<uint32_t>(kLeadingOne)));
  const uint32_t rebias = Select(magnitude >= kInfinity, 2U * kRebias, kRebias);
  const uint32_t normal = static_cast<uint32_t>(magnitude) + rebias;
  return FloatOfBits(sign | Select(magnitude < kSmallestNormal, denormal, normal));
}

inline Half ToHalf(float value) noexcept {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  constexpr int32_t kInfinity = 0x7f800000;
  constexpr int32_t kOverflow = (127 + 16) << 23;        // 2^16: rounds to infinity
  constexpr int32_t kSmallestNormal = (127 - 14) << 23;  // 2^-14
  // For a result that is a denormal half: adding 0.5 rounds it, and leaves its digits in the lowest
  // bits of the sum.
  constexpr uint32_t kAligner = 126U << 23;
  const uint32_t unsigned_bits = static_cast<uint32_t>(magnitude);
  const uint32_t small = Select(magnitude < kSmallestNormal, unsigned_bits, 0);
  const uint32_t denormal = BitsOf(FloatOfBits(small) + FloatOfBits(kAligner)) - kAligner;
  const uint32_t odd = (unsigned_bits >> 13) & 1U;
  const uint32_t normal = (unsigned_bits - ((127U - 15U) << 23) + 0xfffU + odd) >> 13;
  const uint32_t nan = 0x7e00U | ((unsigned_bits >> 13) & 0x3ffU);
  const uint32_t finite = Select(magnitude < kSmallestNormal, denormal, normal);
  const uint32_t special = Select(magnitude > kInfinity, nan, 0x7c00U);
  return {static_cast<uint16_t>(sign | Select(magnitude >= kOverflow, special, finite))};
}

inline float ToFloat(BFloat16 value) noexcept {
  return FloatOfBits(static_cast<uint32_t>(value.bits) << 16);
}

inline BFloat16 ToBFloat16(float value) noexcept {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  return {static_cast<uint16_t>(Select(magnitude > 0x7f800000, nan, rounded))};
}

/// `Scalar<T>`: Real is the type of arithmetic for elements of type T. Load and Store convert.
template <typename T>
struct Scalar;

template <>
struct Scalar<float> {
  using Real = float;
  static float Load(float value) noexcept { return value; }
  static float Store(float value) noexcept { return value; }
};

template <>
struct Scalar<double> {
  using Real = double;
  static double Load(double value) noexcept { return value; }
  static double Store(double value) noexcept { return value; }
};

template <>
struct Scalar<Half> {
  using Real = float;
  static float Load(Half value) noexcept { return ToFloat(value); }
  static Half Store(float value) noexcept { return ToHalf(value); }
};

template <>
struct Scalar<BFloat16> {
  using Real = float;
  static float Load(BFloat16 value) noexcept { return ToFloat(value); }
  static BFloat16 Store(float value) noexcept { return ToBFloat16(value); }
};

/// Passes a type as a value: `typename decltype(tag)::type`.
template <typename T>
struct TypeTag {
  using type = T;
};

/// Returns visit(TypeTag<T>{}) for the element type T of a floating-point `dtype`, otherwise
/// `fallback`.
template <typename Result, typename Visit>
Result VisitFloating(DType dtype, Result fallback, Visit&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      return visit(TypeTag<float>{});
    case DType::kFloat64:
      return visit(TypeTag<double>{});
    case DType::kHalf:
      return visit(TypeTag<Half>{});
    case DType::kBFloat16:
      return visit(TypeTag<BFloat16>{});
    default:
      return fallback;
  }
}

/// Like VisitFloating, for an integer `dtype`.
template <typename Result, typename Visit>
Result VisitInteger(DType dtype, Result fallback, Visit&& visit) {
  switch (dtype) {
    case DType::kInt8:
      return visit(TypeTag<int8_t>{});
    case DType::kInt32:
      return visit(TypeTag<int32_t>{});
    case DType::kInt64:
      return visit(TypeTag<int64_t>{});
    default:
      return fallback;
  }
}

/// Writes `value`, rounded, as an element of a floating-point `dtype`; writes nothing for others.
inline void StoreReal(DType dtype, double value, void* element) noexcept {
  VisitFloating(dtype, 0, [value, element](auto tag) {
    using T = typename decltype(tag)::type;
    const T stored = Scalar<T>::Store(static_cast<typename Scalar<T>::Real>(value));
    std::memcpy(element, &stored, sizeof(stored));
    return 0;
  });
}

/// Returns the dtype of arithmetic, gradients and optimizer slots for rows of dtype `value`.
constexpr DType RealOf(DType value) noexcept {
  return value == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SCALAR_TYPES_H_
