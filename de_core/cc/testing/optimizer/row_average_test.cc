// The moving average of a row equals an average computed in double.
#include "de_core/cc/engine/optimizer/row_average.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace de::engine {
namespace {

constexpr size_t kDim = 5;

std::string RowOf(DType dtype, const std::vector<double>& values) {
  std::string row(values.size() * SizeOf(dtype), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    StoreReal(dtype, values[i], row.data() + i * SizeOf(dtype));
  }
  return row;
}

class RowAverageTest : public ::testing::TestWithParam<DType> {
 protected:
  /// Returns an average that has not begun: its slot has the initial values.
  std::string Fresh() const {
    const SlotSpec slot = AverageSlot(GetParam(), kDim);
    EXPECT_EQ(slot.width, kDim);
    EXPECT_EQ(slot.dtype, RealOf(GetParam()));
    return RowOf(slot.dtype, std::vector<double>(kDim, slot.initial));
  }

  const AverageKernels kernels_ = AverageKernelsOf(GetParam());
};

TEST_P(RowAverageTest, begins_at_the_value_before_the_first_update_and_only_once) {
  std::string average = Fresh(), row = RowOf(GetParam(), {1, 2, -0.0, 4, 0.5});
  const std::string before = row;
  kernels_.take(row.data(), average.data(), kDim);
  EXPECT_EQ(row, before) << "an average that has not begun says nothing";
  kernels_.begin(row.data(), average.data(), kDim);
  EXPECT_EQ(average, RowOf(RealOf(GetParam()), {1, 2, -0.0, 4, 0.5}));
  row = RowOf(GetParam(), {9, 9, 9, 9, 9});
  kernels_.begin(row.data(), average.data(), kDim);
  kernels_.take(row.data(), average.data(), kDim);
  EXPECT_EQ(row, before);
}

TEST_P(RowAverageTest, blends_by_the_momentum_in_the_type_of_arithmetic) {
  std::string average = Fresh(), row = RowOf(GetParam(), {0, 0, 0, 0, 0});
  kernels_.begin(row.data(), average.data(), kDim);
  std::vector<double> wanted(kDim, 0);
  for (int step = 1; step <= 40; ++step) {
    std::vector<double> values(kDim);
    for (size_t i = 0; i < kDim; ++i) values[i] = step % 7 - static_cast<double>(i);  // exact
    row = RowOf(GetParam(), values);
    kernels_.blend(row.data(), average.data(), kDim, 0.9);
    for (size_t i = 0; i < kDim; ++i) wanted[i] = 0.9 * wanted[i] + (1 - 0.9) * values[i];
    const bool wide = RealOf(GetParam()) == DType::kFloat64;
    for (size_t i = 0; i < kDim; ++i) {
      double mean = 0;
      float narrow = 0;
      std::memcpy(&mean, average.data() + (wide ? i * sizeof(mean) : 0), sizeof(mean));
      std::memcpy(&narrow, average.data() + i * sizeof(narrow), sizeof(narrow));
      ASSERT_NEAR(wide ? mean : narrow, wanted[i], wide ? 1e-13 : 1e-5);
    }
  }
  kernels_.take(row.data(), average.data(), kDim);
  const std::string rounded = RowOf(GetParam(), wanted);
  EXPECT_TRUE(SizeOf(GetParam()) != 2 || row == rounded);
}

INSTANTIATE_TEST_SUITE_P(Floating, RowAverageTest,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kHalf,
                                           DType::kBFloat16));

TEST(RowAverage, is_of_floating_values_alone) {
  for (const DType dtype : {DType::kInt8, DType::kInt64, DType::kBool, DType::kString}) {
    EXPECT_EQ(AverageKernelsOf(dtype).begin, nullptr);
  }
}

}  // namespace
}  // namespace de::engine
