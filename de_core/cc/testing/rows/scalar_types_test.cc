// Conversions, checked by definition: the nearest representable value, ties to even.
#include "de_core/cc/engine/rows/scalar_types.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace de::engine {
namespace {

double ValueOfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int digits = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(1024 + digits, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double ValueOfBFloat16(uint16_t bits) {
  const int exponent = (bits >> 7) & 255;
  const int digits = bits & 127;
  const double magnitude =
      exponent == 0 ? std::ldexp(digits, -133) : std::ldexp(128 + digits, exponent - 134);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(ScalarTypes, EveryFiniteHalfConvertsExactlyAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    const Half half{static_cast<uint16_t>(bits)};
    ASSERT_EQ(static_cast<double>(ToFloat(half)), ValueOfHalf(half.bits)) << bits;
    ASSERT_EQ(std::signbit(ToFloat(half)), (bits & 0x8000) != 0);
    ASSERT_EQ(ToHalf(ToFloat(half)).bits, bits);
  }
}

TEST(ScalarTypes, EveryFiniteBFloat16ConvertsExactlyAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;
    const BFloat16 value{static_cast<uint16_t>(bits)};
    ASSERT_EQ(static_cast<double>(ToFloat(value)), ValueOfBFloat16(value.bits)) << bits;
    ASSERT_EQ(ToBFloat16(ToFloat(value)).bits, bits);
  }
}

TEST(ScalarTypes, FloatsBetweenTwoHalvesRoundToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = ToFloat(Half{static_cast<uint16_t>(bits)});
    const float high = ToFloat(Half{static_cast<uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;  // exact: a half has 13 spare digits
    const uint32_t even = bits + (bits & 1);
    ASSERT_EQ(ToHalf(middle).bits, even) << bits;
    ASSERT_EQ(ToHalf(-middle).bits, even | 0x8000) << bits;
    ASSERT_EQ(ToHalf(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(ToHalf(std::nextafter(middle, high)).bits, bits + 1);
  }
}

TEST(ScalarTypes, FloatsBetweenTwoBFloat16RoundToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float low = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    const float high = ToFloat(BFloat16{static_cast<uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;
    const uint32_t even = bits + (bits & 1);
    ASSERT_EQ(ToBFloat16(middle).bits, even) << bits;
    ASSERT_EQ(ToBFloat16(-middle).bits, even | 0x8000) << bits;
    ASSERT_EQ(ToBFloat16(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(ToBFloat16(std::nextafter(middle, high)).bits, bits + 1);
  }
}

TEST(ScalarTypes, OverflowInfinityAndNanAreKept) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ToHalf(65504.0F).bits, 0x7bff);
  EXPECT_EQ(ToHalf(65519.996F).bits, 0x7bff);
  EXPECT_EQ(ToHalf(65520.0F).bits, 0x7c00);
  EXPECT_EQ(ToHalf(-1e30F).bits, 0xfc00);
  EXPECT_EQ(ToHalf(infinity).bits, 0x7c00);
  EXPECT_EQ(ToFloat(Half{0xfc00}), -infinity);
  EXPECT_EQ(ToBFloat16(infinity).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToFloat(BFloat16{0xff80}), -infinity);
  for (uint32_t payload = 1; payload < 0x400; ++payload) {
    const Half half{static_cast<uint16_t>(0x7c00 | payload)};
    ASSERT_TRUE(std::isnan(ToFloat(half)));
    ASSERT_EQ(ToHalf(ToFloat(half)).bits, half.bits | 0x200);
  }
  // A NaN whose payload is only in the removed bits must not become an infinity.
  EXPECT_EQ(ToHalf(FloatOfBits(0x7f800001)).bits, 0x7e00);
  EXPECT_EQ(ToBFloat16(FloatOfBits(0xff800001)).bits, 0xffc0);
  EXPECT_EQ(ToBFloat16(FloatOfBits(0x7fffffff)).bits, 0x7fff);
}

TEST(ScalarTypes, TinyFloatsBecomeSignedZero) {
  EXPECT_EQ(ToHalf(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(ToHalf(-std::numeric_limits<float>::min()).bits, 0x8000);
  EXPECT_EQ(ToHalf(std::ldexp(1.0F, -25)).bits, 0);
  EXPECT_EQ(ToHalf(std::ldexp(1.5F, -25)).bits, 1);
}

#if defined(__SSE2__)
TEST(ScalarTypes, HalfDenormalsSurviveOnThreadsThatFlushDenormals) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush results to zero, treat denormals as zero
  uint32_t wrong = 0;
  for (uint32_t bits = 1; bits < 0x400; ++bits) {
    const float value = ToFloat(Half{static_cast<uint16_t>(bits)});
    if (ToHalf(value).bits != bits || value == 0.0F) ++wrong;
  }
  _mm_setcsr(saved);
  EXPECT_EQ(wrong, 0U);
}
#endif

TEST(ScalarTypes, VisitFloatingNamesTheElementType) {
  const auto width = [](auto tag) { return sizeof(typename decltype(tag)::type); };
  EXPECT_EQ(VisitFloating(DType::kFloat32, size_t{0}, width), 4U);
  EXPECT_EQ(VisitFloating(DType::kFloat64, size_t{0}, width), 8U);
  EXPECT_EQ(VisitFloating(DType::kHalf, size_t{0}, width), 2U);
  EXPECT_EQ(VisitFloating(DType::kBFloat16, size_t{0}, width), 2U);
  EXPECT_EQ(VisitFloating(DType::kInt32, size_t{0}, width), 0U);
}

}  // namespace
}  // namespace de::engine
