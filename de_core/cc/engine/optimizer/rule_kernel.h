// Turns an update rule into a kernel. A rule updates one element. The templates here loop over
// rows, for every dtype.
//
// A rule is a struct template over Real, the type of arithmetic:
//   using Settings = …;                        // of rule_settings.h
//   explicit Rule(const Settings& settings);   // stores the terms for the elements
//   void operator()(Real g, Real& w, Real& slot...) const;   // updates the element
// A rule does not handle weight decay, loading, rounding and storing.
#ifndef DE_CORE_ENGINE_RULE_KERNEL_H_
#define DE_CORE_ENGINE_RULE_KERNEL_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/optimizer/rule_settings.h"
#include "de_core/cc/engine/optimizer/slot_rounding.h"
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

/// The element types of a row's value and of its slots.
template <typename ValueType, typename SlotType>
struct RowTypes {
  using Value = ValueType;
  using Slot = SlotType;
  using Real = typename Scalar<Value>::Real;
};

/// One of the rows that a kernel receives.
struct RowUpdate {
  const double* hyper;
  size_t n_hyper;
  size_t dim;
  char* row;
  const size_t* slot_offsets;
  const void* gradient;
  SlotRounding rounding;  ///< rounds bfloat16 slots

  template <typename T>
  T* value() const noexcept {
    return reinterpret_cast<T*>(row);
  }
  template <typename S>
  S* slot(size_t i) const noexcept {
    return reinterpret_cast<S*>(row + slot_offsets[i]);
  }
};

/// Calls update(RowUpdate) for each row.
template <typename Update>
void ForEachRow(const RowsUpdate& updates, const Update& update) noexcept {
  for (size_t i = 0; i < updates.count; ++i) {
    update(RowUpdate{updates.hyper, updates.n_hyper, updates.dim, updates.rows[i],
                     updates.slot_offsets, updates.gradients[i],
                     SlotRounding(updates.rounding_seed, updates.key_words[i])});
  }
}

/// The weight decay of an update: the number in `hyper` after the settings, or 0.
template <typename Real>
struct Decay {
  Real decay, lr;
  Real operator()(Real w) const noexcept { return w - w * decay * lr; }
};

template <typename Settings, typename Real>
Decay<Real> DecayOf(const RowUpdate& update) noexcept {
  constexpr size_t kDecay = kSettings<Settings>;
  return {static_cast<Real>(update.n_hyper > kDecay ? update.hyper[kDecay] : 0),
          static_cast<Real>(update.hyper[0])};
}

/// Elements whose bfloat16 slots are widened, stepped and rounded together.
inline constexpr size_t kElementsPerBlock = 64;

/// ForElements with bfloat16 slots, numbered kIndex. Uses a loop per type: GCC vectorizes it better
/// than one loop over elements of two and of four bytes.
template <size_t... kIndex, typename T, typename Step, typename... Slots>
[[gnu::always_inline]] inline void ForRoundedElements(
    std::index_sequence<kIndex...>, const Step& step, const SlotRounding& rounding, size_t dim,
    T* __restrict value, const float* __restrict gradient, Slots*... slots) noexcept {
  alignas(64) float wide[sizeof...(kIndex)][kElementsPerBlock];
  for (size_t at = 0; at < dim; at += kElementsPerBlock) {
    const size_t block = std::min(kElementsPerBlock, dim - at);
    const auto widen = [block](const BFloat16* __restrict from, float* __restrict to) {
      for (size_t i = 0; i < block; ++i) to[i] = ToFloat(from[i]);
    };
    (widen(slots + at, wide[kIndex]), ...);
    T* __restrict const w_at = value + at;
    const float* __restrict const g_at = gradient + at;
    for (size_t i = 0; i < block; ++i) {
      float w = Scalar<T>::Load(w_at[i]);
      step(g_at[i], w, wide[kIndex][i]...);
      w_at[i] = Scalar<T>::Store(w);
    }
    const auto round = [block](const float* __restrict from, BFloat16* __restrict to,
                               const auto& bits) {
      for (uint32_t i = 0; i < block; ++i) to[i] = RoundStochastically(from[i], bits(i));
    };
    (round(wide[kIndex], slots + at, rounding.BitsOf<kIndex>(at)), ...);
  }
}

