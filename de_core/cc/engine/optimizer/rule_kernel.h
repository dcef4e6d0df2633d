// Turns an update rule into a kernel. A rule updates one element. The templates here loop over
// rows, for every dtype.
//
// A rule is a struct template over Real, the type of arithmetic:
//   using Settings = …;                        // of rule_settings.h
//   explicit Rule(const Settings& settings);   // stores the terms for the elements
//   void operator()(Real g, Real& w, Real& slot...) const;   // updates the element
// A rule does not handle weight decay, loading and storing.
#ifndef DE_CORE_ENGINE_RULE_KERNEL_H_
#define DE_CORE_ENGINE_RULE_KERNEL_H_

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/optimizer/rule_settings.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// The rules of one family, for FindRule.
struct RuleFamily {
  const OptimizerRule* rules;
  size_t size;
};
RuleFamily GradientRules();
RuleFamily AdagradRules();
RuleFamily AdamRules();
RuleFamily ProximalRules();

/// The slots of a rule that has none.
inline std::vector<SlotSpec> NoSlots(size_t, DType, const double*, size_t) { return {}; }

/// One of the rows that a kernel receives.
struct RowUpdate {
  const double* hyper;
  size_t n_hyper;
  size_t dim;
  char* row;
  const size_t* slot_offsets;
  const void* gradient;

  template <typename T>
  T* value() const noexcept {
    return reinterpret_cast<T*>(row);
  }
  template <typename Real>
  Real* slot(size_t i) const noexcept {
    return reinterpret_cast<Real*>(row + slot_offsets[i]);
  }
};

/// The rows that a kernel receives.
struct RowsUpdate {
  const double* hyper;
  size_t n_hyper;
  size_t dim;
  char* const* rows;
  const size_t* slot_offsets;
  const void* const* gradients;
  size_t count;

  /// Calls update(RowUpdate) for each row.
  template <typename Update>
  void ForEach(const Update& update) const noexcept {
    for (size_t i = 0; i < count; ++i) {
      update(RowUpdate{hyper, n_hyper, dim, rows[i], slot_offsets, gradients[i]});
    }
  }
};

/// Computes w -= w * decay * lr for each element w, if `hyper` has a decay after the settings.
template <typename T, typename Settings>
void DecayRow(const RowUpdate& update) noexcept {
  using Real = typename Scalar<T>::Real;
  constexpr size_t kDecay = kSettings<Settings>;
  if (update.n_hyper <= kDecay || update.hyper[kDecay] == 0) return;
  const Real decay = static_cast<Real>(update.hyper[kDecay]);
  const Real lr = static_cast<Real>(update.hyper[0]);
  T* __restrict value = update.value<T>();
  for (size_t i = 0; i < update.dim; ++i) {
    const Real w = Scalar<T>::Load(value[i]);
    value[i] = Scalar<T>::Store(w - w * decay * lr);
  }
}

template <typename T, typename Step, typename Real, typename... Slots>
void ForElements(const Step& step, size_t dim, T* __restrict value, const Real* __restrict gradient,
                 Slots* __restrict... slots) noexcept {
  for (size_t i = 0; i < dim; ++i) {
    Real w = Scalar<T>::Load(value[i]);
    step(gradient[i], w, slots[i]...);
    value[i] = Scalar<T>::Store(w);
  }
}

/// Runs an element rule with `kSlots` slots over rows. The rule computes terms that depend only on
/// its settings once per call: per row, they would cost as much as a short row's arithmetic.
template <typename T, template <typename> class Rule, size_t kSlots>
void UpdateElements(const RowsUpdate& updates) noexcept {
  using Real = typename Scalar<T>::Real;
  using Settings = typename Rule<Real>::Settings;
  const Rule<Real> step(SettingsOf<Settings>(updates.hyper));
  updates.ForEach([&step](const RowUpdate& update) {
    DecayRow<T, Settings>(update);
    const Real* gradient = static_cast<const Real*>(update.gradient);
    T* value = update.value<T>();
    if constexpr (kSlots == 0) {
      ForElements(step, update.dim, value, gradient);
    } else if constexpr (kSlots == 1) {
      ForElements(step, update.dim, value, gradient, update.slot<Real>(0));
    } else if constexpr (kSlots == 2) {
      ForElements(step, update.dim, value, gradient, update.slot<Real>(0), update.slot<Real>(1));
    } else {
      static_assert(kSlots == 3, "no rule has more slots");
      ForElements(step, update.dim, value, gradient, update.slot<Real>(0), update.slot<Real>(1),
                  update.slot<Real>(2));
    }
  });
}

/// The kernels of a class `Row`, which has a static void Update(const RowsUpdate&): Narrow is
/// compiled for the baseline, Wide for AVX2.
template <typename Row>
struct RowKernels {
  static void Narrow(const double* hyper, size_t n_hyper, size_t dim, char* const* rows,
                     const size_t* slot_offsets, const void* const* gradients,
                     size_t count) noexcept {
    Row::Update({hyper, n_hyper, dim, rows, slot_offsets, gradients, count});
  }
  DE_AVX2_FUNCTION static void Wide(const double* hyper, size_t n_hyper, size_t dim,
                                    char* const* rows, const size_t* slot_offsets,
                                    const void* const* gradients, size_t count) noexcept {
    Row::Update({hyper, n_hyper, dim, rows, slot_offsets, gradients, count});
  }
};

/// Returns an entry of the library's list of rules. A weight decay may follow the rule's settings.
template <typename Settings>
constexpr OptimizerRule RuleOf(std::string_view name, decltype(OptimizerRule::slots) slots,
                               decltype(OptimizerRule::kernel) kernel) noexcept {
  return {name, kSettings<Settings>, kSettings<Settings> + 1, slots, kernel};
}

/// Returns the kernel of a `Row<T>` for rows of `value`, compiled for the processor's vectors.
template <template <typename> class Row>
RuleKernel KernelOf(DType value) noexcept {
  return VisitFloating<RuleKernel>(value, nullptr, [](auto tag) -> RuleKernel {
    using Kernels = RowKernels<Row<typename decltype(tag)::type>>;
    return HasAvx2() ? Kernels::Wide : Kernels::Narrow;
  });
}

/// Updates rows by an element rule that always has kSlots slots.
template <template <typename> class Rule, size_t kSlots>
struct ElementRow {
  template <typename T>
  struct Of {
    static void Update(const RowsUpdate& updates) noexcept {
      UpdateElements<T, Rule, kSlots>(updates);
    }
  };
};

/// Returns the sum of at(i)^2. Adds in eight lanes, so that the loop vectorizes, and in a fixed
/// order, so that every machine gets the same bits.
template <typename Real, typename At>
Real SumOfSquares(size_t count, const At& at) noexcept {
  constexpr size_t kLanes = 8;
  Real lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += at(i + lane) * at(i + lane);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += at(i) * at(i);
  Real sum = 0;
  for (const Real lane : lanes) sum += lane;
  return sum;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RULE_KERNEL_H_
