// The gradient of a lookup of many features with respect to the rows: one per table.
#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/base/object_pool.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "de_core/cc/kernels/batch/feature_batch.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// The gradient of one table.
class TableGradient {
 public:
  size_t count() const noexcept { return pooled_.size(); }

  /// Finds the distinct keys of table number `table`, and the gradient of each key. All arguments
  /// must outlive Write. Call it again for the next batch to reuse the memory.
  absl::Status Build(const FeatureSpecs& specs, size_t table, const std::vector<FeatureIds>& ids,
                     const std::vector<FeatureRows>& gradients, engine::Executor* executor) {
    dtype_ = specs.dtypes[table];
    dim_ = specs.dims[table];
    const std::vector<size_t>& features = specs.of_table[table];
    keys_.Join(ids, features);
    WithReal(engine::RealOf(dtype_), [&](auto real) {
      using Real = decltype(real);
      ListGradients<Real>(specs, features, ids, gradients);
      ListWeights<Real>(features, ids);
    });
    return ToAbsl(pooled_.Build(keys_.keys(), executor));
  }

  absl::Status Write(Tensor* keys, Tensor* values, engine::Executor* executor) const {
    WriteDistinctKeys(pooled_, keys_.keys(), keys);
    return ToAbsl(pooled_.Sum(dtype_, weighted_ ? weights_.data() : nullptr, gradients_.data(),
                              dim_, const_cast<char*>(values->tensor_data().data()), executor));
  }

 private:
  /// Points to the gradient of each key: in the input, or, if it must be divided by the norm of its
  /// segment, to a copy.
  template <typename Real>
  void ListGradients(const FeatureSpecs& specs, const std::vector<size_t>& features,
                     const std::vector<FeatureIds>& ids,
                     const std::vector<FeatureRows>& gradients) {
    size_t segments = 0;
    for (const size_t f : features) {
      const bool divides = specs.features[f].combiner >= FeatureSpec::Combiner::kMean;
      if (divides && !ids[f].single()) segments += ids[f].count();
    }
    if (divided_.size() < segments * dim_ * sizeof(Real)) {
      divided_.resize(segments * dim_ * sizeof(Real));
    }
    gradients_.resize(keys_.keys().size);
    Real* copy = reinterpret_cast<Real*>(divided_.data());
    const void** of_key = gradients_.data();
    for (const size_t f : features) {
      const FeatureIds& own = ids[f];
      const FeatureRows& rows = gradients[f];
      if (own.single()) {
        for (size_t i = 0; i < own.count(); ++i) *of_key++ = rows.Row(i);
        continue;
      }
      const int64_t* const splits = own.segments().splits;
      for (size_t i = 0; i < own.count(); ++i) {
        const void* gradient = rows.Row(i);
        const Real norm = NormOf<Real>(specs.features[f], own, i);
        if (norm != 1 && splits[i] != splits[i + 1]) {
          Divide(static_cast<const Real*>(gradient), norm, dim_, copy);
          gradient = copy;
          copy += dim_;
        }
        for (int64_t key = splits[i]; key < splits[i + 1]; ++key) *of_key++ = gradient;
      }
    }
  }

  template <typename Real>
  void ListWeights(const std::vector<size_t>& features, const std::vector<FeatureIds>& ids) {
    weighted_ = std::any_of(features.begin(), features.end(),
                            [&](size_t f) { return ids[f].weights() != nullptr; });
    if (!weighted_) return;
    weights_.resize(keys_.keys().size * sizeof(Real));
    Real* weight = reinterpret_cast<Real*>(weights_.data());
    for (const size_t f : features) {
      const auto* const given = static_cast<const Real*>(ids[f].weights());
      for (size_t i = 0; i < ids[f].keys().size; ++i) {
        *weight++ = given == nullptr ? Real{1} : given[i];
      }
    }
  }

  JoinedKeys keys_;
  engine::DType dtype_ = engine::DType::kFloat32;
  size_t dim_ = 0;
  bool weighted_ = false;
  std::vector<const void*> gradients_;   // (keys)
  std::vector<char> weights_, divided_;  // reals
  engine::PooledGradient pooled_;
};