/// Runs step(g, w, slot...) for each element, with the slots loaded as Real. Rounds what it stores.
/// Always inlined: GCC otherwise shares one copy for the baseline among all instruction sets.
template <typename T, typename Step, typename Real, typename... Slots>
[[gnu::always_inline]] inline void ForElements(const Step& step, const SlotRounding& rounding,
                                               size_t dim, T* __restrict value,
                                               const Real* __restrict gradient,
                                               Slots* __restrict... slots) noexcept {
  if constexpr ((std::is_same_v<Slots, BFloat16> || ...)) {
    ForRoundedElements(std::index_sequence_for<Slots...>{}, step, rounding, dim, value, gradient,
                       slots...);
  } else {
    for (size_t i = 0; i < dim; ++i) {
      Real w = Scalar<T>::Load(value[i]);
      [&](auto... loaded) {
        step(gradient[i], w, loaded...);
        ((slots[i] = Scalar<Slots>::Store(loaded)), ...);
      }(Scalar<Slots>::Load(slots[i])...);
      value[i] = Scalar<T>::Store(w);
    }
  }
}

/// Runs step(g, w, slot...) for each element of a row, after its weight decay. Rounds the row once.
template <typename Types, typename Settings, typename Step, typename... Slots>
[[gnu::always_inline]] inline void DecayAndStep(const RowUpdate& update, const Step& step,
                                                Slots*... slots) noexcept {
  using Real = typename Types::Real;
  const auto run = [&](const auto& both) {
    ForElements(both, update.rounding, update.dim, update.value<typename Types::Value>(),
                static_cast<const Real*>(update.gradient), slots...);
  };
  const auto decayed = DecayOf<Settings, Real>(update);
  if (decayed.decay == 0) {
    run(step);
  } else {
    run([&step, decayed](Real g, Real& w, auto&... loaded) {
      w = decayed(w);
      step(g, w, loaded...);
    });
  }
}

/// Runs an element rule with `kSlots` slots over rows. The rule computes terms that depend only on
/// its settings once per call: per row, they would cost as much as a short row's arithmetic.
template <typename Types, template <typename> class Rule, size_t kSlots>
void UpdateElements(const RowsUpdate& updates) noexcept {
  using Real = typename Types::Real;
  using Slot = typename Types::Slot;
  using Settings = typename Rule<Real>::Settings;
  const Rule<Real> step(SettingsOf<Settings>(updates.hyper));
  ForEachRow(updates, [&step](const RowUpdate& update) {
    const auto run = [&](auto*... slots) { DecayAndStep<Types, Settings>(update, step, slots...); };
    if constexpr (kSlots == 0) {
      run();
    } else if constexpr (kSlots == 1) {
      run(update.slot<Slot>(0));
    } else if constexpr (kSlots == 2) {
      run(update.slot<Slot>(0), update.slot<Slot>(1));
    } else {
      static_assert(kSlots == 3, "no rule has more slots");
      run(update.slot<Slot>(0), update.slot<Slot>(1), update.slot<Slot>(2));
    }
  });
}

/// The kernels of a class `Row`, which has a static void Update(const RowsUpdate&): Narrow is
/// compiled for the baseline, Wide for AVX2.
template <typename Row>
struct RowKernels {
  static void Narrow(const RowsUpdate& updates) noexcept { Row::Update(updates); }
  DE_AVX2_FUNCTION static void Wide(const RowsUpdate& updates) noexcept { Row::Update(updates); }
};

/// Returns an entry of the library's list of rules. A weight decay may follow the rule's settings.
template <typename Settings>
constexpr OptimizerRule RuleOf(std::string_view name, decltype(OptimizerRule::slots) slots,
                               decltype(OptimizerRule::kernel) kernel) noexcept {
  return {name, kSettings<Settings>, kSettings<Settings> + 1, slots, kernel};
}

template <typename Row>
RuleKernel WidestOf() noexcept {
  return HasAvx2() ? RowKernels<Row>::Wide : RowKernels<Row>::Narrow;
}

/// Returns the kernel of a `Row<RowTypes>` for rows of `value` with slots of `slot`, compiled for
/// the processor's vectors.
template <template <typename> class Row>
RuleKernel KernelOf(DType value, DType slot) noexcept {
  return VisitFloating<RuleKernel>(value, nullptr, [slot](auto tag) -> RuleKernel {
    using Value = typename decltype(tag)::type;
    using Real = typename Scalar<Value>::Real;
    if constexpr (std::is_same_v<Real, float>) {
      if (slot == DType::kBFloat16) return WidestOf<Row<RowTypes<Value, BFloat16>>>();
    }
    return WidestOf<Row<RowTypes<Value, Real>>>();
  });
}

/// Updates rows by an element rule that always has kSlots slots.
template <template <typename> class Rule, size_t kSlots>
struct ElementRow {
  template <typename Types>
  struct Of {
    static void Update(const RowsUpdate& updates) noexcept {
      UpdateElements<Types, Rule, kSlots>(updates);
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

/// Returns the mean of the squares of a row's gradient.
template <typename Real>
Real MeanSquare(const Real* gradient, size_t dim) noexcept {
  return SumOfSquares<Real>(dim, [gradient](size_t i) { return gradient[i]; }) /
         static_cast<Real>(dim);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RULE_KERNEL_H_
