// Initial rows: the values of each kind, invalid options, and golden values that must never change.
// initializer_statistics_test.cc tests the statistics of the random kinds.
#include "de_core/cc/engine/initial/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/testing/forced_level.h"
#include "gtest/gtest.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace de::engine {
namespace {

using Kind = InitializerOptions::Kind;

InitializerOptions Options(Kind kind, double a = 0, double b = 0, uint64_t seed = 0,
                           std::vector<float> table = {}) {
  return {kind, a, b, seed, std::move(table)};
}

std::unique_ptr<const Initializer> Make(InitializerOptions options, DType dtype, size_t dim) {
  std::unique_ptr<const Initializer> initializer;
  const Status status = Initializer::Create(std::move(options), dtype, dim, &initializer);
  EXPECT_TRUE(status.ok()) << status.message;
  return initializer;
}

Status StatusOf(InitializerOptions options, DType dtype, size_t dim = 2) {
  std::unique_ptr<const Initializer> initializer;
  const Status status = Initializer::Create(std::move(options), dtype, dim, &initializer);
  EXPECT_EQ(status.ok(), initializer != nullptr);
  return status;
}

template <typename T>
std::vector<T> Row(const Initializer& initializer, uint64_t key) {
  EXPECT_EQ(sizeof(T), SizeOf(initializer.dtype()));
  std::vector<T> row(initializer.dim());
  initializer.Fill(key, row.data());
  return row;
}

const DType kAllTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kHalf,
                           DType::kBFloat16, DType::kInt8,    DType::kInt32,
                           DType::kInt64,    DType::kBool,    DType::kString};
const DType kFloatTypes[] = {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16};
const Kind kRandomKinds[] = {Kind::kUniform, Kind::kNormal, Kind::kTruncatedNormal,
                             Kind::kQuantile};

/// Valid options of a random kind for rows of `dim`.
InitializerOptions RandomOptions(Kind kind, size_t dim) {
  InitializerOptions options = Options(kind, -0.25, 0.5, 42);
  for (size_t i = 0; kind == Kind::kQuantile && i < 5 * dim; ++i) {
    options.table.push_back(static_cast<float>(i) / 16);
  }
  return options;
}

TEST(Initializer, ZerosAreZeroBytesOfEveryDtype) {
  for (const DType dtype : kAllTypes) {
    const auto zeros = Make(Options(Kind::kZeros), dtype, 3);
    std::vector<char> row(3 * SizeOf(dtype), 'x');
    zeros->Fill(7, row.data());
    EXPECT_EQ(row, std::vector<char>(row.size(), '\0')) << NameOf(dtype);
    EXPECT_FALSE(zeros->is_random());
  }
}

