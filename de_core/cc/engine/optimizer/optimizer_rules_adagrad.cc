// Rules that divide by the root of summed or averaged squares: Adagrad, its row-wise form,
// Adadelta, RMSprop.
#include "de_core/cc/engine/optimizer/rule_kernel.h"

namespace de::engine {
namespace {

std::vector<SlotSpec> AdagradSlots(size_t dim, DType value, const double* hyper, size_t) {
  return {{"accumulator", RealOf(value), dim, hyper[2]}};
}

std::vector<SlotSpec> RowwiseSlots(size_t, DType value, const double* hyper, size_t) {
  return {{"accumulator", RealOf(value), 1, hyper[2]}};
}

std::vector<SlotSpec> AdadeltaSlots(size_t dim, DType value, const double*, size_t) {
  return {{"accum_grad", RealOf(value), dim, 0}, {"accum_var", RealOf(value), dim, 0}};
}

std::vector<SlotSpec> RmspropSlots(size_t dim, DType value, const double* hyper, size_t) {
  std::vector<SlotSpec> slots = {{"rms", RealOf(value), dim, hyper[5]}};
  if (hyper[2] > 0) slots.push_back({"momentum", RealOf(value), dim, 0});
  if (hyper[4] != 0) slots.push_back({"mg", RealOf(value), dim, 0});
  return slots;
}

std::vector<SlotSpec> RmspropV2Slots(size_t dim, DType value, const double* hyper, size_t) {
  std::vector<SlotSpec> slots = {{"rms", RealOf(value), dim, hyper[4]}};
  if (hyper[3] != 0) slots.push_back({"mg", RealOf(value), dim, 0});
  return slots;
}

template <typename Real>
struct Adagrad {
  static constexpr size_t kHyper = 3;
  explicit Adagrad(const double* h) noexcept
      : lr(static_cast<Real>(h[0])), eps(static_cast<Real>(h[1])) {}
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

/// One accumulator a row: the mean square of the row's gradient. As in FBGEMM, epsilon is outside
/// the root.
template <typename T>
struct RowwiseAdagrad {
  static void Update(const RowsUpdate& updates) noexcept { updates.ForEach(UpdateRow); }
  static void UpdateRow(const RowUpdate& update) noexcept {
    using Real = typename Scalar<T>::Real;
    const Real* gradient = static_cast<const Real*>(update.gradient);
    Real& sum = *update.slot<Real>(0);
    sum += SumOfSquares<Real>(update.dim, [gradient](size_t i) { return gradient[i]; }) /
           static_cast<Real>(update.dim);
    DecayRow<T>(update, 3);
    const Real rate =
        static_cast<Real>(update.hyper[0]) / (std::sqrt(sum) + static_cast<Real>(update.hyper[1]));
    ForElements([rate](Real g, Real& w) { w -= rate * g; }, update.dim, update.value<T>(),
                gradient);
  }
};

template <typename Real>
struct Adadelta {
  static constexpr size_t kHyper = 3;
  explicit Adadelta(const double* h) noexcept
      : lr(static_cast<Real>(h[0])),
        rho(static_cast<Real>(h[1])),
        rest(static_cast<Real>(1 - h[1])),
        eps(static_cast<Real>(h[2])) {}
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
  static constexpr size_t kHyper = 6;
  explicit Rmsprop(const double* h) noexcept
      : lr(static_cast<Real>(h[0])),
        rho(static_cast<Real>(h[1])),
        rest(static_cast<Real>(1 - h[1])),
        momentum(static_cast<Real>(h[2])),
        eps(static_cast<Real>(h[3])) {}
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

template <typename T>
struct RmspropRow {
  static void Update(const RowsUpdate& updates) noexcept {
    const bool centered = updates.hyper[4] != 0;
    if (updates.hyper[2] > 0) {
      centered ? UpdateElements<T, RmspropCenteredMomentum, 3>(updates)
               : UpdateElements<T, RmspropMomentum, 2>(updates);
    } else {
      centered ? UpdateElements<T, RmspropCentered, 2>(updates)
               : UpdateElements<T, Rmsprop, 1>(updates);
    }
  }
};

/// RMSprop of tf.keras.optimizers.legacy without momentum, whose epsilon is outside the root.
template <typename Real>
struct RmspropV2 {
  static constexpr size_t kHyper = 5;
  explicit RmspropV2(const double* h) noexcept
      : lr(static_cast<Real>(h[0])),
        rho(static_cast<Real>(h[1])),
        rest(1 - rho),
        eps(static_cast<Real>(h[2])) {}
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

template <typename T>
struct RmspropV2Row {
  static void Update(const RowsUpdate& updates) noexcept {
    updates.hyper[3] != 0 ? UpdateElements<T, RmspropV2Centered, 2>(updates)
                          : UpdateElements<T, RmspropV2, 1>(updates);
  }
};

constexpr OptimizerRule kRules[] = {
    {"adagrad_v2", 3, 4, AdagradSlots, KernelOf<ElementRow<AdagradV2, 1>::Of>},
    {"rmsprop_v2", 5, 6, RmspropV2Slots, KernelOf<RmspropV2Row>},
    {"adagrad", 3, 4, AdagradSlots, KernelOf<ElementRow<Adagrad, 1>::Of>},
    {"rowwise_adagrad", 3, 4, RowwiseSlots, KernelOf<RowwiseAdagrad>},
    {"adadelta", 3, 4, AdadeltaSlots, KernelOf<ElementRow<Adadelta, 2>::Of>},
    {"rmsprop", 6, 7, RmspropSlots, KernelOf<RmspropRow>},
};

}  // namespace

RuleFamily AdagradRules() { return {kRules, std::size(kRules)}; }

}  // namespace de::engine
