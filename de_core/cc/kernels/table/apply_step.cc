#include "de_core/cc/kernels/table/apply_step.h"

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::kernels {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

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

}  // namespace

absl::Status CheckRows(const Tensor& keys, const Tensor& rows, int64_t dim, const char* name) {
  TensorShape wanted;
  TF_RETURN_IF_ERROR(RowsShape(keys, dim, &wanted));
  if (rows.shape() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have the shape keys.shape + [dim] = ", wanted.DebugString(),
                   ". Received: ", name, ".shape=", rows.shape().DebugString()));
}

absl::Status ApplyStep::Init(OpKernelConstruction* context) {
  std::string rule;
  TF_RETURN_IF_ERROR(context->GetAttr("rule", &rule));
  rule_ = engine::FindRule(rule);
  if (rule_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rule must name an optimizer rule of the engine. Received: '", rule, "'"));
  }
  return context->GetAttr("average", &average_);
}

absl::Status ApplyStep::Run(const TableResource& table, engine::TableBackend* live,
                            const StepGradients& gradients, const Tensor& owner_tensor,
                            engine::Executor* executor) const {
  const OpClock::Call call(&table.updates);
  const Tensor &grads = gradients.grads, &hyper = gradients.hyper;
  TF_RETURN_IF_ERROR(CheckRows(gradients.key_tensor, grads, table.dim(), "grads"));
  if (!tensorflow::TensorShapeUtils::IsVector(hyper.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat("hyper must be a vector. Received: shape=", hyper.shape().DebugString()));
  }
  const std::string owner(owner_tensor.scalar<tensorflow::tstring>()());
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
  const GradientBatch batch(grads, live->options().value_dtype);
  const auto count = static_cast<size_t>(grads.NumElements());
  if (engine::RealOf(live->options().value_dtype) == engine::DType::kFloat64) {
    table.gradients.Step(static_cast<const double*>(batch.data()), count);
  } else {
    table.gradients.Step(static_cast<const float*>(batch.data()), count);
  }
  return ToAbsl(live->Apply(*rule_, owner, settings, gradients.keys, batch.data(), executor,
                            average_ ? &momentum : nullptr));
}

}  // namespace de::kernels