TEST(Initializer, ConstantsAndRowsAreConvertedToTheDtype) {
  const auto constant = Options(Kind::kConstant, -3.75);
  EXPECT_EQ(Row<float>(*Make(constant, DType::kFloat32, 2), 1), (std::vector<float>{-3.75, -3.75}));
  EXPECT_EQ(Row<double>(*Make(constant, DType::kFloat64, 1), 1)[0], -3.75);
  EXPECT_EQ(ToFloat(Row<Half>(*Make(constant, DType::kHalf, 1), 1)[0]), -3.75F);
  EXPECT_EQ(ToFloat(Row<BFloat16>(*Make(constant, DType::kBFloat16, 1), 1)[0]), -3.75F);
  const auto row = Options(Kind::kRow, 0, 0, 0, {-128.9F, 0.0F, 127.5F});
  EXPECT_EQ(Row<int8_t>(*Make(row, DType::kInt8, 3), 1), (std::vector<int8_t>{-128, 0, 127}));
  EXPECT_EQ(Row<int32_t>(*Make(row, DType::kInt32, 3), 1), (std::vector<int32_t>{-128, 0, 127}));
  EXPECT_EQ(Row<int64_t>(*Make(row, DType::kInt64, 3), 1), (std::vector<int64_t>{-128, 0, 127}));
  EXPECT_EQ(Row<uint8_t>(*Make(row, DType::kBool, 3), 1), (std::vector<uint8_t>{1, 0, 1}));
  const double big = -9223372036854775808.0;
  EXPECT_EQ(Row<int64_t>(*Make(Options(Kind::kConstant, big), DType::kInt64, 1), 1)[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(
      std::isinf(Row<float>(*Make(Options(Kind::kConstant, -HUGE_VAL), DType::kFloat32, 1), 1)[0]));
}

TEST(Initializer, ValuesOutOfTheDtypesRangeAreRefused) {
  const auto constant = [](double value, DType dtype) {
    return StatusOf(Options(Kind::kConstant, value), dtype);
  };
  EXPECT_EQ(constant(128, DType::kInt8).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(-129, DType::kInt8).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(2147483648.0, DType::kInt32).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(9223372036854775808.0, DType::kInt64).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(std::nan(""), DType::kInt32).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(std::nan(""), DType::kBool).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(1e39, DType::kFloat32).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(65520, DType::kHalf).code, Code::kInvalidArgument);
  EXPECT_EQ(constant(1, DType::kString).code, Code::kInvalidArgument);
  EXPECT_TRUE(constant(65519, DType::kHalf).ok());
  EXPECT_NE(constant(300, DType::kInt8).message.find("int8. Received: 300"), std::string::npos);
}

TEST(Initializer, OptionsThatDoNotFitTheTableAreRefused) {
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype :
         {DType::kInt8, DType::kInt32, DType::kInt64, DType::kBool, DType::kString}) {
      const Status status = StatusOf(RandomOptions(kind, 2), dtype);
      EXPECT_EQ(status.code, Code::kInvalidArgument);
      EXPECT_NE(status.message.find(std::string(NameOf(dtype))), std::string::npos);
    }
  }
  const DType f32 = DType::kFloat32;
  const double infinity = HUGE_VAL;
  const InitializerOptions bad[] = {
      Options(Kind::kUniform, 1, 0),
      Options(Kind::kUniform, 0, infinity),
      Options(Kind::kUniform, std::nan(""), 1),
      Options(Kind::kNormal, 0, -1),
      Options(Kind::kNormal, infinity, 1),
      Options(Kind::kNormal, 0, 1e38),
      Options(Kind::kTruncatedNormal, 0, std::nan("")),
      Options(Kind::kRow, 0, 0, 0, {1}),
      Options(Kind::kQuantile),
      Options(Kind::kQuantile, 0, 0, 0, {1, 2, 3}),
      Options(Kind::kQuantile, 0, 0, 0, {1, 2, 2, 1}),
      Options(Kind::kQuantile, 0, 0, 0, {1, 2, 2, std::numeric_limits<float>::quiet_NaN()}),
      Options(static_cast<Kind>(99)),
  };
  for (const InitializerOptions& options : bad) {
    EXPECT_EQ(StatusOf(options, f32).code, Code::kInvalidArgument)
        << static_cast<int>(options.kind) << ' ' << options.a << ' ' << options.b;
  }
  EXPECT_EQ(StatusOf(Options(Kind::kZeros), f32, 0).code, Code::kInvalidArgument);
  EXPECT_EQ(StatusOf(Options(Kind::kUniform, 0, 1e5), DType::kHalf).code, Code::kInvalidArgument);
}

TEST(Initializer, AnElementDependsOnSeedKeyAndItsIndexOnly) {
  for (const Kind kind : {Kind::kUniform, Kind::kNormal, Kind::kTruncatedNormal}) {
    for (const DType dtype : kFloatTypes) {
      std::vector<char> longest(100 * SizeOf(dtype));
      Make(RandomOptions(kind, 100), dtype, 100)->Fill(99, longest.data());
      for (size_t dim = 1; dim < 100; ++dim) {
        std::vector<char> row((dim + 4) * SizeOf(dtype), '#');
        Make(RandomOptions(kind, dim), dtype, dim)->Fill(99, row.data());
        const size_t bytes = dim * SizeOf(dtype);
        ASSERT_EQ(std::memcmp(row.data(), longest.data(), bytes), 0) << NameOf(dtype) << ' ' << dim;
        ASSERT_EQ(std::string(row.data() + bytes, row.size() - bytes),
                  std::string(row.size() - bytes, '#'))
            << "wrote beyond the row";
      }
    }
  }
}

