// Random initial rows are samples of their distributions, independent over sequential ids and over
// elements, and distinct. A correct generator fails these limits with a probability below 1e-6. The
// values are fixed, so a test that passes once always passes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/initial/normal_quantile.h"
#include "gtest/gtest.h"

namespace de::engine {
namespace {

using Kind = InitializerOptions::Kind;

std::unique_ptr<const Initializer> Make(Kind kind, double a, double b, size_t dim,
                                        DType dtype = DType::kFloat32) {
  InitializerOptions options{kind, a, b, 7, {}};
  // a logistic distribution, because its quantiles have a closed form
  if (kind == Kind::kQuantile) {
    for (size_t i = 0; i < 4096; ++i) {
      const double u = (static_cast<double>(i) + 0.5) / 4096;
      options.table.insert(options.table.end(), dim, static_cast<float>(std::log(u / (1 - u))));
    }
  }
  std::unique_ptr<const Initializer> initializer;
  const Status status = Initializer::Create(std::move(options), dtype, dim, &initializer);
  EXPECT_TRUE(status.ok()) << status.message;
  return initializer;
}

/// The rows of keys [first, first + rows), as (rows, dim).
template <typename T>
std::vector<T> Rows(const Initializer& initializer, uint64_t first, size_t rows) {
  std::vector<T> values(rows * initializer.dim());
  for (size_t i = 0; i < rows; ++i) {
    initializer.Fill(first + i, values.data() + i * initializer.dim());
  }
  return values;
}

double NormalCdf(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

/// The Kolmogorov-Smirnov statistic times sqrt(n): above 2.7 with probability 1e-6.
template <typename T, typename Cdf>
double KolmogorovSmirnov(std::vector<T> values, Cdf&& cdf) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(static_cast<double>(values[i]));
    most = std::max({most, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  return most * std::sqrt(n);
}

template <typename T>
void ExpectMoments(const std::vector<T>& values, double mean, double variance, double kurtosis) {
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const T value : values) sum += value;
  for (const T value : values) squares += (value - mean) * (value - mean);
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 5 * variance * std::sqrt((kurtosis - 1) / n));
}

template <typename T>
class Distribution : public testing::Test {
 protected:
  static constexpr DType kType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Distribution, Reals);

TYPED_TEST(Distribution, UniformFillsItsHalfOpenRange) {
  for (const size_t dim : {1, 3, 64}) {
    const auto uniform = Make(Kind::kUniform, -1, 3, dim, this->kType);
    const auto values = Rows<TypeParam>(*uniform, 0, 1000000 / dim);
    EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
    ExpectMoments(values, 1, 16.0 / 12, 1.8);
    EXPECT_LT(KolmogorovSmirnov(values, [](double x) { return (x + 1) / 4; }), 2.7) << dim;
  }
}

TYPED_TEST(Distribution, NormalHasItsMeanDeviationAndTails) {
  for (const size_t dim : {1, 3, 64}) {
    const auto normal = Make(Kind::kNormal, 2, 0.5, dim, this->kType);
    const auto values = Rows<TypeParam>(*normal, 1000000, 2000000 / dim);
    ExpectMoments(values, 2, 0.25, 3);
    const auto cdf = [](double x) { return NormalCdf((x - 2) / 0.5); };
    EXPECT_LT(KolmogorovSmirnov(values, cdf), 2.7) << dim;
    const auto beyond = [&values](double z) {
      return static_cast<double>(std::count_if(
          values.begin(), values.end(), [z](TypeParam x) { return std::fabs(x - 2) > z * 0.5; }));
    };
    const double n = static_cast<double>(values.size());
    for (const double z : {3.0, 4.0}) {
      const double expected = n * 2 * NormalCdf(-z);
      EXPECT_NEAR(beyond(z), expected, 5 * std::sqrt(expected)) << z;
    }
  }
}

TYPED_TEST(Distribution, TruncatedNormalStaysWithinTwoDeviations) {
  const auto truncated = Make(Kind::kTruncatedNormal, -1, 0.25, 16, this->kType);
  const auto values = Rows<TypeParam>(*truncated, 0, 65536);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1.5);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), -0.5);
  ExpectMoments(values, -1, 0.0625 * 0.7737413, 2.4);
  const double tail = NormalCdf(-2);
  const auto cdf = [tail](double x) { return (NormalCdf((x + 1) / 0.25) - tail) / (1 - 2 * tail); };
  EXPECT_LT(KolmogorovSmirnov(values, cdf), 2.7);
}

TYPED_TEST(Distribution, QuantilesFollowTheTable) {
  const auto logistic = Make(Kind::kQuantile, 0, 0, 4, this->kType);
  const auto values = Rows<TypeParam>(*logistic, 12345, 250000);
  const auto cdf = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(KolmogorovSmirnov(values, cdf), 2.7);
}

