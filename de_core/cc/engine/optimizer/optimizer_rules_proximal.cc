// Rules that can hold elements at exactly zero: Ftrl, and TensorFlow's proximal gradient descent,
// proximal Adagrad and Adagrad with dual averaging.
#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {
namespace {

std::vector<SlotSpec> AccumulatorSlot(size_t dim, DType slot, const double* hyper, size_t) {
  return {
      {"accumulator", slot, dim, SettingsOf<ProximalAdagradSettings>(hyper).initial_accumulator}};
}

std::vector<SlotSpec> DualSlots(size_t dim, DType slot, const double* hyper, size_t) {
  return {{"gradient_accumulator", slot, dim, 0},
          {"gradient_squared_accumulator", slot, dim,
           SettingsOf<AdagradDaSettings>(hyper).initial_accumulator}};
}

std::vector<SlotSpec> FtrlSlots(size_t dim, DType slot, const double* hyper, size_t) {
  return {{"accumulator", slot, dim, SettingsOf<FtrlSettings>(hyper).initial_accumulator},
          {"linear", slot, dim, 0}};
}

/// Moves x towards 0 by `by`, but not beyond 0.
template <typename Real>
Real Shrink(Real x, Real by) noexcept {
  const Real size = std::fabs(x) - by;
  const Real left = size <= 0 ? 0 : size;  // NaN stays
  return x < 0 ? -left : left;
}

template <typename Real>
struct ProximalSgd {
  using Settings = ProximalSgdSettings;
  explicit ProximalSgd(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        l1(lr * static_cast<Real>(s.l1)),
        l2(1 + lr * static_cast<Real>(s.l2)) {}
  void operator()(Real g, Real& w) const noexcept { w = Shrink(w - g * lr, l1) / l2; }
  Real lr, l1, l2;
};

template <typename Real>
struct ProximalAdagrad {
  using Settings = ProximalAdagradSettings;
  explicit ProximalAdagrad(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)), l1(static_cast<Real>(s.l1)), l2(static_cast<Real>(s.l2)) {}
  void operator()(Real g, Real& w, Real& sum) const noexcept {
    sum += g * g;
    const Real rate = lr / std::sqrt(sum);
    w = Shrink(w - g * rate, rate * l1) / (1 + l2 * rate);
  }
  Real lr, l1, l2;
};

/// Computes the row from the two sums alone, so its initial value has no effect after the first
/// update.
template <typename Real>
struct AdagradDa {
  using Settings = AdagradDaSettings;
  explicit AdagradDa(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        l1(static_cast<Real>(s.step) * static_cast<Real>(s.l1)),
        l2(static_cast<Real>(s.l2) * static_cast<Real>(s.step) * lr) {}
  void operator()(Real g, Real& w, Real& sum, Real& squares) const noexcept {
    sum += g;
    squares += g * g;
    w = -(lr * Shrink(sum, l1) / (l2 + std::sqrt(squares)));
  }
  Real lr, l1, l2;
};

/// `Power` computes x^(-lr_power) of an accumulator x.
template <typename Real, typename Power>
struct FtrlStep {
  using Settings = FtrlSettings;
  explicit FtrlStep(const Settings& s) noexcept
      : power(s),
        lr(static_cast<Real>(s.lr)),
        l1(static_cast<Real>(s.l1)),
        two_l2(2 * (static_cast<Real>(s.l2) + static_cast<Real>(s.beta) / (2 * lr))),
        two_shrinkage(static_cast<Real>(2 * s.l2_shrinkage)) {}
  void operator()(Real g, Real& w, Real& sum, Real& linear) const noexcept {
    const Real pull = g + two_shrinkage * w;
    const Real next = sum + g * g;
    const Real next_root = power(next);
    linear += pull - (next_root - power(sum)) / lr * w;
    w = -(Shrink(linear, l1) / (next_root / lr + two_l2));
    sum = next;
  }
  Power power;
  Real lr, l1, two_l2, two_shrinkage;
};

template <typename Real>
struct RootPower {
  explicit RootPower(const FtrlSettings&) noexcept {}
  Real operator()(Real x) const noexcept { return std::sqrt(x); }
};

template <typename Real>
struct AnyPower {
  explicit AnyPower(const FtrlSettings& s) noexcept : exponent(static_cast<Real>(-s.lr_power)) {}
  Real operator()(Real x) const noexcept { return std::pow(x, exponent); }
  Real exponent;
};

template <typename Real>
using Ftrl = FtrlStep<Real, RootPower<Real>>;
template <typename Real>
using FtrlAnyPower = FtrlStep<Real, AnyPower<Real>>;

template <typename Types>
struct FtrlRow {
  static void Update(const RowsUpdate& updates) noexcept {
    SettingsOf<FtrlSettings>(updates.hyper).lr_power == -0.5
        ? UpdateElements<Types, Ftrl, 2>(updates)
        : UpdateElements<Types, FtrlAnyPower, 2>(updates);
  }
};

constexpr OptimizerRule kRules[] = {
    RuleOf<ProximalSgdSettings>("proximal_sgd", NoSlots, KernelOf<ElementRow<ProximalSgd, 0>::Of>),
    RuleOf<ProximalAdagradSettings>("proximal_adagrad", AccumulatorSlot,
                                    KernelOf<ElementRow<ProximalAdagrad, 1>::Of>),
    RuleOf<AdagradDaSettings>("adagrad_da", DualSlots, KernelOf<ElementRow<AdagradDa, 2>::Of>),
    RuleOf<FtrlSettings>("ftrl", FtrlSlots, KernelOf<FtrlRow>),
};

}  // namespace

RuleFamily ProximalRules() { return {kRules, std::size(kRules)}; }

}  // namespace de::engine
