// Rules with moving averages of the gradient and of its size: Adam, its row-wise form, Adamax,
// Nadam, Lamb.
#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {
namespace {

std::vector<SlotSpec> MomentSlots(size_t dim, DType slot, const double*, size_t) {
  return {{"m", slot, dim, 0}, {"v", slot, dim, 0}};
}

std::vector<SlotSpec> AdamSlots(size_t dim, DType slot, const double* hyper, size_t n) {
  std::vector<SlotSpec> slots = MomentSlots(dim, slot, hyper, n);
  if (SettingsOf<AdamSettings>(hyper).amsgrad != 0) slots.push_back({"vhat", slot, dim, 0});
  return slots;
}

/// Shared by the rules of the Adam family. Computes 1 - beta in double, like Keras in Python: in
/// float, 1 - 0.999 would be wrong in the fifth digit.
template <typename Real>
struct Moments {
  template <typename Settings>
  explicit Moments(const Settings& s) noexcept
      : lr(static_cast<Real>(s.lr)),
        rest1(static_cast<Real>(1 - s.beta1)),
        rest2(static_cast<Real>(1 - s.beta2)),
        eps(static_cast<Real>(s.eps)) {}
  void Advance(Real g, Real& m, Real& v) const noexcept {
    m += (g - m) * rest1;
    v += (g * g - v) * rest2;
  }
  Real lr, rest1, rest2, eps;
};

template <typename Real>
struct Adam : Moments<Real> {
  using Settings = AdamSettings;
  explicit Adam(const Settings& s) noexcept
      : Moments<Real>(s),
        alpha(this->lr * std::sqrt(1 - static_cast<Real>(s.beta2_power)) /
              (1 - static_cast<Real>(s.beta1_power))) {}
  void operator()(Real g, Real& w, Real& m, Real& v) const noexcept {
    this->Advance(g, m, v);
    w -= m * alpha / (std::sqrt(v) + this->eps);
  }
  Real alpha;
};

template <typename Real>
struct Amsgrad : Adam<Real> {
  using Adam<Real>::Adam;
  void operator()(Real g, Real& w, Real& m, Real& v, Real& most) const noexcept {
    this->Advance(g, m, v);
    most = most < v ? v : most;
    w -= m * this->alpha / (std::sqrt(most) + this->eps);
  }
};

template <typename Types>
struct AdamRow {
  static void Update(const RowsUpdate& updates) noexcept {
    SettingsOf<AdamSettings>(updates.hyper).amsgrad != 0
        ? UpdateElements<Types, Amsgrad, 3>(updates)
        : UpdateElements<Types, Adam, 2>(updates);
  }
};

std::vector<SlotSpec> RowwiseSlots(size_t dim, DType slot, const double*, size_t) {
  return {{"m", slot, dim, 0}, {"v", RealOf(slot), 1, 0}};
}

/// Adam with one second moment per row: the moving average of the mean square of the row's
/// gradient. As in FBGEMM's PARTIAL_ROWWISE_ADAM, epsilon is added to the root of the unbiased
/// moment.
template <typename Types>
struct RowwiseAdam {
  static void Update(const RowsUpdate& updates) noexcept { ForEachRow(updates, UpdateRow); }
  static void UpdateRow(const RowUpdate& update) noexcept {
    using Real = typename Types::Real;
    const auto settings = SettingsOf<LambSettings>(update.hyper);
    const Moments<Real> moments(settings);
    const Real* gradient = static_cast<const Real*>(update.gradient);
    Real& v = *update.slot<Real>(1);
    v += (MeanSquare(gradient, update.dim) - v) * moments.rest2;
    const Real root = std::sqrt(v / (1 - static_cast<Real>(settings.beta2_power)));
    const Real rate =
        moments.lr / (1 - static_cast<Real>(settings.beta1_power)) / (root + moments.eps);
    const Real rest1 = moments.rest1;
    DecayAndStep<Types, LambSettings>(
        update,
        [rate, rest1](Real g, Real& w, Real& m) {
          m += (g - m) * rest1;
          w -= m * rate;
        },
        update.slot<typename Types::Slot>(0));
  }
};

template <typename Real>
struct Adamax : Moments<Real> {
  using Settings = AdamaxSettings;
  explicit Adamax(const Settings& s) noexcept
      : Moments<Real>(s),
        beta2(static_cast<Real>(s.beta2)),
        unbias(1 - static_cast<Real>(s.beta1_power)) {}
  void operator()(Real g, Real& w, Real& m, Real& u) const noexcept {
    m += (g - m) * this->rest1;
    const Real faded = beta2 * u;
    const Real size = std::fabs(g);
    u = faded < size ? size : faded;
    w -= this->lr * m / (unbias * (u + this->eps));
  }
  Real beta2, unbias;
};

/// Keras's Nadam computes 1 - beta in the variable's dtype, unlike its Adam.
template <typename Real>
struct Nadam : Moments<Real> {
  using Settings = NadamSettings;
  explicit Nadam(const Settings& s) noexcept
      : Moments<Real>(s),
        unbias2(1 - static_cast<Real>(s.beta2_power)),
        now(1 - static_cast<Real>(s.u)),
        next(static_cast<Real>(s.next_u)),
        unbias_now(1 - static_cast<Real>(s.u_product)),
        unbias_next(1 - static_cast<Real>(s.u_product) * next) {
    this->rest1 = 1 - static_cast<Real>(s.beta1);
    this->rest2 = 1 - static_cast<Real>(s.beta2);
  }
  void operator()(Real g, Real& w, Real& m, Real& v) const noexcept {
    this->Advance(g, m, v);
    const Real m_hat = next * m / unbias_next + now * g / unbias_now;
    w -= m_hat * this->lr / (std::sqrt(v / unbias2) + this->eps);
  }
  Real unbias2, now, next, unbias_now, unbias_next;
};

/// Lamb's trust ratio uses the norm of the row. The norm of the whole variable is not available.
/// With bfloat16 slots, the step uses the rounded moments.
template <typename Types>
struct LambRow {
  static void Update(const RowsUpdate& updates) noexcept { ForEachRow(updates, UpdateRow); }
  static void UpdateRow(const RowUpdate& update) noexcept {
    using T = typename Types::Value;
    using Slot = typename Types::Slot;
    using Real = typename Types::Real;
    const auto settings = SettingsOf<LambSettings>(update.hyper);
    const auto decayed = DecayOf<LambSettings, Real>(update);
    const Moments<Real> moments(settings);
    const Real unbias1 = 1 - static_cast<Real>(settings.beta1_power);
    const Real unbias2 = 1 - static_cast<Real>(settings.beta2_power);
    const Real eps = moments.eps;
    const Real* gradient = static_cast<const Real*>(update.gradient);
    Slot* m = update.slot<Slot>(0);
    Slot* v = update.slot<Slot>(1);
    T* value = update.value<T>();
    const auto step = [unbias1, unbias2, eps](Real first, Real second) {
      return first / unbias1 / (std::sqrt(second / unbias2) + eps);
    };
    ForElements(
        [&moments](Real g, Real&, Real& first, Real& second) { moments.Advance(g, first, second); },
        update.rounding, update.dim, value, gradient, m, v);
    const Real row_norm = std::sqrt(SumOfSquares<Real>(
        update.dim, [&](size_t i) { return decayed(Scalar<T>::Load(value[i])); }));
    const Real step_norm = std::sqrt(SumOfSquares<Real>(update.dim, [&](size_t i) {
      return step(Scalar<Slot>::Load(m[i]), Scalar<Slot>::Load(v[i]));
    }));
    const Real rate = (row_norm > 0 && step_norm > 0 ? row_norm / step_norm : 1) * moments.lr;
    DecayAndStep<Types, LambSettings>(
        update,
        [rate, &step](Real, Real& w, Real& first, Real& second) {
          w -= rate * step(first, second);
        },
        m, v);
  }
};

constexpr OptimizerRule kRules[] = {
    RuleOf<AdamSettings>("adam", AdamSlots, KernelOf<AdamRow>),
    RuleOf<LambSettings>("rowwise_adam", RowwiseSlots, KernelOf<RowwiseAdam>),
    RuleOf<AdamaxSettings>("adamax", MomentSlots, KernelOf<ElementRow<Adamax, 2>::Of>),
    RuleOf<NadamSettings>("nadam", MomentSlots, KernelOf<ElementRow<Nadam, 2>::Of>),
    RuleOf<LambSettings>("lamb", MomentSlots, KernelOf<LambRow>),
};

}  // namespace

RuleFamily AdamRules() { return {kRules, std::size(kRules)}; }

}  // namespace de::engine
