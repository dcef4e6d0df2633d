// Initial rows: what each kind writes, which options are refused, and the persistent golden values.
// The statistics of the random kinds are in initializer_statistics_test.cc.
#include "de_core/cc/engine/initializer.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "de_core/cc/engine/scalar_types.h"
#include "de_core/cc/engine/wide_vectors.h"
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

TEST(Initializer, RowsAreTheSameWithoutWideVectors) {
  const bool has = HasWideVectors();
  if (!has) GTEST_SKIP() << "this processor runs the baseline alone";
  for (const Kind kind : kRandomKinds) {
    for (const DType dtype : kFloatTypes) {
      for (const size_t dim : {1, 3, 8, 31, 32, 33, 100}) {
        const auto wide = Make(RandomOptions(kind, dim), dtype, dim);
        HasWideVectors() = false;
        const auto baseline = Make(RandomOptions(kind, dim), dtype, dim);
        HasWideVectors() = has;
        std::vector<char> rows[2] = {std::vector<char>(dim * SizeOf(dtype)),
                                     std::vector<char>(dim * SizeOf(dtype))};
        for (uint64_t key = 0; key < 300; ++key) {
          wide->Fill(key * 0x9e3779b97f4a7c15ULL, rows[0].data());
          baseline->Fill(key * 0x9e3779b97f4a7c15ULL, rows[1].data());
          ASSERT_EQ(rows[0], rows[1])
              << static_cast<int>(kind) << ' ' << NameOf(dtype) << ' ' << dim << ' ' << key;
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
        for (const size_t count : {1, 7, 8, 9, 30}) {
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

// A missing row must read the same in every build for ever. If this test fails, the change breaks
// every table that was ever saved or served with a random initializer: undo the change.
TEST(Initializer, RowsAreAPersistentPromise) {
  struct Golden {
    Kind kind;
    uint64_t key;
    uint32_t floats[3];
    uint64_t doubles[2];
    uint16_t half;
    uint16_t bfloat16;
  };
  const Golden golden[] = {
      {Kind::kUniform,
       0x0,
       {0xbe4726ca, 0x3e76fc20, 0x3ee73678},
       {0xbfa787c23dd39700, 0xbfc3b062bf906486},
       0xb0ff,
       0xbe20},
      {Kind::kUniform,
       0x1,
       {0xbe7168ac, 0x3e376db4, 0xbe39d524},
       {0x3fd223d85b3af776, 0xbfc9427d6aa0d7cc},
       0xad4e,
       0xbdaa},
      {Kind::kUniform,
       0xffffffffffffffff,
       {0x3b9ac480, 0x3e13cf9e, 0x3eb56481},
       {0x3fcd19c51940d83f, 0xbfb1731349bc960c},
       0x346c,
       0x3e8d},
      {Kind::kUniform,
       0x9e3779b97f4a7c15,
       {0x3d560b98, 0x3df91886, 0xbe455394},
       {0x3fd7fc45995eb24a, 0x3fd8c8f7583dc250},
       0x36ff,
       0x3ee0},
      {Kind::kNormal,
       0x0,
       {0xbf79261e, 0xbd4f8a30, 0x3f0242cd},
       {0xbfe1b4a79e609461, 0xbfea27f2389dbab5},
       0xba99,
       0xbf53},
      {Kind::kNormal,
       0x1,
       {0xbfa4cac5, 0xbe22dd7a, 0xbf6a8c52},
       {0x3f9d34876b11b970, 0xbfef9667bf045e7c},
       0xb90d,
       0xbf22},
      {Kind::kNormal,
       0xffffffffffffffff,
       {0xbee9d94a, 0xbe5ede98, 0x3e3971f0},
       {0xbfb3531a65e8cf42, 0xbfe32cd1622c8aed},
       0x238c,
       0x3c71},
      {Kind::kNormal,
       0x9e3779b97f4a7c15,
       {0xbebedd55, 0xbe82e297, 0xbf770123},
       {0x3fcdd659c6fdfd4e, 0x3fd11f81f1e1400c},
       0x370e,
       0x3ee2},
      {Kind::kTruncatedNormal,
       0x0,
       {0xbf68f896, 0xbd769288, 0x3ee055ae},
       {0xbfe135d64ddaf880, 0xbfe8eb495fb7e590},
       0xba48,
       0xbf49},
      {Kind::kTruncatedNormal,
       0x1,
       {0xbf8f6480, 0xbe272599, 0xbf5d063f},
       {0x3f8dd150bf4d5480, 0xbfed799f88389b3f},
       0xb8e2,
       0xbf1c},
      {Kind::kTruncatedNormal,
       0xffffffffffffffff,
       {0xbee4c4fa, 0xbe6060f4, 0x3e201792},
       {0xbfb56f9b0208a530, 0xbfe2953540b03bce},
       0x1684,
       0x3ad1},
      {Kind::kTruncatedNormal,
       0x9e3779b97f4a7c15,
       {0xbebbf326, 0xbe82c0fc, 0xbf673f36},
       {0x3fca1144f34af7a6, 0x3fce075c1b70731e},
       0x3624,
       0x3ec4},
      {Kind::kQuantile,
       0x0,
       {0x40b7afd6, 0x3fce4ee0, 0x40d9580f},
       {0x401ee1dbc439f59a, 0x4021709618174064},
       0x4660,
       0x40cc},
      {Kind::kQuantile,
       0x1,
       {0x40a61463, 0x3f48c301, 0x41059e43},
       {0x4000e668980cf1c4, 0x4020477b3473d30b},
       0x475a,
       0x40eb},
      {Kind::kQuantile,
       0xffffffffffffffff,
       {0x41065748, 0x3ea412c7, 0x40afd3c1},
       {0x3ff5d59dd4c16869, 0x4023b958a851b05f},
       0x4049,
       0x4009},
      {Kind::kQuantile,
       0x9e3779b97f4a7c15,
       {0x41107b45, 0x412047e3, 0x41033942},
       {0x400aa473ff9dd3d0, 0x4017bcce1ede21ee},
       0x444a,
       0x4089},
  };
  for (const Golden& g : golden) {
    const auto f32 = Row<float>(*Make(RandomOptions(g.kind, 40), DType::kFloat32, 40), g.key);
    const auto f64 = Row<double>(*Make(RandomOptions(g.kind, 40), DType::kFloat64, 40), g.key);
    const auto f16 = Row<Half>(*Make(RandomOptions(g.kind, 40), DType::kHalf, 40), g.key);
    const auto b16 = Row<BFloat16>(*Make(RandomOptions(g.kind, 40), DType::kBFloat16, 40), g.key);
    EXPECT_EQ(BitsOf(f32[0]), g.floats[0]);
    EXPECT_EQ(BitsOf(f32[1]), g.floats[1]);
    EXPECT_EQ(BitsOf(f32[39]), g.floats[2]);
    EXPECT_EQ(BitsOf(f64[0]), g.doubles[0]);
    EXPECT_EQ(BitsOf(f64[39]), g.doubles[1]);
    EXPECT_EQ(f16[2].bits, g.half);
    EXPECT_EQ(b16[2].bits, g.bfloat16);
  }
}

}  // namespace
}  // namespace de::engine