TEST(Initializer, SeedsAndKeysGiveOtherRows) {
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype : kFloatTypes) {
      const auto first = Make(RandomOptions(kind, 8), dtype, 8);
      InitializerOptions options = RandomOptions(kind, 8);
      options.seed = 43;
      const auto second = Make(options, dtype, 8);
      std::vector<char> a(8 * SizeOf(dtype)), b(a), c(a), again(a);
      first->Fill(5, a.data());
      first->Fill(6, b.data());
      second->Fill(5, c.data());
      first->Fill(5, again.data());
      EXPECT_NE(a, b);
      EXPECT_NE(a, c);
      EXPECT_EQ(a, again);
      EXPECT_TRUE(first->is_random());
      EXPECT_EQ(first->options().seed, 42U);
    }
  }
}

TEST(Initializer, DegenerateDistributionsAreConstants) {
  const auto same = [](InitializerOptions options) {
    return Row<float>(*Make(std::move(options), DType::kFloat32, 2), 3);
  };
  const std::vector<float> expected = {0.1F, 0.1F};
  EXPECT_EQ(same(Options(Kind::kUniform, 0.1, 0.1)), expected);
  EXPECT_EQ(same(Options(Kind::kNormal, 0.1, 0)), expected);
  EXPECT_EQ(same(Options(Kind::kTruncatedNormal, 0.1, 0)), expected);
  EXPECT_EQ(same(Options(Kind::kQuantile, 0, 0, 0, {0.1F, 0.1F})), expected);
  EXPECT_EQ(same(Options(Kind::kQuantile, 0, 0, 0, {0.1F, 0.1F, 0.1F, 0.1F})), expected);
}

/// Checks rows whose elements are from -4 times the least normal number to 0, which is excluded.
template <typename T>
void ExpectNoDenormals(DType dtype) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  const auto row = Row<T>(*Make(Options(Kind::kUniform, -4.0 * kLeast, 0), dtype, 1000), 3);
  EXPECT_LT(*std::min_element(row.begin(), row.end()), -3 * kLeast) << NameOf(dtype);
  EXPECT_EQ(*std::max_element(row.begin(), row.end()), -kLeast) << NameOf(dtype);
}

TEST(Initializer, AUniformRangeBelowZeroEndsWithTheLeastNormalNumber) {
  ExpectNoDenormals<float>(DType::kFloat32);
  ExpectNoDenormals<double>(DType::kFloat64);
}

TEST(Initializer, AUniformRangeEndsWithTheGreatestNumberBelowItsEnd) {
  // Numbers are closer together below a power of two than above it.
  const auto greatest = [](double end) {
    const auto row = Row<uint16_t>(*Make(Options(Kind::kUniform, 0, end), DType::kHalf, 20000), 3);
    return *std::max_element(row.begin(), row.end());  // positive halves are ordered as their bits
  };
  EXPECT_EQ(greatest(1), 0x3bff);
  EXPECT_EQ(greatest(1.5), 0x3dff);
}

TEST(Initializer, RowsAreTheSameOnThreadsThatFlushDenormals) {
#if defined(__SSE2__)
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype : kFloatTypes) {
      const auto initializer = Make(RandomOptions(kind, 64), dtype, 64);
      std::vector<char> kept(64 * SizeOf(dtype)), flushed(kept);
      size_t differing = 0;
      for (uint64_t key = 0; key < 1000; ++key) {
        initializer->Fill(key, kept.data());
        const unsigned saved = _mm_getcsr();
        _mm_setcsr(saved | 0x8040);
        initializer->Fill(key, flushed.data());
        _mm_setcsr(saved);
        differing += kept != flushed ? 1 : 0;
      }
      EXPECT_EQ(differing, 0U) << static_cast<int>(kind) << ' ' << NameOf(dtype);
    }
  }
#else
  GTEST_SKIP() << "needs SSE2's control register";
#endif
}

