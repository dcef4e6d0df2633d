// An optimizer step of many tables.
#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "de_core/cc/kernels/batch/many_tables.h"
#include "de_core/cc/kernels/table/apply_step.h"

namespace de::kernels {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class TablesApplyOp final : public GuardedOp {
 public:
  explicit TablesApplyOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, step_.Init(context));
    OP_REQUIRES_OK(context, context->GetAttr("settings_of", &settings_of_));
    int settings = 0;
    OP_REQUIRES_OK(context, context->GetAttr("settings", &settings));
    for (const int64_t each : settings_of_) {
      OP_REQUIRES(context, each >= 0 && each < settings,
                  absl::InvalidArgumentError(
                      absl::StrCat("settings_of must number the inputs `hypers`. Received: ", each,
                                   " for ", settings, " inputs")));
    }
  }

 protected:
  absl::Status Execute(OpKernelContext* context) override {
    OpInputList keys, grads, hypers;
    TF_RETURN_IF_ERROR(context->input_list("keys", &keys));
    TF_RETURN_IF_ERROR(context->input_list("grads", &grads));
    TF_RETURN_IF_ERROR(context->input_list("hypers", &hypers));
    const tensorflow::Tensor* owner = nullptr;
    TF_RETURN_IF_ERROR(context->input("owner", &owner));
    if (!tensorflow::TensorShapeUtils::IsScalar(owner->shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("owner must be a scalar. Received: shape=", owner->shape().DebugString()));
    }
    std::vector<TablePointer> tables;
    TF_RETURN_IF_ERROR(TablesIn(context, &tables));
    if (keys.size() != static_cast<int>(tables.size()) || grads.size() != keys.size() ||
        settings_of_.size() != tables.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there must be keys, gradients and settings for each of ", tables.size(),
          " tables. Received: ", keys.size(), ", ", grads.size(), " and ", settings_of_.size()));
    }
    std::vector<size_t> counts;
    for (size_t t = 0; t < tables.size(); ++t) {
      const tensorflow::Tensor& own = keys[static_cast<int>(t)];
      TF_RETURN_IF_ERROR(tables[t]->CheckKeys(own));
      counts.push_back(static_cast<size_t>(own.NumElements()));
    }
    PoolExecutor executor(context);
    return RunPerTable(counts, &executor, [&](size_t t, engine::Executor* threads) {
      const int number = static_cast<int>(t);
      std::shared_ptr<engine::TableBackend> live;
      TF_RETURN_IF_ERROR(tables[t]->Live(&live));
      const KeyBatch batch(keys[number]);
      return step_.Run(
          *tables[t], live.get(),
          {keys[number], batch.keys(), grads[number], hypers[static_cast<int>(settings_of_[t])]},
          *owner, threads);
    });
  }

 private:
  ApplyStep step_;
  std::vector<int64_t> settings_of_;
};

DE_REGISTER_KERNEL("DeTablesApply", TablesApplyOp);

}  // namespace
}  // namespace de::kernels
