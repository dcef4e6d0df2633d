// Lookups of keys with and without rows mixed: all specialized widths, at every SIMD level, in
// tables so full that many keys are not in their home line.
#include "de_core/cc/engine/table/table_find.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/forced_level.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine {
namespace {

class TableFind
    : public ::testing::TestWithParam<std::tuple<size_t, InitializerOptions::Kind, SimdLevel>> {
 protected:
  static constexpr int64_t kRows = 20000;

  void SetUp() override {
    if (!level_.is(std::get<2>(GetParam()))) GTEST_SKIP() << "this processor lacks the level";
  }

  size_t dim() const { return std::get<0>(GetParam()); }
  InitializerOptions initializer() const {
    InitializerOptions options;
    options.kind = std::get<1>(GetParam());
    options.a = -1;
    options.b = 2;
    options.seed = 3;
    return options;
  }
  /// Element `i` in the row of an even key.
  static float Element(int64_t key, size_t i) {
    return static_cast<float>(key) * 0.5F + static_cast<float>(i);
  }
  /// Even keys have rows.
  static int64_t Key(int64_t number) {
    return static_cast<int64_t>(Mix64(static_cast<uint64_t>(number))) & ~int64_t{1};
  }

 private:
  const ForcedLevel level_{std::get<2>(GetParam())};
};

TEST_P(TableFind, EveryKeyReadsItsOwnRowOrItsInitialOne) {
  TableOptions options;
  options.dim = dim();
  options.initializer = initializer();
  const auto table = testing::Make("", options);
  std::unique_ptr<const Initializer> initial;
  ASSERT_TRUE(Initializer::Create(initializer(), DType::kFloat32, dim(), &initial).ok());

  std::vector<int64_t> keys;
  std::vector<float> values;
  for (int64_t i = 0; i < kRows; ++i) {
    keys.push_back(Key(i));
    for (size_t e = 0; e < dim(); ++e) values.push_back(Element(keys.back(), e));
  }
  const Values in = RowsIn(values);
  ASSERT_TRUE(table->InsertOrAssign(KeysOf(keys), in, nullptr).ok());
  ASSERT_GT(table->Stats().load_factor, 0.4) << "too roomy for keys behind their home line";

  std::mt19937_64 random(1);
  const size_t streamed = kBytesToStream / (dim() * sizeof(float)) + 5;
  std::vector<size_t> counts{1, 3, 7, 8, 9, 64, 2047, 2048, 2049, 9000};
  if (dim() >= 8) counts.push_back(streamed);
  for (const size_t count : counts) {
    for (const int misses : {0, 1, 5, 10}) {  // number of absent keys among ten
      // Rows may be packed or lie apart, like columns of a wider matrix.
      const bool packed = count == streamed || (misses != 5 && count != 9000);
      const size_t stride = dim() + (packed ? 0 : 3);
      std::vector<int64_t> asked;
      for (size_t i = 0; i < count; ++i) {
        const int64_t key = keys[random() % keys.size()];
        asked.push_back(static_cast<int>(random() % 10) < misses ? key | 1 : key);
      }
      // Rows need not start at a cache line, and nothing may be written after the last row. Only
      // rows at a multiple of 16 bytes can be streamed.
      const size_t before = count == streamed ? kStreamBlock / sizeof(float) : 1;
      std::vector<float> rows(before + count * stride + 1, -7.0F), expected(dim());
      float* const first = rows.data() + before;
      const std::unique_ptr<bool[]> found(new bool[count]);
      const ValuesOut out{reinterpret_cast<char*>(first), nullptr,
                          stride == dim() ? 0 : stride * sizeof(float)};
      ASSERT_TRUE(table->Find({asked.data(), nullptr, count}, out, found.get(), nullptr).ok());
      for (size_t i = 0; i < count; ++i) {
        const bool exists = (asked[i] & 1) == 0;
        ASSERT_EQ(found[i], exists) << count << ' ' << i;
        if (!exists) initial->Fill(static_cast<uint64_t>(asked[i]), expected.data());
        for (size_t e = 0; exists && e < dim(); ++e) expected[e] = Element(asked[i], e);
        ASSERT_EQ(std::memcmp(first + i * stride, expected.data(), dim() * sizeof(float)), 0)
            << count << ' ' << i;
        for (size_t e = dim(); e < stride; ++e) ASSERT_EQ(first[i * stride + e], -7.0F);
      }
      ASSERT_EQ(first[-1], -7.0F);
      ASSERT_EQ(rows.back(), -7.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, TableFind,
                         ::testing::Combine(::testing::Values(1, 8, 16, 20, 32, 64, 65),
                                            ::testing::Values(InitializerOptions::Kind::kZeros,
                                                              InitializerOptions::Kind::kUniform,
                                                              InitializerOptions::Kind::kNormal),
                                            ::testing::Values(SimdLevel::kScalar, SimdLevel::kAvx2,
                                                              SimdLevel::kAvx512)));

TEST(TableFindInEmptyTable, ReadsTheWidestInitialRowsAndNoOtherMemory) {  // AddressSanitizer checks
  TableOptions options;
  options.dim = kMaxDim;
  options.value_dtype = DType::kFloat64;
  const auto table = testing::Make("", options);
  const std::vector<int64_t> keys{1, 2, 3};
  std::vector<double> rows(keys.size() * kMaxDim, -7);
  const ValuesOut out{reinterpret_cast<char*>(rows.data()), nullptr};
  ASSERT_TRUE(table->Find(KeysOf(keys), out, nullptr, nullptr).ok());
  EXPECT_EQ(rows, std::vector<double>(rows.size(), 0));
}

}  // namespace
}  // namespace de::engine
