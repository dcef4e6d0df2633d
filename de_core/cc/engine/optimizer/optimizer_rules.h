// The update rules of sparse optimizers: what one gradient does to one row and its slots.
//
// Arithmetic is in float (double for float64 rows), in the order of operations of the dense
// optimizer a rule is named after (Keras 3 where nothing else is said), so that both give the same
// numbers. A rule updates the rows it is given and no other: where a dense optimizer also changes
// rows without a gradient (momentum, moments, weight decay), those rows stay as they are.
//
// Hyperparameters, in order (p^t: p to the power of the step, counted from 1; flags are 0 or 1):
//
//   rule              hyperparameters                                  slots
//   sgd               lr
//   momentum          lr, momentum, nesterov                           momentum
//   tf1_momentum      lr, momentum, nesterov                           momentum
//   adagrad           lr, eps, initial accumulator                     accumulator
//   adagrad_v2        lr, eps, initial accumulator                     accumulator
//   rowwise_adagrad   lr, eps, initial accumulator                     accumulator (1 wide)
//   adagrad_da        lr, l1, l2, initial square accumulator, step     gradient_accumulator,
//                                                                      gradient_squared_accumulator
//   proximal_sgd      lr, l1, l2
//   proximal_adagrad  lr, l1, l2, initial accumulator                  accumulator
//   ftrl              lr, lr power, l1, l2, l2 shrinkage, beta,        accumulator, linear
//                     initial accumulator
//   adadelta          lr, rho, eps                                     accum_grad, accum_var
//   rmsprop           lr, rho, momentum, eps, centered, initial rms    rms, momentum if > 0,
//                                                                      mg if centered
//   rmsprop_v2        lr, rho, eps, centered, initial rms              rms, mg if centered
//   adam              lr, beta1, beta2, eps, beta1^t, beta2^t,         m, v, vhat if amsgrad
//                     amsgrad
//   adamax            lr, beta1, beta2, eps, beta1^t                   m, v
//   nadam             lr, beta1, beta2, eps, beta2^t, u_t, u_(t+1),    m, v
//                     u_1 * … * u_t, u_t = beta1 (1 - 0.5 * 0.96^t)
//   lamb              lr, beta1, beta2, eps, beta1^t, beta2^t          m, v
//   lion              lr, beta1, beta2                                 momentum
//
// The names with v2 differ in that epsilon is outside the root, as TensorFlow's ops have it.
//
// Each rule takes one more, last and optional: the decoupled weight decay, as Keras applies it: the
// row loses row * decay * lr before the rule. So AdamW is adam with eight.
#ifndef DE_CORE_ENGINE_OPTIMIZER_RULES_H_
#define DE_CORE_ENGINE_OPTIMIZER_RULES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/slot_spec.h"

namespace de::engine {

/// Updates some rows, all different. No allocation, no lock. The gradients are float, or double for
/// float64 rows; each is the sum over all occurrences of its row in the batch, and must not overlap
/// a row.
using RuleKernel = void (*)(const double* hyper,  // (n_hyper)
                            size_t n_hyper, size_t dim,
                            char* const* rows,             // (count), the value (dim) at the start
                            const size_t* slot_offsets,    // (slots), bytes from a row's start
                            const void* const* gradients,  // (count), each (dim)
                            size_t count) noexcept;

/// One update rule. All are constants of the library.
struct OptimizerRule {
  std::string_view name;
  size_t min_hyper;
  size_t max_hyper;
  /// The slots, in the order that kernels take their offsets. `hyper` must have passed CheckHyper.
  std::vector<SlotSpec> (*slots)(size_t dim, DType value, const double* hyper, size_t n_hyper);
  /// The kernel for rows of `value`, chosen once a batch; nullptr if that is not floating-point.
  RuleKernel (*kernel)(DType value);
};

/// The rule of that name, or nullptr. Valid for ever.
const OptimizerRule* FindRule(std::string_view name) noexcept;

/// Names of all rules, for messages.
std::vector<std::string_view> RuleNames();

/// InvalidArgument unless the rule takes `n_hyper` hyperparameters and all are finite.
Status CheckHyper(const OptimizerRule& rule, const double* hyper /* (n_hyper) */, size_t n_hyper);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_OPTIMIZER_RULES_H_
