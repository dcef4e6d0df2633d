// An optimizer step of many tables.
#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/kernels/batch/many_tables.h"
#include "de_core/cc/kernels/table/slot_values.h"
#include "de_core/cc/kernels/table/table_op.h"

namespace de::kernels {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class TablesApplyOp final : public GuardedOp {
 public:
  explicit TablesApplyOp(OpKernelConstruction* context) : GuardedOp(context) {
    std::string rule;
    OP_REQUIRES_OK(context, context->GetAttr("rule", &rule));
    rule_ = engine::FindRule(rule);
    OP_REQUIRES(context, rule_ != nullptr,
                absl::InvalidArgumentError(absl::StrCat(
                    "rule must name an optimizer rule of the engine. Received: '", rule, "'")));
    OP_REQUIRES_OK(context, context->GetAttr("average", &average_));
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
    const Tensor* owner = nullptr;
    TF_RETURN_IF_ERROR(context->input("owner", &owner));
    TF_RETURN_IF_ERROR(CheckScalar(*owner, "owner"));
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
      const Tensor& own = keys[static_cast<int>(t)];
      TF_RETURN_IF_ERROR(tables[t]->CheckKeys(own));
      counts.push_back(static_cast<size_t>(own.NumElements()));
    }
    PoolExecutor executor(context);
    return RunPerTable(counts, &executor, [&](size_t t, engine::Executor* threads) {
      const int number = static_cast<int>(t);
      return Step(tables[t].get(), keys[number], grads[number],
                  hypers[static_cast<int>(settings_of_[t])], owner->scalar<tensorflow::tstring>()(),
                  threads);
    });
  }

 private:
  /// Updates the rows of one table.
  absl::Status Step(TableResource* table, const Tensor& keys, const Tensor& grads,
                    const Tensor& hyper, const std::string& owner,
                    engine::Executor* executor) const {
    std::shared_ptr<engine::TableBackend> live;
    TF_RETURN_IF_ERROR(table->Live(&live));
    const KeyBatch batch(keys);
    const OpClock::Call call(&table->updates);
    TF_RETURN_IF_ERROR(CheckRows(keys, grads, table->dim(), "grads"));
    if (!tensorflow::TensorShapeUtils::IsVector(hyper.shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("hyper must be a vector. Received: shape=", hyper.shape().DebugString()));
    }
    if (owner.empty() || owner.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("owner must be a name without '/'. Received: '", owner, "'"));
    }
    const auto flat = hyper.flat<double>();
    std::vector<double> settings(flat.data(), flat.data() + flat.size());
    double momentum = 0;
    if (average_) {
      if (settings.empty() || !(settings.back() >= 0 && settings.back() <= 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("hyper must end with the momentum of the average, from 0 to 1. Received: ",
                         settings.empty() ? "nothing" : absl::StrCat(settings.back())));
      }
      momentum = settings.back();
      settings.pop_back();
    }
    // The table computes in float, or in double for float64 rows.
    const engine::DType real = engine::RealOf(live->options().value_dtype);
    const char* gradients = grads.tensor_data().data();
    std::string converted;
    if (grads.dtype() != ToTensorFlow(real)) {
      TF_RETURN_IF_ERROR(ConvertValues(grads, real, &converted));
      gradients = converted.data();
    }
    const auto count = static_cast<size_t>(grads.NumElements());
    if (real == engine::DType::kFloat64) {
      table->gradients.Step(reinterpret_cast<const double*>(gradients), count);
    } else {
      table->gradients.Step(reinterpret_cast<const float*>(gradients), count);
    }
    return ToAbsl(live->Apply(*rule_, owner, settings, batch.keys(), gradients, executor,
                              average_ ? &momentum : nullptr));
  }

  const engine::OptimizerRule* rule_ = nullptr;
  bool average_ = false;
  std::vector<int64_t> settings_of_;
};

DE_REGISTER_KERNEL("DeTablesApply", TablesApplyOp);

}  // namespace
}  // namespace de::kernels
