#include "de_core/cc/engine/batch/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

TEST(SegmentsTest, RefusesWhatDoesNotDivideTheBatch) {
  const std::vector<int64_t> good = {0, 2, 2, 5};
  EXPECT_TRUE(Segments({good.data(), 3}).Check(5).ok());
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{1, 5}, {0, 4}, {0, 3, 2, 5}, {0, 6, 5}}) {
    EXPECT_EQ(Segments({splits.data(), splits.size() - 1}).Check(5).code, Code::kInvalidArgument);
  }
}

TEST(RowAdditionTest, AddsWeightedRowsOfEveryWidth) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const size_t dim : {1, 7, 16, 31, 64}) {
    std::vector<float> rows(5 * dim), weights(5), sum(dim, 1), plain(dim, 1);
    for (float& each : rows) each = normal(random);
    for (float& each : weights) each = normal(random);
    const char* bytes = reinterpret_cast<const char*>(rows.data());
    RowAddition(DType::kFloat32)(bytes, weights.data(), 5, dim, sum.data());
    RowAddition(DType::kFloat32)(bytes, nullptr, 5, dim, plain.data());
    for (size_t c = 0; c < dim; ++c) {
      double wanted = 1, wanted_plain = 1;
      for (size_t i = 0; i < 5; ++i) {
        wanted += double{weights[i]} * double{rows[i * dim + c]};
        wanted_plain += double{rows[i * dim + c]};
      }
      EXPECT_NEAR(sum[c], wanted, 1e-5);
      EXPECT_NEAR(plain[c], wanted_plain, 1e-5);
    }
  }
  EXPECT_EQ(RowAddition(DType::kInt32), nullptr);
}

TEST(RowAdditionTest, AddsHalvesInFloat) {
  const std::vector<Half> rows(4096, ToHalf(1));
  float sum = 0;
  RowAddition(DType::kHalf)(reinterpret_cast<const char*>(rows.data()), nullptr, 4096, 1, &sum);
  EXPECT_EQ(sum, 4096);
}

TEST(RowProductTest, MultipliesRowsByAVector) {
  const std::vector<double> rows = {1, 2, 3, 4}, vector = {10, 1};
  std::vector<double> dots(2);
  RowProduct(DType::kFloat64)(reinterpret_cast<const char*>(rows.data()), vector.data(), 2, 2,
                              dots.data());
  EXPECT_EQ(dots, (std::vector<double>{12, 34}));
}

class PooledGradientTest : public ::testing::TestWithParam<bool> {};

TEST_P(PooledGradientTest, SumsByKey) {
  constexpr size_t kKeys = 3000, kSegments = 40, kDim = 19;
  std::mt19937 random(2);
  std::vector<int64_t> ids(kKeys), splits(kSegments + 1, 0);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % 700) - 350;
  for (size_t i = 1; i < kSegments; ++i) splits[i] = static_cast<int64_t>(random() % kKeys);
  splits[kSegments] = kKeys;
  std::sort(splits.begin(), splits.end());
  std::vector<float> weights(kKeys), gradients(kSegments * kDim);
  for (float& each : weights) each = static_cast<float>(random() % 9) - 4;
  for (float& each : gradients) each = static_cast<float>(random() % 9) - 4;
  std::vector<std::string> names;
  std::vector<std::string_view> views;
  for (const int64_t id : ids) names.push_back(std::to_string(id));
  views.assign(names.begin(), names.end());
  Keys keys;
  keys.size = kKeys;
  if (GetParam()) {
    keys.strings = views.data();
  } else {
    keys.ints = ids.data();
  }
  std::map<int64_t, std::vector<float>> wanted;
  for (size_t segment = 0; segment < kSegments; ++segment) {
    for (int64_t i = splits[segment]; i < splits[segment + 1]; ++i) {
      std::vector<float>& sum = wanted[ids[static_cast<size_t>(i)]];
      sum.resize(kDim);
      for (size_t c = 0; c < kDim; ++c) {
        sum[c] += weights[static_cast<size_t>(i)] * gradients[segment * kDim + c];
      }
    }
  }
  std::vector<const void*> gradient_of;
  for (size_t segment = 0; segment < kSegments; ++segment) {
    gradient_of.resize(static_cast<size_t>(splits[segment + 1]), gradients.data() + segment * kDim);
  }
  Threads threads(3);
  PooledGradient pooled;
  std::vector<float> sums(wanted.size() * kDim);
  for (Executor* const executor :
       {static_cast<Executor*>(&threads), static_cast<Executor*>(nullptr)}) {
    ASSERT_TRUE(pooled.Build(keys, executor).ok());
    ASSERT_EQ(pooled.size(), wanted.size());
    const auto sum_as = [&](DType dtype, void* out) {
      return pooled.Sum(dtype, weights.data(), gradient_of.data(), kDim, out, executor).ok();
    };
    ASSERT_TRUE(sum_as(DType::kFloat32, sums.data()));
    for (size_t j = 0; j < pooled.size(); ++j) {
      const std::vector<float>& sum = wanted.at(ids[pooled.first(j)]);
      for (size_t c = 0; c < kDim; ++c) ASSERT_EQ(sums[j * kDim + c], sum[c]);
    }
    std::vector<Half> halves(sums.size());
    ASSERT_TRUE(sum_as(DType::kHalf, halves.data()));
    for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(ToFloat(halves[i]), sums[i]);
    std::fill(sums.begin(), sums.end(), 0.0F);
  }
  EXPECT_EQ(pooled.Sum(DType::kInt32, nullptr, gradient_of.data(), kDim, sums.data(), nullptr).code,
            Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(IntsAndStrings, PooledGradientTest, ::testing::Bool());

}  // namespace
}  // namespace de::engine
