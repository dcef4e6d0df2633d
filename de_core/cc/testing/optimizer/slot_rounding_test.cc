// bfloat16 slots are rounded stochastically, and their random bits depend only on (seed, key, step,
// element).
#include "de_core/cc/engine/optimizer/slot_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/engine/optimizer/rule_kernel.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/testing/optimizer/rule_names.h"

namespace de::engine {
namespace {

constexpr size_t kDim = 99;  // more than a block, and no multiple of a vector
constexpr int kSteps = 20;

/// The random bits of a slot.
uint32_t RandomOf(const SlotRounding& rounding, size_t element, size_t slot) {
  if (slot == 0) return rounding.BitsOf<0>(element)(0);
  return slot == 1 ? rounding.BitsOf<1>(element)(0) : rounding.BitsOf<2>(element)(0);
}

TEST(SlotRounding, IsUnbiased) {
  constexpr int kDraws = 20000;
  for (const float value : {1.0F, 1.0001F, 1.003F, 1.0077F, -2.7182818F, 3e-38F, 1.1e-39F}) {
    const float below = ToFloat(BFloat16{static_cast<uint16_t>(BitsOf(value) >> 16)});
    const float above = ToFloat(BFloat16{static_cast<uint16_t>((BitsOf(value) >> 16) + 1)});
    const double gap = static_cast<double>(above) - static_cast<double>(below);
    const double up = (static_cast<double>(value) - static_cast<double>(below)) / gap;
    // One key in many steps, many keys in one step, and the elements and slots of one row.
    for (const int axis : {0, 1, 2, 3}) {
      for (const size_t slot : {0, 1, 2}) {
        double ups = 0;
        for (int i = 0; i < kDraws; ++i) {
          const auto at = static_cast<size_t>(i);
          const SlotRounding rounding(RoundingSeed(5, axis == 0 ? i : 0), axis == 1 ? at : 7);
          const uint32_t random = axis < 3 ? RandomOf(rounding, axis < 2 ? slot : at, slot)
                                           : RandomOf(rounding, at / 3, at % 3);
          const float got = ToFloat(RoundStochastically(value, random));
          ASSERT_TRUE(got == below || (got == above && up > 0)) << value << " became " << got;
          ups += got == above ? 1 : 0;
        }
        const double deviation = std::sqrt(up * (1 - up) / kDraws);
        EXPECT_NEAR(ups / kDraws, up, 4.5 * deviation)
            << value << " along axis " << axis << " in slot " << slot;
      }
    }
  }
}

TEST(SlotRounding, SlotsAndNeighborsAreIndependent) {
  constexpr int kDraws = 40000;
  const float half = 1.00390625F;  // halfway between two bfloat16 numbers
  const auto is_up = [&](uint32_t random) {
    return ToFloat(RoundStochastically(half, random)) > half ? 1 : 0;
  };
  // The three slots of an element in many steps; three elements in many steps; in one row.
  for (const int axis : {0, 1, 2}) {
    int counts[8] = {};
    for (int i = 0; i < kDraws; ++i) {
      const SlotRounding rounding(RoundingSeed(1, axis == 2 ? 0 : i), 9);
      const size_t first = axis == 2 ? static_cast<size_t>(i) : 3;
      int which = 0;
      for (size_t k = 0; k < 3; ++k) {
        which = 2 * which +
                is_up(axis == 0 ? RandomOf(rounding, first, k) : RandomOf(rounding, first + k, 0));
      }
      ++counts[which];
    }
    for (const int count : counts) {
      EXPECT_NEAR(count, kDraws / 8, 5 * std::sqrt(kDraws / 8.0)) << "axis " << axis;
    }
  }
}

TEST(SlotRounding, KeepsNumbersOfBfloat16AndInfinitiesAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t random : {0U, 1U, 0xffffU}) {
    for (const float value : {0.0F, -0.0F, 1.5F, -3e-39F, infinity, -infinity}) {
      const float kept = ToFloat(ToBFloat16(value));
      EXPECT_EQ(BitsOf(ToFloat(RoundStochastically(kept, random))), BitsOf(kept));
    }
    for (const uint32_t nan : {0x7fc00000U, 0x7fffffffU, 0xffffffffU}) {
      EXPECT_TRUE(std::isnan(ToFloat(RoundStochastically(FloatOfBits(nan), random))));
    }
  }
}

/// Settings of any rule: small rates and long averages, with all flags set.
std::vector<double> HyperOf(const OptimizerRule& rule) {
  if (rule.name == "ftrl") return {0.1, -0.5, 0.01, 0.02, 0.03, 0.4, 0.1};
  if (rule.name == "adagrad_da") return {0.1, 0.01, 0.02, 0.1, 3};
  if (rule.name == "rmsprop") return {0.1, 0.9, 0.5, 1e-7, 1, 0.1};
  std::vector<double> hyper = {0.1, 0.9, 0.99, 1e-3, 0.9, 0.8, 0.7, 0.6, 0.5};
  hyper.resize(rule.min_hyper);
  return hyper;
}

/// One row with the slots of a rule.
struct Row {
  Row(const OptimizerRule& of, DType slot)
      : rule(of),
        hyper(HyperOf(of)),
        specs(of.slots(kDim, slot, hyper.data(), hyper.size())),
        kernel(of.kernel(DType::kFloat32, slot)) {
    if (!specs.empty()) layout.Append("test", specs);
    for (const SlotSpec& spec : specs) {
      offsets.push_back(layout.FindSlot("test", spec.name)->offset);
    }
    bytes.resize(layout.stride());
    layout.FillSlots(bytes.data(), 0);
  }

