// The moving average of a row's value, stored in a slot beside the optimizer's slots.
//
// NaN in a slot means that the average has not begun. It begins as the row's value before the row's
// first update, like the average of a dense variable that has not changed yet.
#ifndef DE_CORE_ENGINE_ROW_AVERAGE_H_
#define DE_CORE_ENGINE_ROW_AVERAGE_H_

#include <cmath>
#include <cstddef>
#include <limits>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// The slot for the average of rows of `value`.
inline SlotSpec AverageSlot(DType value, size_t dim) {
  return {"average", RealOf(value), dim, std::numeric_limits<double>::quiet_NaN()};
}

/// Three passes over one row (dim) and its average (dim). `begin` sets an average that has not
/// begun to the row. `blend` sets it to momentum * average + (1 - momentum) * row. `take` replaces
/// the row by an average that has begun. All elements of an average begin at once, so the first
/// element tells whether the average has begun.
struct AverageKernels {
  void (*begin)(const char* row, char* average, size_t dim) noexcept;
  void (*blend)(const char* row, char* average, size_t dim, double momentum) noexcept;
  void (*take)(char* row, const char* average, size_t dim) noexcept;
};

template <typename T>
struct RowAverage {
  using Real = typename Scalar<T>::Real;

  static void Begin(const char* row, char* average, size_t dim) noexcept {
    const T* value = reinterpret_cast<const T*>(row);
    Real* mean = reinterpret_cast<Real*>(average);
    if (!std::isnan(mean[0])) return;
    for (size_t i = 0; i < dim; ++i) mean[i] = Scalar<T>::Load(value[i]);
  }
  static void Blend(const char* row, char* average, size_t dim, double momentum) noexcept {
    const T* value = reinterpret_cast<const T*>(row);
    Real* mean = reinterpret_cast<Real*>(average);
    const Real kept = static_cast<Real>(momentum);
    const Real rest = 1 - kept;
    for (size_t i = 0; i < dim; ++i) {
      mean[i] = kept * mean[i] + rest * Scalar<T>::Load(value[i]);
    }
  }
  static void Take(char* row, const char* average, size_t dim) noexcept {
    const Real* mean = reinterpret_cast<const Real*>(average);
    T* value = reinterpret_cast<T*>(row);
    if (std::isnan(mean[0])) return;
    for (size_t i = 0; i < dim; ++i) value[i] = Scalar<T>::Store(mean[i]);
  }
};

/// The kernels for rows of a floating-point dtype.
inline AverageKernels AverageKernelsOf(DType value) noexcept {
  return VisitFloating<AverageKernels>(value, {}, [](auto tag) -> AverageKernels {
    using Average = RowAverage<typename decltype(tag)::type>;
    return {Average::Begin, Average::Blend, Average::Take};
  });
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_AVERAGE_H_
