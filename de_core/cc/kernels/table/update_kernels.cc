// Kernels that write and remove rows.
#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// Returns an error unless the shape of `rows` is keys.shape + [dim].
absl::Status CheckRows(const Tensor& keys, const Tensor& rows, int64_t dim, const char* name) {
  TensorShape wanted;
  TF_RETURN_IF_ERROR(RowsShape(keys, dim, &wanted));
  if (rows.shape() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have the shape keys.shape + [dim] = ", wanted.DebugString(),
                   ". Received: ", name, ".shape=", rows.shape().DebugString()));
}

/// A kernel whose input 0 is the handle of a live table, and input 1 keys.
class LiveKeysOp : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::Table* live) final {
    TF_RETURN_IF_ERROR(table.CheckKeys(context->input(1)));
    const KeyBatch batch(context->input(1));
    PoolExecutor executor(context);
    return RunKeys(context, table, live, batch.keys(), &executor);
  }

  virtual absl::Status RunKeys(OpKernelContext* context, const TableResource& table,
                               engine::Table* live, const engine::Keys& keys,
                               engine::Executor* executor) = 0;
};

class InsertOrAssignOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext* context, const TableResource& table, engine::Table* live,
                       const engine::Keys& keys, engine::Executor* executor) override {
    const Tensor& values = context->input(2);
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), values, table.dim(), "values"));
    TF_RETURN_IF_ERROR(table.CheckValues(values.dtype(), table.dim()));
    const ValueBatch rows(values);
    return ToAbsl(live->InsertOrAssign(keys, rows.values(), executor));
  }
};

/// DeTableAccumOrAssign, and DeTableAccum with `replaces`.
template <bool replaces>
class AccumOrAssignOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext* context, const TableResource& table, engine::Table* live,
                       const engine::Keys& keys, engine::Executor* executor) override {
    const Tensor& values = context->input(replaces ? 3 : 2);
    const char* name = replaces ? "new_values" : "deltas";
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), values, table.dim(), name));
    TF_RETURN_IF_ERROR(table.CheckValues(values.dtype(), table.dim()));
    const char* old_values = nullptr;
    if (replaces) {
      TF_RETURN_IF_ERROR(
          CheckRows(context->input(1), context->input(2), table.dim(), "old_values"));
      old_values = context->input(2).tensor_data().data();
    }
    return ToAbsl(live->AccumOrAssign(keys, values.tensor_data().data(), old_values, executor));
  }
};

class EraseOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext*, const TableResource&, engine::Table* live,
                       const engine::Keys& keys, engine::Executor* executor) override {
    return ToAbsl(live->Erase(keys, executor));
  }
};

class ClearOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext*, const TableResource&, engine::Table* live) override {
    return ToAbsl(live->Clear());
  }
};

/// Gradients in the type in which the table computes: float, or double for float64 rows. If the
/// tensor has this type, refers to the tensor instead of copying it.
class GradientBatch {
 public:
  GradientBatch(const Tensor& grads, engine::DType value_dtype) {
    const bool wide = engine::RealOf(value_dtype) == engine::DType::kFloat64;
    const DataType wanted = wide ? tensorflow::DT_DOUBLE : tensorflow::DT_FLOAT;
    if (grads.dtype() == wanted) {
      data_ = grads.tensor_data().data();
    } else if (wide) {
      data_ = Convert(grads, &doubles_);
    } else {
      data_ = Convert(grads, &floats_);
    }
  }
  const void* data() const noexcept { return data_; }

 private:
  template <typename To>
  static const void* Convert(const Tensor& grads, std::vector<To>* out) {
    switch (grads.dtype()) {
      case tensorflow::DT_FLOAT:
        return Copy<float>(grads, out);
      case tensorflow::DT_DOUBLE:
        return Copy<double>(grads, out);
      case tensorflow::DT_HALF:
        return Copy<Eigen::half>(grads, out);
      default:
        return Copy<Eigen::bfloat16>(grads, out);
    }
  }
  template <typename From, typename To>
  static const void* Copy(const Tensor& grads, std::vector<To>* out) {
    const auto flat = grads.flat<From>();
    out->resize(static_cast<size_t>(flat.size()));
    for (int64_t i = 0; i < flat.size(); ++i) {
      (*out)[static_cast<size_t>(i)] = static_cast<To>(flat.data()[i]);
    }
    return out->data();
  }

  const void* data_ = nullptr;
  std::vector<float> floats_;
  std::vector<double> doubles_;
};

class ApplyOp final : public LiveKeysOp {
 public:
  explicit ApplyOp(OpKernelConstruction* context) : LiveKeysOp(context) {
    std::string rule;
    OP_REQUIRES_OK(context, context->GetAttr("rule", &rule));
    rule_ = engine::FindRule(rule);
    OP_REQUIRES(context, rule_ != nullptr,
                absl::InvalidArgumentError(absl::StrCat(
                    "rule must name an optimizer rule of the engine. Received: '", rule, "'")));
    OP_REQUIRES_OK(context, context->GetAttr("average", &average_));
  }

 protected:
  absl::Status RunKeys(OpKernelContext* context, const TableResource& table, engine::Table* live,
                       const engine::Keys& keys, engine::Executor* executor) override {
    const OpClock::Call call(&table.updates);
    const Tensor& grads = context->input(2);
    const Tensor& hyper = context->input(3);
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), grads, table.dim(), "grads"));
    if (!tensorflow::TensorShapeUtils::IsVector(hyper.shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("hyper must be a vector. Received: shape=", hyper.shape().DebugString()));
    }
    TF_RETURN_IF_ERROR(CheckScalar(context, 4, "owner"));
    const std::string owner(context->input(4).scalar<tensorflow::tstring>()());
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
    const GradientBatch gradients(grads, live->options().value_dtype);
    const auto count = static_cast<size_t>(grads.NumElements());
    if (engine::RealOf(live->options().value_dtype) == engine::DType::kFloat64) {
      table.gradients.Step(static_cast<const double*>(gradients.data()), count);
    } else {
      table.gradients.Step(static_cast<const float*>(gradients.data()), count);
    }
    return ToAbsl(live->Apply(*rule_, owner, settings, keys, gradients.data(), executor,
                              average_ ? &momentum : nullptr));
  }

 private:
  const engine::OptimizerRule* rule_ = nullptr;
  bool average_ = false;
};

DE_REGISTER_KERNEL("DeTableInsertOrAssign", InsertOrAssignOp);
DE_REGISTER_KERNEL("DeTableAccumOrAssign", AccumOrAssignOp<false>);
DE_REGISTER_KERNEL("DeTableAccum", AccumOrAssignOp<true>);
DE_REGISTER_KERNEL("DeTableErase", EraseOp);
DE_REGISTER_KERNEL("DeTableClear", ClearOp);
DE_REGISTER_KERNEL("DeTableApply", ApplyOp);

}  // namespace
}  // namespace de::kernels
