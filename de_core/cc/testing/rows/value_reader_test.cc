// Reading stored values: the AVX2 loops give the same bits as the plain ones.
#include "de_core/cc/engine/rows/value_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/testing/forced_level.h"

namespace de::engine {
namespace {

constexpr DType kFloating[] = {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16};

/// The reader that is chosen with AVX2, or without.
ValueReader::Values Reader(DType stored, DType wanted, bool wide) {
  const ForcedLevel forced(wide ? SimdLevel::kAvx2 : SimdLevel::kScalar);
  return ReaderOf(stored, wanted).values;
}

std::string Read(ValueReader::Values reader, const std::string& values, float scale, size_t dim,
                 DType wanted) {
  std::string out(dim * SizeOf(wanted) + 8, '#');  // with a margin that must not change
  reader(values.data(), scale, dim, out.data());
  EXPECT_EQ(out.substr(dim * SizeOf(wanted)), "########");
  return out;
}

class WideReaders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAvx2()) GTEST_SKIP() << "this processor has no AVX2";
  }
};

TEST_F(WideReaders, give_the_same_bits_for_every_half) {
  std::string halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back(static_cast<char>(bits & 0xff));
    halves.push_back(static_cast<char>(bits >> 8));
  }
  const ValueReader::Values wide = Reader(DType::kHalf, DType::kFloat32, true);
  const ValueReader::Values plain = Reader(DType::kHalf, DType::kFloat32, false);
  ASSERT_NE(wide, plain);
  EXPECT_EQ(Read(wide, halves, 1, 0x10000, DType::kFloat32),
            Read(plain, halves, 1, 0x10000, DType::kFloat32));
}

TEST_F(WideReaders, give_the_same_bits_at_every_width_and_for_every_pair_of_dtypes) {
  std::mt19937_64 random(1);
  for (const DType wanted : kFloating) {
    for (const DType stored :
         {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16, DType::kInt8}) {
      if (stored == wanted) continue;
      for (size_t dim = 1; dim <= 70; ++dim) {
        std::string values(dim * SizeOf(stored), '\0');
        for (char& byte : values) byte = static_cast<char>(random());
        for (const float scale : {0.37F, 1e-40F}) {
          ASSERT_EQ(Read(Reader(stored, wanted, true), values, scale, dim, wanted),
                    Read(Reader(stored, wanted, false), values, scale, dim, wanted))
              << NameOf(stored) << " as " << NameOf(wanted) << ", dim=" << dim;
        }
      }
    }
  }
}

TEST(Readers, read_rows_one_behind_the_other_as_they_read_values) {
  std::mt19937_64 random(2);
  for (const auto level : {SimdLevel::kScalar, SimdLevel::kAvx2}) {
    const ForcedLevel forced(level);
    for (const DType wanted : kFloating) {
      for (const DType stored :
           {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16, DType::kInt8}) {
        for (const size_t dim : {1, 7, 8, 32, 41}) {
          const size_t bytes = dim * SizeOf(stored), out_bytes = dim * SizeOf(wanted);
          std::string values(3 * (bytes + sizeof(float)), '\0');
          for (char& byte : values) byte = static_cast<char>(random());
          const char* const rows[] = {values.data() + 2 * (bytes + 4), values.data(),
                                      values.data() + bytes + 4};
          const ValueReader reader = ReaderOf(stored, wanted);
          std::string out(3 * out_bytes + 8, '#'), expected = out;
          for (size_t i = 0; i < 3; ++i) {
            const float scale[] = {0.5F, -3.0F, 1e-30F};
            std::memcpy(const_cast<char*>(rows[i]) + bytes, &scale[i], sizeof(float));
            reader.values(rows[i], scale[i], dim, expected.data() + i * out_bytes);
          }
          reader.rows(rows, 3, bytes, dim, out.data());
          ASSERT_EQ(out, expected) << NameOf(stored) << " as " << NameOf(wanted) << ", dim=" << dim;
        }
      }
    }
  }
}

TEST(Readers, read_int8_by_the_scale_and_halves_as_they_are) {
  const std::string bytes("\x01\x80\x7f", 3);
  float out[3];
  ReaderOf(DType::kInt8, DType::kFloat32)
      .values(bytes.data(), 0.5F, 3, reinterpret_cast<char*>(out));
  EXPECT_EQ(out[0], 0.5F);
  EXPECT_EQ(out[1], -64.0F);
  EXPECT_EQ(out[2], 63.5F);
  const std::string halves("\x00\x3c\x01\x00\x00\xfc", 6);  // 1, the least denormal, -inf
  ReaderOf(DType::kHalf, DType::kFloat32).values(halves.data(), 1, 3, reinterpret_cast<char*>(out));
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], 0x1p-24F);
  EXPECT_EQ(out[2], -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace de::engine