class FeaturesGradientOp final : public GuardedOp {
 public:
  explicit FeaturesGradientOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, specs_.Init(context));
    std::vector<int64_t> trained;
    OP_REQUIRES_OK(context, context->GetAttr("trained", &trained));
    OP_REQUIRES_OK(context, context->GetAttr("Tkeys", &key_types_));
    std::vector<DataType> types;
    OP_REQUIRES_OK(context, context->GetAttr("Ttrained", &types));
    OP_REQUIRES(context, trained.size() == key_types_.size() && trained.size() == types.size(),
                absl::InvalidArgumentError("there must be one type per trained table"));
    for (size_t i = 0; i < trained.size(); ++i) {
      const auto table = static_cast<size_t>(trained[i]);
      OP_REQUIRES(context,
                  table < specs_.dims.size() && !specs_.of_table[table].empty() &&
                      ToTensorFlow(specs_.dtypes[table]) == types[i],
                  absl::InvalidArgumentError(absl::StrCat(
                      "a trained table must have features and its own type. Received: table ",
                      trained[i])));
      trained_.push_back(table);
    }
  }

 protected:
  absl::Status Execute(OpKernelContext* context) final {
    PoolExecutor executor(context);
    std::vector<FeatureIds> ids;
    TF_RETURN_IF_ERROR(ReadFeatures(context, specs_, &executor, &ids));
    tensorflow::OpInputList given;
    TF_RETURN_IF_ERROR(context->input_list("ids", &given));
    for (size_t i = 0; i < trained_.size(); ++i) {
      for (const size_t f : specs_.of_table[trained_[i]]) {
        const DataType type = given[static_cast<int>(f)].dtype();
        const bool widens = type == tensorflow::DT_INT32 && key_types_[i] == tensorflow::DT_INT64;
        if (type == key_types_[i] || widens) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("the keys of a table must have the type of its ids. Received: ",
                         tensorflow::DataTypeString(type), " ids and ",
                         tensorflow::DataTypeString(key_types_[i]), " keys"));
      }
    }
    tensorflow::OpInputList tensors;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &tensors));
    std::vector<FeatureRows> gradients;
    TF_RETURN_IF_ERROR(GradientsIn(specs_, ids, tensors, &gradients));

    std::vector<size_t> counts;
    for (const size_t table : trained_) counts.push_back(CountKeys(ids, specs_.of_table[table]));
    const auto lent = spare_.Lend(trained_.size());
    std::vector<TableGradient>& tables = *lent;
    TF_RETURN_IF_ERROR(RunPerTable(counts, &executor, [&](size_t i, engine::Executor* threads) {
      return tables[i].Build(specs_, trained_[i], ids, gradients, threads);
    }));
    std::vector<std::pair<Tensor*, Tensor*>> outputs(trained_.size());
    tensorflow::OpOutputList keys, values;
    TF_RETURN_IF_ERROR(context->output_list("unique_keys", &keys));
    TF_RETURN_IF_ERROR(context->output_list("values", &values));
    for (size_t i = 0; i < trained_.size(); ++i) {
      const auto dim = static_cast<int64_t>(specs_.dims[trained_[i]]);
      const auto count = static_cast<int64_t>(tables[i].count());
      const int number = static_cast<int>(i);
      TF_RETURN_IF_ERROR(keys.allocate(number, TensorShape({count}), &outputs[i].first));
      TF_RETURN_IF_ERROR(values.allocate(number, TensorShape({count, dim}), &outputs[i].second));
    }
    return RunPerTable(counts, &executor, [&](size_t i, engine::Executor* threads) {
      return tables[i].Write(outputs[i].first, outputs[i].second, threads);
    });
  }

 private:
  FeatureSpecs specs_;
  std::vector<size_t> trained_;
  std::vector<DataType> key_types_;
  /// memory of an earlier step, for each trained table
  engine::ObjectPool<std::vector<TableGradient>> spare_{1};
};

DE_REGISTER_KERNEL("DeLookupFeaturesGradient", FeaturesGradientOp);

}  // namespace
}  // namespace de::kernels
