// Rules that divide by the root of summed or averaged squares: Adagrad, its row-wise form,
// Adadelta, RMSprop.
#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {
namespace {

std::vector<SlotSpec> AdagradSlots(size_t dim, DType slot, const double* hyper, size_t) {
  return {{"accumulator", slot, dim, SettingsOf<AdagradSettings>(hyper).initial_accumulator}};
}

std::vector<SlotSpec> RowwiseSlots(size_t, DType slot, const double* hyper, size_t) {
  return {{"accumulator", RealOf(slot), 1, SettingsOf<AdagradSettings>(hyper).initial_accumulator}};
}

std::vector<SlotSpec> AdadeltaSlots(size_t dim, DType slot, const double*, size_t) {
  return {{"accum_grad", slot, dim, 0}, {"accum_var", slot, dim, 0}};
}

std::vector<SlotSpec> RmspropSlots(size_t dim, DType slot, const double* hyper, size_t) {
  const auto settings = SettingsOf<RmspropSettings>(hyper);
  std::vector<SlotSpec> slots = {{"rms", slot, dim, settings.initial_rms}};
  if (settings.momentum > 0) slots.push_back({"momentum", slot, dim, 0});
  if (settings.centered != 0) slots.push_back({"mg", slot, dim, 0});
  return slots;
}

std::vector<SlotSpec> RmspropV2Slots(size_t dim, DType slot, const double* hyper, size_t) {
  const auto settings = SettingsOf<RmspropV2Settings>(hyper);
  std::vector<SlotSpec> slots = {{"rms", slot, dim, settings.initial_rms}};
  if (settings.centered != 0) slots.push_back({"mg", slot, dim, 0});
  return slots;
}

template <typename Real>
struct Adagrad {
  using Settings = AdagradSettings;
  explicit Adagrad(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)), eps(static_cast<Real>(s.eps)) {}
  void operator()(Real g, Real& w, Real& sum) const noexcept {
    sum += g * g;
    w -= lr * g / std::sqrt(sum + eps);
  }
  Real lr, eps;
};

/// TensorFlow's ApplyAdagradV2, whose epsilon is outside the root.
template <typename Real>
struct AdagradV2 : Adagrad<Real> {
  using Adagrad<Real>::Adagrad;
  void operator()(Real g, Real& w, Real& sum) const noexcept {
    sum += g * g;
    w -= this->lr * g / (std::sqrt(sum) + this->eps);
  }
};

/// One accumulator per row: the sum, over all updates, of the mean square of the row's gradient. As
/// in FBGEMM, epsilon is outside the root.
template <typename Types>
struct RowwiseAdagrad {
  static void Update(const RowsUpdate& updates) noexcept { ForEachRow(updates, UpdateRow); }
  static void UpdateRow(const RowUpdate& update) noexcept {
    using Real = typename Types::Real;
    const Real* gradient = static_cast<const Real*>(update.gradient);
    Real& sum = *update.slot<Real>(0);
    sum += MeanSquare(gradient, update.dim);
    const auto settings = SettingsOf<AdagradSettings>(update.hyper);
    const Real rate =
        static_cast<Real>(settings.lr) / (std::sqrt(sum) + static_cast<Real>(settings.eps));
    DecayAndStep<Types, AdagradSettings>(update, [rate](Real g, Real& w) { w -= rate * g; });
  }
};

