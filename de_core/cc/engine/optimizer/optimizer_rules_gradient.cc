// Gradient descent, plain, with momentum, and by the sign of the momentum (Lion).
#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {
namespace {

std::vector<SlotSpec> MomentumSlot(size_t dim, DType slot, const double*, size_t) {
  return {{"momentum", slot, dim, 0}};
}

template <typename Real>
struct Sgd {
  using Settings = SgdSettings;
  explicit Sgd(const Settings& s) noexcept : lr(static_cast<Real>(s.lr)) {}
  void operator()(Real g, Real& w) const noexcept { w -= g * lr; }
  Real lr;
};

template <typename Real>
struct Momentum {
  using Settings = MomentumSettings;
  explicit Momentum(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)), momentum(static_cast<Real>(s.momentum)) {}
  void operator()(Real g, Real& w, Real& m) const noexcept {
    m = m * momentum - g * lr;
    w += m;
  }
  Real lr, momentum;
};

template <typename Real>
struct Nesterov : Momentum<Real> {
  using Momentum<Real>::Momentum;
  void operator()(Real g, Real& w, Real& m) const noexcept {
    m = m * this->momentum - g * this->lr;
    w += m * this->momentum - g * this->lr;
  }
};

/// tf.compat.v1.train.MomentumOptimizer. The slot accumulates gradients, not steps, so a change of
/// the learning rate affects all past gradients too.
template <typename Real>
struct Tf1Momentum : Momentum<Real> {
  using Momentum<Real>::Momentum;
  void operator()(Real g, Real& w, Real& m) const noexcept {
    m = m * this->momentum + g;
    w -= this->lr * m;
  }
};

template <typename Real>
struct Tf1Nesterov : Momentum<Real> {
  using Momentum<Real>::Momentum;
  void operator()(Real g, Real& w, Real& m) const noexcept {
    m = m * this->momentum + g;
    w -= g * this->lr + m * this->momentum * this->lr;
  }
};

template <template <typename> class Plain, template <typename> class Ahead>
struct MomentumRow {
  template <typename Types>
  struct Of {
    static void Update(const RowsUpdate& updates) noexcept {
      const bool nesterov = SettingsOf<MomentumSettings>(updates.hyper).nesterov != 0;
      nesterov ? UpdateElements<Types, Ahead, 1>(updates)
               : UpdateElements<Types, Plain, 1>(updates);
    }
  };
};

template <typename Real>
struct Lion {
  using Settings = LionSettings;
  explicit Lion(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        beta1(static_cast<Real>(s.beta1)),
        beta2(static_cast<Real>(s.beta2)),
        rest1(1 - beta1),
        rest2(1 - beta2) {}
  void operator()(Real g, Real& w, Real& m) const noexcept {
    const Real direction = m * beta1 + g * rest1;
    const Real up = direction > 0 ? lr : direction;  // 0 and NaN stay
    w -= direction < 0 ? -lr : up;
    m = m * beta2 + g * rest2;
  }
  Real lr, beta1, beta2, rest1, rest2;
};

constexpr OptimizerRule kRules[] = {
    RuleOf<SgdSettings>("sgd", NoSlots, KernelOf<ElementRow<Sgd, 0>::Of>),
    RuleOf<MomentumSettings>("momentum", MomentumSlot,
                             KernelOf<MomentumRow<Momentum, Nesterov>::Of>),
    RuleOf<MomentumSettings>("tf1_momentum", MomentumSlot,
                             KernelOf<MomentumRow<Tf1Momentum, Tf1Nesterov>::Of>),
    RuleOf<LionSettings>("lion", MomentumSlot, KernelOf<ElementRow<Lion, 1>::Of>),
};

}  // namespace

RuleFamily GradientRules() { return {kRules, std::size(kRules)}; }

}  // namespace de::engine