TEST(Initializer, NeighbouringKeysAndElementsAreUncorrelated) {
  constexpr size_t kRows = 1 << 18;
  constexpr size_t kDim = 8;
  for (const uint64_t first : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0} - kRows}) {
    const auto normal = Make(Kind::kNormal, 0, 1, kDim);
    const auto v = Rows<float>(*normal, first, kRows);
    for (size_t j = 0; j < kDim; ++j) {
      for (size_t k = 0; k < kDim; ++k) {
        for (const size_t lag : {0, 1, 2, 256}) {
          if (lag == 0 && j == k) continue;
          double product = 0, squares = 0;
          for (size_t i = 0; i + lag < kRows; ++i) {
            const double x = v[i * kDim + j], y = v[(i + lag) * kDim + k];
            product += x * y;
            // detects elements that depend on each other but are not correlated
            squares += (x * x - 1) * (y * y - 1) / 2;
          }
          const double n = kRows;
          EXPECT_LT(std::fabs(product) / std::sqrt(n), 5.5) << j << ' ' << k << " lag " << lag;
          EXPECT_LT(std::fabs(squares) / std::sqrt(n), 5.5) << j << ' ' << k << " lag " << lag;
        }
      }
    }
  }
}

TEST(Initializer, NeighbouringSeedsGiveUncorrelatedRows) {
  constexpr size_t kRows = 1 << 17;
  constexpr size_t kDim = 8;
  for (const Kind kind : {Kind::kNormal, Kind::kTruncatedNormal}) {
    std::vector<float> last;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::unique_ptr<const Initializer> initializer;
      ASSERT_TRUE(
          Initializer::Create({kind, 0, 1, seed, {}}, DType::kFloat32, kDim, &initializer).ok());
      const auto v = Rows<float>(*initializer, 0, kRows);
      double product = 0;
      for (size_t i = 0; i < last.size(); ++i) product += double{v[i]} * double{last[i]};
      EXPECT_LT(std::fabs(product) / std::sqrt(double{kRows * kDim}), 5.5) << seed;
      last = v;
    }
  }
}

TEST(Initializer, PairsOfSequentialKeysFillTheUnitSquareEvenly) {
  for (const size_t dim : {1, 5}) {
    const auto uniform = Make(Kind::kUniform, 0, 64, dim);
    const auto v = Rows<float>(*uniform, 0, 1 << 20);
    std::vector<double> cells(64 * 64);
    for (size_t i = 0; i + dim < v.size(); i += dim) {
      const size_t x = static_cast<size_t>(v[i]), y = static_cast<size_t>(v[i + dim]);
      cells[x * 64 + y] += 1;
    }
    const double expected = static_cast<double>((1 << 20) - 1) / 4096;
    double chi = 0;
    for (const double count : cells) chi += (count - expected) * (count - expected) / expected;
    EXPECT_NEAR(chi, 4095, 5.5 * std::sqrt(2 * 4095.0)) << dim;
  }
}

TEST(NormalQuantile, DistinctWordsGiveDistinctDescendingDeviates) {
  uint32_t words[kNormalBlock];
  float normal[kNormalBlock], truncated[kNormalBlock];
  float last_normal = 10, last_truncated = 3;
  // Not 1: an initializer multiplies each deviate by its scale, and the product is rounded.
  // Distinct deviates must stay distinct after this rounding.
  constexpr float kScale = 0.05F;
  for (uint32_t at = 0; at < 1U << 22; at += kNormalBlock) {
    for (uint32_t i = 0; i < kNormalBlock; ++i) words[i] = (at + i) << 9 | 256U;
    StandardNormals(words, kNormalBlock, normal);
    TruncatedNormals(words, kNormalBlock, truncated);
    if (at == 0) {
      EXPECT_GT(normal[0], 5.1F);
      EXPECT_GT(truncated[0], 1.99999F);
    }
    for (size_t i = 0; i < kNormalBlock; ++i) {
      ASSERT_GT(last_normal, kScale * normal[i]) << words[i];
      ASSERT_GT(last_truncated, kScale * truncated[i]) << words[i];
      last_normal = kScale * normal[i];
      last_truncated = kScale * truncated[i];
    }
  }
  EXPECT_GT(last_normal, 0);
  EXPECT_GT(last_truncated, 0);
}

TEST(NormalQuantile, InvertsTheNormalDistributionToItsFarTails) {
  const int64_t words[] = {0, 1, 1 << 20, 1 << 29, 1 << 30, 2040109465, 2147483000, 0x7fffffff};
  const auto beyond = [](double z) { return std::erfc(z / std::sqrt(2.0)) / 2; };
  const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * M_PI); };
  for (const int64_t word : words) {
    const uint32_t w32 = 0x7fffffffU - static_cast<uint32_t>(word);
    float z32 = 0;
    StandardNormals(&w32, 1, &z32);
    const double tail = (2147483648.0 - static_cast<double>(word) - 0.5) / 4294967296.0;
    EXPECT_NEAR((beyond(double{z32}) - tail) / density(double{z32}), 0, 4e-5) << word;
    const uint32_t mirrored = w32 | 0x80000000U;
    float negative = 0;
    StandardNormals(&mirrored, 1, &negative);
    EXPECT_EQ(negative, -z32);
    const uint64_t w64 = static_cast<uint64_t>(word) << 32;
    double z64 = 0;
    StandardNormals(&w64, 1, &z64);
    const double tail64 = (2147483648.0 - static_cast<double>(word)) / 4294967296.0;
    EXPECT_NEAR(beyond(z64) / tail64, 1, 2e-6) << word;
  }
}

}  // namespace
}  // namespace de::engine
