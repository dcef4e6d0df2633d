// Every update rule computes the same values as its textbook formula, which this file implements
// separately in double.
#include "de_core/cc/engine/optimizer/optimizer_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/testing/optimizer/rule_names.h"
#include "gtest/gtest.h"

namespace de::engine {
namespace {

using Row = std::vector<double>;

/// A rule as a formula over a whole row. g, w and slots have `dim` elements (one if row-wise).
struct Formula {
  std::string rule;
  std::function<std::vector<double>(int step)> hyper;
  std::function<void(const Row& g, Row& w, std::vector<Row>& s, const Row& h)> update;
  std::vector<std::string> slots;
  double initial;  ///< initial value of the slot that does not start at 0
};

/// Makes a formula for a whole row from a formula for one element.
auto Each(std::function<void(double g, double& w, double* s, const Row& h)> element) {
  return [element](const Row& g, Row& w, std::vector<Row>& slots, const Row& h) {
    for (size_t i = 0; i < w.size(); ++i) {
      double s[3] = {};
      for (size_t k = 0; k < slots.size(); ++k) s[k] = slots[k][i];
      element(g[i], w[i], s, h);
      for (size_t k = 0; k < slots.size(); ++k) slots[k][i] = s[k];
    }
  };
}

auto Always(Row hyper) {
  return [hyper](int) { return hyper; };
}

double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double Norm(const Row& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}
double Schedule(int t) { return 0.9 * (1 - 0.5 * std::pow(0.96, t)); }

Row AdamHyper(int t, double amsgrad) {
  return {0.01, 0.9, 0.999, 1e-7, std::pow(0.9, t), std::pow(0.999, t), amsgrad};
}

Formula MomentumFormula(double nesterov) {
  return {"momentum",
          Always({0.1, 0.9, nesterov}),
          Each([](double g, double& w, double* s, const Row& h) {
            s[0] = h[1] * s[0] - h[0] * g;
            w += h[2] != 0 ? h[1] * s[0] - h[0] * g : s[0];
          }),
          {"momentum"},
          0};
}

Formula Tf1MomentumFormula(double nesterov) {
  return {"tf1_momentum",
          Always({0.1, 0.9, nesterov}),
          Each([](double g, double& w, double* s, const Row& h) {
            s[0] = h[1] * s[0] + g;
            w -= h[0] * (h[2] != 0 ? g + h[1] * s[0] : s[0]);
          }),
          {"momentum"},
          0};
}

Formula AdamFormula(double amsgrad) {
  std::vector<std::string> slots = {"m", "v"};
  if (amsgrad != 0) slots.push_back("vhat");
  return {"adam", [amsgrad](int t) { return AdamHyper(t, amsgrad); },
          Each([](double g, double& w, double* s, const Row& h) {
            s[0] = h[1] * s[0] + (1 - h[1]) * g;
            s[1] = h[2] * s[1] + (1 - h[2]) * g * g;
            s[2] = std::max(s[2], s[1]);
            const double v = h[6] != 0 ? s[2] : s[1];
            w -= h[0] * std::sqrt(1 - h[5]) / (1 - h[4]) * s[0] / (std::sqrt(v) + h[3]);
          }),
          slots, 0};
}

Formula RmspropFormula(double momentum, double centered) {
  std::vector<std::string> slots = {"rms"};
  if (momentum > 0) slots.push_back("momentum");
  if (centered != 0) slots.push_back("mg");
  return {"rmsprop", Always({0.01, 0.9, momentum, 1e-3, centered, 0.5}),
          Each([momentum, centered](double g, double& w, double* s, const Row& h) {
            double& mean = momentum > 0 ? s[2] : s[1];
            s[0] = h[1] * s[0] + (1 - h[1]) * g * g;
            double variance = s[0];
            if (centered != 0) {
              mean = h[1] * mean + (1 - h[1]) * g;
              variance -= mean * mean;
            }
            double step = h[0] * g / std::sqrt(variance + h[3]);
            if (momentum > 0) step = s[1] = h[2] * s[1] + step;
            w -= step;
          }),
          slots, 0.5};
}

Formula FtrlFormula(double power) {
  return {"ftrl",
          Always({0.1, power, 0.05, 0.02, 0.01, 0.3, 0.1}),
          Each([](double g, double& w, double* s, const Row& h) {
            const double next = s[0] + g * g;
            const double sigma = (std::pow(next, -h[1]) - std::pow(s[0], -h[1])) / h[0];
            s[1] += g + 2 * h[4] * w - sigma * w;
            s[0] = next;
            const double quadratic = std::pow(next, -h[1]) / h[0] + 2 * h[3] + h[5] / h[0];
            w = std::fabs(s[1]) <= h[2] ? 0 : (Sign(s[1]) * h[2] - s[1]) / quadratic;
          }),
          {"accumulator", "linear"},
          0.1};
}

std::vector<Formula> Formulas() {
  std::vector<Formula> all = {MomentumFormula(0),     MomentumFormula(1),     Tf1MomentumFormula(0),
                              Tf1MomentumFormula(1),  AdamFormula(0),         AdamFormula(1),
                              RmspropFormula(0, 0),   RmspropFormula(0.8, 0), RmspropFormula(0, 1),
                              RmspropFormula(0.8, 1), FtrlFormula(-0.5),      FtrlFormula(-0.7)};
  all.push_back({"sgd",
                 Always({0.1}),
                 Each([](double g, double& w, double*, const Row& h) { w -= h[0] * g; }),
                 {},
                 0});
  all.push_back({"lion",
                 Always({0.01, 0.9, 0.99}),
                 Each([](double g, double& w, double* s, const Row& h) {
                   w -= h[0] * Sign(h[1] * s[0] + (1 - h[1]) * g);
                   s[0] = h[2] * s[0] + (1 - h[2]) * g;
                 }),
                 {"momentum"},
                 0});
  all.push_back({"adagrad",
                 Always({0.1, 1e-7, 0.25}),
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] += g * g;
                   w -= h[0] * g / std::sqrt(s[0] + h[1]);
                 }),
                 {"accumulator"},
                 0.25});
  all.push_back({"adagrad_v2",
                 Always({0.1, 1e-2, 0.25}),
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] += g * g;
                   w -= h[0] * g / (std::sqrt(s[0]) + h[1]);
                 }),
                 {"accumulator"},
                 0.25});
  for (const double centered : {0.0, 1.0}) {
    all.push_back(
        {"rmsprop_v2", Always({0.01, 0.9, 1e-2, centered, 0.5}),
         Each([centered](double g, double& w, double* s, const Row& h) {
           s[0] = h[1] * s[0] + (1 - h[1]) * g * g;
           if (centered != 0) s[1] = h[1] * s[1] + (1 - h[1]) * g;
           w -= h[0] * g / (std::sqrt(s[0] - s[1] * s[1]) + h[2]);
         }),
         centered != 0 ? std::vector<std::string>{"rms", "mg"} : std::vector<std::string>{"rms"},
         0.5});
  }
  all.push_back({"rowwise_adagrad",
                 Always({0.1, 1e-2, 0.25}),
                 [](const Row& g, Row& w, std::vector<Row>& s, const Row& h) {
                   s[0][0] += Norm(g) * Norm(g) / static_cast<double>(g.size());
                   for (size_t i = 0; i < w.size(); ++i) {
                     w[i] -= h[0] * g[i] / (std::sqrt(s[0][0]) + h[1]);
                   }
                 },
                 {"accumulator"},
                 0.25});
  all.push_back({"adadelta",
                 Always({0.5, 0.9, 1e-3}),
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] = h[1] * s[0] + (1 - h[1]) * g * g;
                   const double step = std::sqrt((s[1] + h[2]) / (s[0] + h[2])) * g;
                   s[1] = h[1] * s[1] + (1 - h[1]) * step * step;
                   w -= h[0] * step;
                 }),
                 {"accum_grad", "accum_var"},
                 0});
  all.push_back({"adamax",
                 [](int t) { return Row{0.01, 0.9, 0.999, 1e-7, std::pow(0.9, t)}; },
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] = h[1] * s[0] + (1 - h[1]) * g;
                   s[1] = std::max(h[2] * s[1], std::fabs(g));
                   w -= h[0] / (1 - h[4]) * s[0] / (s[1] + h[3]);
                 }),
                 {"m", "v"},
                 0});
  all.push_back({"nadam",
                 [](int t) {
                   double product = 1;
                   for (int i = 1; i <= t; ++i) product *= Schedule(i);
                   return Row{
                       0.01,   0.9, 0.999, 1e-7, std::pow(0.999, t), Schedule(t), Schedule(t + 1),
                       product};
                 },
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] = h[1] * s[0] + (1 - h[1]) * g;
                   s[1] = h[2] * s[1] + (1 - h[2]) * g * g;
                   const double m = h[6] * s[0] / (1 - h[7] * h[6]) + (1 - h[5]) * g / (1 - h[7]);
                   w -= h[0] * m / (std::sqrt(s[1] / (1 - h[4])) + h[3]);
                 }),
                 {"m", "v"},
                 0});
  all.push_back({"lamb",
                 [](int t) {
                   const Row adam = AdamHyper(t, 0);
                   return Row(adam.begin(), adam.end() - 1);
                 },
                 [](const Row& g, Row& w, std::vector<Row>& s, const Row& h) {
                   Row step(w.size());
                   for (size_t i = 0; i < w.size(); ++i) {
                     s[0][i] = h[1] * s[0][i] + (1 - h[1]) * g[i];
                     s[1][i] = h[2] * s[1][i] + (1 - h[2]) * g[i] * g[i];
                     step[i] = s[0][i] / (1 - h[4]) / (std::sqrt(s[1][i] / (1 - h[5])) + h[3]);
                   }
                   const double from = Norm(w), by = Norm(step);
                   const double trust = from > 0 && by > 0 ? from / by : 1;
                   for (size_t i = 0; i < w.size(); ++i) w[i] -= h[0] * trust * step[i];
                 },
                 {"m", "v"},
                 0});
  all.push_back({"rowwise_adam",
                 [](int t) {
                   const Row adam = AdamHyper(t, 0);
                   return Row(adam.begin(), adam.end() - 1);
                 },
                 [](const Row& g, Row& w, std::vector<Row>& s, const Row& h) {
                   const double mean_square = Norm(g) * Norm(g) / static_cast<double>(g.size());
                   s[1][0] = h[2] * s[1][0] + (1 - h[2]) * mean_square;
                   const double root = std::sqrt(s[1][0] / (1 - h[5]));
                   for (size_t i = 0; i < w.size(); ++i) {
                     s[0][i] = h[1] * s[0][i] + (1 - h[1]) * g[i];
                     w[i] -= h[0] * s[0][i] / (1 - h[4]) / (root + h[3]);
                   }
                 },
                 {"m", "v"},
                 0});
  all.push_back({"proximal_sgd",
                 Always({0.1, 0.3, 0.2}),
                 Each([](double g, double& w, double*, const Row& h) {
                   const double at = w - h[0] * g;
                   w = Sign(at) * std::max(std::fabs(at) - h[0] * h[1], 0.0) / (1 + h[0] * h[2]);
                 }),
                 {},
                 0});
  all.push_back({"proximal_adagrad",
                 Always({0.1, 0.3, 0.2, 0.25}),
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] += g * g;
                   const double rate = h[0] / std::sqrt(s[0]);
                   const double at = w - rate * g;
                   w = Sign(at) * std::max(std::fabs(at) - rate * h[1], 0.0) / (1 + rate * h[2]);
                 }),
                 {"accumulator"},
                 0.25});
  all.push_back({"adagrad_da",
                 [](int t) { return Row{0.1, 0.05, 0.02, 0.25, static_cast<double>(t)}; },
                 Each([](double g, double& w, double* s, const Row& h) {
                   s[0] += g;
                   s[1] += g * g;
                   const double kept = Sign(s[0]) * std::max(std::fabs(s[0]) - h[1] * h[4], 0.0);
                   w = -h[0] * kept / (h[2] * h[4] * h[0] + std::sqrt(s[1]));
                 }),
                 {"gradient_accumulator", "gradient_squared_accumulator"},
                 0.25});
  return all;
}

