// The update rules of sparse optimizers: how one gradient changes one row and its slots.
//
// Arithmetic is in float (double for float64 rows). Operations are in the same order as in the
// dense optimizer of the same name (of Keras 3 unless noted), so that both give the same numbers. A
// rule updates only the rows that it receives. A dense optimizer may also change rows without a
// gradient (momentum, moments, weight decay). Here such rows stay unchanged.
//
// Settings are in rule_settings.h. The slots:
//
//   sgd, proximal_sgd                       none
//   momentum, tf1_momentum, lion            momentum
//   adagrad, adagrad_v2, proximal_adagrad   accumulator
//   rowwise_adagrad                         accumulator (1 wide)
//   rowwise_adam                            m, v (1 wide)
//   adagrad_da                              gradient_accumulator, gradient_squared_accumulator
//   ftrl                                    accumulator, linear
//   adadelta                                accum_grad, accum_var
//   rmsprop                                 rms, momentum if > 0, mg if centered
//   rmsprop_v2                              rms, mg if centered
//   adam                                    m, v, vhat if amsgrad
//   adamax, nadam, lamb                     m, v
//
// In rules whose names end in _v2, epsilon is added outside the root, as in TensorFlow's ops.
#ifndef DE_CORE_ENGINE_OPTIMIZER_RULES_H_
#define DE_CORE_ENGINE_OPTIMIZER_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// Distinct rows to update, with their gradients. A gradient is float, or double for float64 rows.
/// It is the sum over all occurrences of its row in the batch, and must not overlap a row in
/// memory.
struct RowsUpdate {
  const double* hyper;  ///< (n_hyper)
  size_t n_hyper;
  size_t dim;
  char* const* rows;             ///< (count), the value (dim) at the start
  const size_t* slot_offsets;    ///< (slots), bytes from a row's start
  const void* const* gradients;  ///< (count), each (dim)
  const uint64_t* key_words;     ///< (count), see IndexKey; with the seed they round bfloat16 slots
  uint64_t rounding_seed;        ///< see RoundingSeed
  size_t count;
};

/// Updates rows. Allocates nothing and takes no lock.
using RuleKernel = void (*)(const RowsUpdate& updates) noexcept;

/// One update rule. All rules are constants of the library.
struct OptimizerRule {
  std::string_view name;
  size_t min_hyper;
  size_t max_hyper;
  /// Returns the slots, in the order of the kernels' `slot_offsets`. `slot` is the dtype of
  /// slots with an element per value, float32, float64 or bfloat16. Slots with one element per row
  /// are float32 if `slot` is bfloat16. `hyper` must have passed CheckHyper.
  std::vector<SlotSpec> (*slots)(size_t dim, DType slot, const double* hyper, size_t n_hyper);
  /// Returns the kernel for rows of dtype `value` with slots of `slot`, or nullptr if `value` is
  /// not floating-point. Called once per batch.
  RuleKernel (*kernel)(DType value, DType slot);
};

/// Returns the rule of this name, or nullptr. The pointer stays valid until the process ends.
const OptimizerRule* FindRule(std::string_view name) noexcept;

/// Returns InvalidArgument unless the rule takes `n_hyper` hyperparameters and all are finite.
Status CheckHyper(const OptimizerRule& rule, const double* hyper /* (n_hyper) */, size_t n_hyper);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_OPTIMIZER_RULES_H_
