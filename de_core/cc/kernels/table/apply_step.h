// One optimizer step of one table, as the kernels of update ops run it.
#ifndef DE_CORE_KERNELS_APPLY_STEP_H_
#define DE_CORE_KERNELS_APPLY_STEP_H_

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/kernels/table/table_resource.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// Returns an error unless the shape of `rows` is keys.shape + [dim].
absl::Status CheckRows(const tensorflow::Tensor& keys, const tensorflow::Tensor& rows, int64_t dim,
                       const char* name);

/// The gradients of a table's rows, and how to apply them.
struct StepGradients {
  const tensorflow::Tensor& key_tensor;
  const engine::Keys& keys;         ///< of key_tensor
  const tensorflow::Tensor& grads;  ///< keys.shape + [dim]
  const tensorflow::Tensor& hyper;  ///< double [k], the settings of the rule
};

/// A rule of the engine with its attributes.
class ApplyStep {
 public:
  /// Reads and checks the attributes `rule` and `average`.
  absl::Status Init(tensorflow::OpKernelConstruction* context);

  /// Updates the rows of a table. `owner`, a scalar string, names the owner of the slots.
  absl::Status Run(const TableResource& table, engine::TableBackend* live,
                   const StepGradients& gradients, const tensorflow::Tensor& owner,
                   engine::Executor* executor) const;

 private:
  const engine::OptimizerRule* rule_ = nullptr;
  bool average_ = false;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_APPLY_STEP_H_