  void Step(const std::vector<float>& gradient, uint64_t word, int64_t step) {
    char* row = bytes.data();
    const void* const gradients[] = {gradient.data()};
    kernel({hyper.data(), hyper.size(), kDim, &row, offsets.data(), gradients, &word,
            RoundingSeed(3, step), 1});
  }
  float* floats(size_t offset) { return reinterpret_cast<float*>(bytes.data() + offset); }

  const OptimizerRule& rule;
  std::vector<double> hyper;
  std::vector<SlotSpec> specs;
  RuleKernel kernel;
  RowLayout layout{KeyType::kInt64, DType::kFloat32, kDim};
  std::vector<size_t> offsets;
  std::vector<char> bytes;
};

TEST(SlotRounding, EveryRuleStepsInFloatAndThenRoundsItsSlots) {
  for (const std::string_view name : RuleNames()) {
    if (name == "lamb") continue;  // its step uses the rounded moments
    const OptimizerRule& rule = *FindRule(name);
    Row half(rule, DType::kBFloat16), full(rule, DType::kFloat32);
    for (size_t s = 0; s < half.specs.size(); ++s) {
      EXPECT_EQ(half.specs[s].dtype, half.specs[s].width == 1 ? DType::kFloat32 : DType::kBFloat16);
    }
    // Both begin with the initial values rounded to bfloat16.
    const auto widen = [&](size_t s, size_t i) {
      const auto* stored = reinterpret_cast<const BFloat16*>(half.bytes.data() + half.offsets[s]);
      return ToFloat(stored[i]);
    };
    for (size_t s = 0; s < half.specs.size(); ++s) {
      for (size_t i = 0; i < half.specs[s].width && half.specs[s].width > 1; ++i) {
        full.floats(full.offsets[s])[i] = widen(s, i);
      }
    }
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<float> gradient(kDim);
      for (float& value : gradient) value = normal(random);
      const uint64_t word = 1234567;
      half.Step(gradient, word, step);
      full.Step(gradient, word, step);
      const SlotRounding rounding(RoundingSeed(3, step), word);
      for (size_t i = 0; i < kDim; ++i) {
        ASSERT_EQ(half.floats(0)[i], full.floats(0)[i]) << name << " step " << step;
        for (size_t s = 0; s < half.specs.size(); ++s) {
          if (half.specs[s].width == 1) continue;
          float& exact = full.floats(full.offsets[s])[i];
          exact = ToFloat(RoundStochastically(exact, RandomOf(rounding, i, s)));
          ASSERT_EQ(widen(s, i), exact) << name << " slot " << s << " step " << step;
        }
      }
    }
  }
}

TEST(SlotRounding, AMovingAverageReachesTheMeanOfItsGradients) {
  // Rounded to nearest, the moments would stay at a value far from the gradient's square.
  Row row(*FindRule("adam"), DType::kBFloat16);
  row.hyper = {0.0, 0.9, 0.999, 1e-7, 0.5, 0.5, 0};
  const std::vector<float> gradient(kDim, 1.0F);
  for (int step = 0; step < 8000; ++step) row.Step(gradient, 5, step);
  const auto* v = reinterpret_cast<const BFloat16*>(row.bytes.data() + row.offsets[1]);
  double mean = 0;
  for (size_t i = 0; i < kDim; ++i) mean += static_cast<double>(ToFloat(v[i])) / kDim;
  EXPECT_NEAR(mean, 1.0, 0.03);
}

}  // namespace
}  // namespace de::engine