template <typename T>
void StoreRow(const Row& values, char* row) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T element = Scalar<T>::Store(static_cast<typename Scalar<T>::Real>(values[i]));
    std::memcpy(row + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
Row LoadRow(const char* row, size_t dim) {
  Row values(dim);
  for (size_t i = 0; i < dim; ++i) {
    T element;
    std::memcpy(&element, row + i * sizeof(T), sizeof(T));
    values[i] = Scalar<T>::Load(element);
  }
  return values;
}

/// Runs a rule and its formula on a row of type T. Compares the values and slots. A stored value
/// may differ from the exact one by `rounding` of itself: half the distance between two numbers of
/// T.
template <typename T>
void Compare(const Formula& formula, DType dtype, size_t dim, double decay, double tolerance,
             double rounding = 0) {
  using Real = typename Scalar<T>::Real;
  const OptimizerRule* rule = FindRule(formula.rule);
  ASSERT_NE(rule, nullptr);
  Row hyper = formula.hyper(1);
  const auto specs = rule->slots(dim, RealOf(dtype), hyper.data(), hyper.size());
  ASSERT_EQ(specs.size(), formula.slots.size());
  RowLayout layout(KeyType::kInt64, dtype, dim);
  layout.Append("other", {{"slot", DType::kFloat32, 3, 8.0}});  // slots need not follow the value
  layout.Append("mine", specs);
  std::vector<size_t> offsets;
  std::vector<Row> slots;
  double initial = 0;
  for (size_t k = 0; k < specs.size(); ++k) {
    initial += specs[k].initial;
    EXPECT_EQ(specs[k].name, formula.slots[k]);
    EXPECT_EQ(specs[k].dtype, dtype == DType::kFloat64 ? dtype : DType::kFloat32);
    offsets.push_back(layout.FindSlot("mine", specs[k].name)->offset);
    slots.emplace_back(specs[k].width, specs[k].initial);
  }
  EXPECT_EQ(initial, formula.initial);
  std::vector<double> storage(layout.stride() / sizeof(double) + 2, -77);
  char* row = reinterpret_cast<char*>(storage.data());
  layout.FillSlots(row, 0);
  std::mt19937 random(static_cast<unsigned>(dim));
  std::normal_distribution<double> normal(0, 0.5);
  Row w(dim), g(dim);
  for (double& value : w) value = normal(random);
  StoreRow<T>(w, row);
  w = LoadRow<T>(row, dim);
  const RuleKernel kernel = rule->kernel(dtype, RealOf(dtype));
  for (int step = 1; step <= 6; ++step) {
    hyper = formula.hyper(step);
    if (decay != 0) hyper.push_back(decay);
    ASSERT_TRUE(CheckHyper(*rule, hyper.data(), hyper.size()).ok());
    std::vector<Real> gradient(dim);
    for (size_t i = 0; i < dim; ++i) {
      gradient[i] = static_cast<Real>(step == 3 && i % 2 == 0 ? 0 : normal(random));
      g[i] = gradient[i];
    }
    for (double& value : w) value -= value * decay * hyper[0];
    formula.update(g, w, slots, hyper);
    const void* const gradients[] = {gradient.data()};
    const uint64_t word = 7;
    kernel({hyper.data(), hyper.size(), dim, &row, offsets.data(), gradients, &word, 0, 1});
    const Row got = LoadRow<T>(row, dim);
    for (size_t i = 0; i < dim; ++i) {
      const double size = std::fabs(w[i]);
      ASSERT_NEAR(got[i], w[i], rounding * size + tolerance * std::max(1.0, size))
          << formula.rule << ' ' << NameOf(dtype) << " step " << step << " element " << i;
    }
    for (size_t k = 0; k < slots.size(); ++k) {
      const Row slot = LoadRow<Real>(row + offsets[k], specs[k].width);
      for (size_t i = 0; i < slot.size(); ++i) {
        ASSERT_NEAR(slot[i], slots[k][i], std::max(tolerance, 1e-5) * std::max(1.0, slots[k][i]))
            << formula.rule << ' ' << specs[k].name << " step " << step;
      }
    }
    if (rounding > 0) w = got;  // do not accumulate rounding errors of 16-bit rows
  }
  const RowSlot* other = layout.FindSlot("other", "slot");
  EXPECT_EQ(LoadRow<float>(row + other->offset, 3), Row(3, 8.0)) << "another optimizer's slot";
  const size_t end = (layout.stride() + sizeof(double) - 1) / sizeof(double);
  EXPECT_EQ(storage[end], -77) << "wrote beyond the row";
}

class EveryRule : public testing::TestWithParam<Formula> {};

TEST_P(EveryRule, FollowsItsFormulaForEveryDtypeAndDim) {
  for (const double decay : {0.0, 0.05}) {
    for (const size_t dim : {1, 3, 8, 33}) {
      Compare<float>(GetParam(), DType::kFloat32, dim, decay, 2e-6);
      Compare<double>(GetParam(), DType::kFloat64, dim, decay, 1e-13);
      Compare<Half>(GetParam(), DType::kHalf, dim, decay, 2e-6, std::ldexp(1, -11));
      Compare<BFloat16>(GetParam(), DType::kBFloat16, dim, decay, 2e-6, std::ldexp(1, -8));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OptimizerRules, EveryRule, testing::ValuesIn(Formulas()),
                         [](const testing::TestParamInfo<Formula>& info) {
                           return info.param.rule + "_" + std::to_string(info.index);
                         });

TEST(OptimizerRules, EveryRuleHasAFormulaHere) {
  for (const std::string_view name : RuleNames()) {
    const auto formulas = Formulas();
    EXPECT_TRUE(std::any_of(formulas.begin(), formulas.end(), [name](const Formula& formula) {
      return formula.rule == name;
    })) << name;
    EXPECT_EQ(FindRule(name)->name, name);
  }
  EXPECT_EQ(FindRule("no such rule"), nullptr);
  EXPECT_EQ(FindRule(""), nullptr);
}

TEST(OptimizerRules, HyperparametersOfTheWrongNumberOrNotFiniteAreRefused) {
  const OptimizerRule& adam = *FindRule("adam");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double hyper[] = {nan, 0.9, 0.999, 1e-7, 0.9, 0.999, 0, 0, 0};
  EXPECT_EQ(CheckHyper(adam, hyper + 1, 6).code, Code::kInvalidArgument);
  EXPECT_EQ(CheckHyper(adam, hyper, 9).code, Code::kInvalidArgument);
  EXPECT_NE(CheckHyper(adam, hyper, 2).message.find("'adam' takes 7 hyperparameters"),
            std::string::npos);
  EXPECT_NE(CheckHyper(adam, hyper, 7).message.find("hyper[0]=nan"), std::string::npos);
  EXPECT_TRUE(CheckHyper(adam, hyper + 1, 7).ok());
}

TEST(OptimizerRules, IntegerRowsHaveNoKernel) {
  for (const std::string_view name : RuleNames()) {
    for (const DType dtype :
         {DType::kInt8, DType::kInt32, DType::kInt64, DType::kBool, DType::kString}) {
      EXPECT_EQ(FindRule(name)->kernel(dtype, DType::kFloat32), nullptr);
    }
    EXPECT_NE(FindRule(name)->kernel(DType::kBFloat16, DType::kBFloat16), nullptr);
  }
}

}  // namespace
}  // namespace de::engine