template <typename Real>
struct Adadelta {
  using Settings = AdadeltaSettings;
  explicit Adadelta(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        rho(static_cast<Real>(s.rho)),
        rest(static_cast<Real>(1 - s.rho)),
        eps(static_cast<Real>(s.eps)) {}
  void operator()(Real g, Real& w, Real& squares, Real& steps) const noexcept {
    squares = rho * squares + rest * (g * g);
    const Real step = -(std::sqrt(steps + eps) * g / std::sqrt(squares + eps));
    steps = rho * steps + rest * (step * step);
    w += lr * step;
  }
  Real lr, rho, rest, eps;
};

template <typename Real>
struct Rmsprop {
  using Settings = RmspropSettings;
  explicit Rmsprop(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        rho(static_cast<Real>(s.rho)),
        rest(static_cast<Real>(1 - s.rho)),
        momentum(static_cast<Real>(s.momentum)),
        eps(static_cast<Real>(s.eps)) {}
  Real Step(Real g, Real& rms) const noexcept {
    rms = rho * rms + rest * (g * g);
    return lr * g / std::sqrt(rms + eps);
  }
  Real CenteredStep(Real g, Real& rms, Real& mean) const noexcept {
    rms = rho * rms + rest * (g * g);
    mean = rho * mean + rest * g;
    return lr * g / std::sqrt(rms - mean * mean + eps);
  }
  void operator()(Real g, Real& w, Real& rms) const noexcept { w -= Step(g, rms); }
  Real lr, rho, rest, momentum, eps;
};

template <typename Real>
struct RmspropMomentum : Rmsprop<Real> {
  using Rmsprop<Real>::Rmsprop;
  void operator()(Real g, Real& w, Real& rms, Real& m) const noexcept {
    m = this->momentum * m + this->Step(g, rms);
    w -= m;
  }
};

template <typename Real>
struct RmspropCentered : Rmsprop<Real> {
  using Rmsprop<Real>::Rmsprop;
  void operator()(Real g, Real& w, Real& rms, Real& mean) const noexcept {
    w -= this->CenteredStep(g, rms, mean);
  }
};

template <typename Real>
struct RmspropCenteredMomentum : Rmsprop<Real> {
  using Rmsprop<Real>::Rmsprop;
  void operator()(Real g, Real& w, Real& rms, Real& m, Real& mean) const noexcept {
    m = this->momentum * m + this->CenteredStep(g, rms, mean);
    w -= m;
  }
};

template <typename Types>
struct RmspropRow {
  static void Update(const RowsUpdate& updates) noexcept {
    const auto settings = SettingsOf<RmspropSettings>(updates.hyper);
    const bool centered = settings.centered != 0;
    if (settings.momentum > 0) {
      centered ? UpdateElements<Types, RmspropCenteredMomentum, 3>(updates)
               : UpdateElements<Types, RmspropMomentum, 2>(updates);
    } else {
      centered ? UpdateElements<Types, RmspropCentered, 2>(updates)
               : UpdateElements<Types, Rmsprop, 1>(updates);
    }
  }
};

/// The RMSprop of tf.keras.optimizers.legacy, without momentum. Its epsilon is outside the root.
template <typename Real>
struct RmspropV2 {
  using Settings = RmspropV2Settings;
  explicit RmspropV2(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        rho(static_cast<Real>(s.rho)),
        rest(1 - rho),
        eps(static_cast<Real>(s.eps)) {}
  void operator()(Real g, Real& w, Real& rms) const noexcept {
    rms = rho * rms + rest * (g * g);
    w -= lr * g / (std::sqrt(rms) + eps);
  }
  Real lr, rho, rest, eps;
};

template <typename Real>
struct RmspropV2Centered : RmspropV2<Real> {
  using RmspropV2<Real>::RmspropV2;
  void operator()(Real g, Real& w, Real& rms, Real& mean) const noexcept {
    rms = this->rho * rms + this->rest * (g * g);
    mean = this->rho * mean + this->rest * g;
    w -= this->lr * g / (std::sqrt(rms - mean * mean) + this->eps);
  }
};

template <typename Types>
struct RmspropV2Row {
  static void Update(const RowsUpdate& updates) noexcept {
    SettingsOf<RmspropV2Settings>(updates.hyper).centered != 0
        ? UpdateElements<Types, RmspropV2Centered, 2>(updates)
        : UpdateElements<Types, RmspropV2, 1>(updates);
  }
};

constexpr OptimizerRule kRules[] = {
    RuleOf<AdagradSettings>("adagrad_v2", AdagradSlots, KernelOf<ElementRow<AdagradV2, 1>::Of>),
    RuleOf<RmspropV2Settings>("rmsprop_v2", RmspropV2Slots, KernelOf<RmspropV2Row>),
    RuleOf<AdagradSettings>("adagrad", AdagradSlots, KernelOf<ElementRow<Adagrad, 1>::Of>),
    RuleOf<AdagradSettings>("rowwise_adagrad", RowwiseSlots, KernelOf<RowwiseAdagrad>),
    RuleOf<AdadeltaSettings>("adadelta", AdadeltaSlots, KernelOf<ElementRow<Adadelta, 2>::Of>),
    RuleOf<RmspropSettings>("rmsprop", RmspropSlots, KernelOf<RmspropRow>),
};

}  // namespace

RuleFamily AdagradRules() { return {kRules, std::size(kRules)}; }

}  // namespace de::engine
