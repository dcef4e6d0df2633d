// Each update rule has a kernel compiled for AVX2 and one without it. Both give the same bits.
#include "de_core/cc/engine/optimizer/rule_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/testing/forced_level.h"
#include "de_core/cc/testing/optimizer/rule_names.h"

namespace de::engine {
namespace {

/// Settings that use all features of each rule: flags are set; l1, l2 and the decay are not 0.
std::vector<double> HyperOf(const OptimizerRule& rule) {
  if (rule.name == "ftrl") return {0.1, -0.5, 0.01, 0.02, 0.03, 0.4, 0.1, 0.05};
  if (rule.name == "adagrad_da") return {0.1, 0.01, 0.02, 0.1, 3, 0.05};
  if (rule.name == "rmsprop") return {0.1, 0.9, 0.5, 1e-7, 1, 0.1, 0.05};
  std::vector<double> hyper = {0.1, 0.9, 0.99, 1e-3, 0.9, 0.8, 0.7, 0.6, 0.5};
  hyper.resize(rule.max_hyper);
  return hyper;
}

/// Returns rows after three steps of a rule, with the AVX2 kernel if `wide`.
std::vector<char> Trained(const OptimizerRule& rule, DType dtype, DType slot, size_t dim,
                          bool wide) {
  constexpr size_t kRows = 5;
  const std::vector<double> hyper = HyperOf(rule);
  const auto specs = rule.slots(dim, slot, hyper.data(), hyper.size());
  RowLayout layout(KeyType::kInt64, dtype, dim);
  if (!specs.empty()) layout.Append("test", specs);
  std::vector<size_t> offsets;
  for (const SlotSpec& spec : specs) offsets.push_back(layout.FindSlot("test", spec.name)->offset);
  std::vector<char> rows(layout.stride() * kRows);
  std::vector<char*> each;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < kRows; ++i) {
    each.push_back(rows.data() + i * layout.stride());
    layout.FillSlots(each.back(), 0);
    for (size_t c = 0; c < dim; ++c) StoreReal(dtype, normal(random), each[i] + c * SizeOf(dtype));
  }
  const RuleKernel kernel = [&] {
    const ForcedLevel forced(wide ? SimdLevel::kAvx2 : SimdLevel::kScalar);
    return rule.kernel(dtype, slot);
  }();
  for (int step = 0; step < 3; ++step) {
    std::vector<double> doubles(kRows * dim);
    for (double& value : doubles) value = normal(random);
    const std::vector<float> floats(doubles.begin(), doubles.end());
    std::vector<const void*> gradients;
    for (size_t i = 0; i < kRows; ++i) {
      if (dtype == DType::kFloat64) {
        gradients.push_back(doubles.data() + i * dim);
      } else {
        gradients.push_back(floats.data() + i * dim);
      }
    }
    const uint64_t words[kRows] = {1, 2, 3, 1ULL << 40, ~0ULL};
    kernel({hyper.data(), hyper.size(), dim, each.data(), offsets.data(), gradients.data(), words,
            RoundingSeed(7, step), kRows});
  }
  return rows;
}

TEST(RuleKernel, WideVectorsGiveTheSameBits) {
  if (!HasAvx2()) GTEST_SKIP() << "this processor has no AVX2";
  for (const std::string_view name : RuleNames()) {
    const OptimizerRule& rule = *FindRule(name);
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16}) {
      for (const DType slot : {RealOf(dtype), DType::kBFloat16}) {
        if (dtype == DType::kFloat64 && slot != dtype) continue;
        EXPECT_NE(rule.kernel(dtype, slot), nullptr);
        for (const size_t dim : {1, 7, 8, 16, 35, 99}) {
          EXPECT_EQ(Trained(rule, dtype, slot, dim, true), Trained(rule, dtype, slot, dim, false))
              << name << " of " << NameOf(dtype) << " with " << NameOf(slot) << ", dim " << dim;
        }
      }
    }
  }
}

TEST(RuleKernel, IsChosenByWhatTheProcessorHas) {
  if (!HasAvx2()) GTEST_SKIP() << "this processor has no AVX2";
  const RuleKernel wide = FindRule("adam")->kernel(DType::kFloat32, DType::kFloat32);
  const ForcedLevel forced(SimdLevel::kScalar);
  const RuleKernel narrow = FindRule("adam")->kernel(DType::kFloat32, DType::kFloat32);
  EXPECT_NE(wide, narrow);
}

}  // namespace
}  // namespace de::engine