TEST(Initializer, RowsAreTheSameWithVectorsOfAnyWidth) {
  const SimdLevel best = ActiveSimdLevel();
  if (best == SimdLevel::kScalar) GTEST_SKIP() << "this processor lacks AVX2";
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype : kFloatTypes) {
      for (const size_t dim : {1, 3, 8, 16, 31, 32, 33, 49, 100}) {
        std::vector<std::unique_ptr<const Initializer>> made;
        for (const auto level : {SimdLevel::kScalar, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
          const ForcedLevel forced(level);
          if (forced.is(level)) made.push_back(Make(RandomOptions(kind, dim), dtype, dim));
        }
        // One element in 65,536 lies so far out in the distribution's tail that its coefficients
        // are not in a register. Draw so many that some of them occur.
        const uint64_t keys = dim == 32 ? 10'000 : 300;
        for (uint64_t key = 0; key < keys; ++key) {
          std::vector<char> baseline(dim * SizeOf(dtype)), other(baseline);
          made[0]->Fill(key * 0x9e3779b97f4a7c15ULL, baseline.data());
          for (size_t i = 1; i < made.size(); ++i) {
            made[i]->Fill(key * 0x9e3779b97f4a7c15ULL, other.data());
            ASSERT_EQ(baseline, other)
                << i << ' ' << static_cast<int>(kind) << ' ' << NameOf(dtype) << ' ' << dim;
          }
        }
      }
    }
  }
}

TEST(Initializer, RowsThatAreFilledTogetherAreThoseFilledAlone) {
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype : kFloatTypes) {
      for (const size_t dim : {1, 8, 16, 24, 32, 61}) {
        const auto initializer = Make(RandomOptions(kind, dim), dtype, dim);
        const size_t bytes = dim * SizeOf(dtype);
        for (const size_t count : {1, 7, 16, 17, 40}) {
          std::vector<uint64_t> keys(count);
          std::vector<char> together(count * bytes), alone(bytes);
          std::vector<void*> rows(count);
          for (size_t i = 0; i < count; ++i) {
            keys[i] = i * 0x9e3779b97f4a7c15ULL;
            rows[i] = together.data() + (count - 1 - i) * bytes;
          }
          initializer->FillRows(keys.data(), rows.data(), count);
          for (size_t i = 0; i < count; ++i) {
            initializer->Fill(keys[i], alone.data());
            ASSERT_EQ(std::memcmp(rows[i], alone.data(), bytes), 0) << NameOf(dtype) << ' ' << dim;
          }
        }
      }
    }
  }
}

// A missing row must read the same in every build, now and later. If this test fails, the change
// breaks every table that was saved or served with a random initializer: undo the change.
TEST(Initializer, RowsAreAPersistentPromise) {
  constexpr size_t kDim = 40;
  // checksums of the rows of four keys, in the order of kFloatTypes
  const std::pair<Kind, std::array<uint32_t, 4>> golden[] = {
      {Kind::kUniform, {0xef2f2df8, 0xd350634d, 0x2430eb30, 0x44272cb8}},
      {Kind::kNormal, {0x4dc4e68b, 0xb7350491, 0x73a62c81, 0x92d4f5f4}},
      {Kind::kTruncatedNormal, {0xda3d947b, 0xbc725b41, 0xbe3a8c71, 0xe2c0b080}},
      {Kind::kQuantile, {0xdfe1297b, 0x7592868e, 0x72b4b199, 0x6d7a2382}},
  };
  for (const auto& [kind, checksums] : golden) {
    for (size_t i = 0; i < checksums.size(); ++i) {
      const auto initializer = Make(RandomOptions(kind, kDim), kFloatTypes[i], kDim);
      std::string rows;
      for (const uint64_t key : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, 0x9e3779b97f4a7c15UL}) {
        std::string row(kDim * SizeOf(kFloatTypes[i]), '\0');
        initializer->Fill(key, row.data());
        rows += row;
      }
      EXPECT_EQ(Crc32c(rows.data(), rows.size()), checksums[i])
          << static_cast<int>(kind) << ' ' << NameOf(kFloatTypes[i]);
    }
  }
}

}  // namespace
}  // namespace de::engine
