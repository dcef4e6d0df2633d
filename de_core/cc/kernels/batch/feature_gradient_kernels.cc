// The gradient of a lookup of many features with respect to the rows: one per table.
#include <cstring>

#include "absl/strings/str_cat.h"
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

/// Writes keys to a tensor. `position(j)` is the number of the key that becomes element j.
template <typename Position>
void WriteKeys(const engine::Keys& keys, const Position& position, Tensor* out) {
  const int64_t count = out->NumElements();
  const auto key = [&](int64_t j) { return position(static_cast<size_t>(j)); };
  if (out->dtype() == tensorflow::DT_STRING) {
    auto to = out->flat<tensorflow::tstring>();
    for (int64_t j = 0; j < count; ++j) {
      const std::string_view from = keys.strings[key(j)];
      to(j).assign(from.data(), from.size());
    }
  } else if (out->dtype() == tensorflow::DT_INT32) {
    auto to = out->flat<int32_t>();
    for (int64_t j = 0; j < count; ++j) to(j) = static_cast<int32_t>(keys.ints[key(j)]);
  } else {
    auto to = out->flat<int64_t>();
    for (int64_t j = 0; j < count; ++j) to(j) = keys.ints[key(j)];
  }
}

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
    std::vector<std::unique_ptr<TableGradient>> tables(trained_.size());
    TF_RETURN_IF_ERROR(RunPerTable(counts, &executor, [&](size_t i, engine::Executor* threads) {
      tables[i] = std::make_unique<TableGradient>(specs_, trained_[i], ids, gradients);
      return tables[i]->Build(threads);
    }));
    std::vector<std::pair<Tensor*, Tensor*>> outputs(trained_.size());
    tensorflow::OpOutputList keys, values;
    TF_RETURN_IF_ERROR(context->output_list("unique_keys", &keys));
    TF_RETURN_IF_ERROR(context->output_list("values", &values));
    for (size_t i = 0; i < trained_.size(); ++i) {
      const std::vector<size_t>& features = specs_.of_table[trained_[i]];
      const auto dim = static_cast<int64_t>(specs_.dims[trained_[i]]);
      const auto count = static_cast<int64_t>(tables[i]->count());
      const int number = static_cast<int>(i), f = static_cast<int>(features[0]);
      if (tables[i]->is_plain() && features.size() == 1 && !specs_.joined &&
          given[f].dtype() == key_types_[i]) {
        // The ids are the keys and the gradient is the values: copy neither.
        Tensor same(key_types_[i]), rows(tensors[f].dtype());
        if (!same.CopyFrom(given[f], TensorShape({count})) ||
            !rows.CopyFrom(tensors[f], TensorShape({count, dim}))) {
          return absl::InternalError("a tensor must have as many elements as its shape");
        }
        keys.set(number, same);
        values.set(number, rows);
        continue;
      }
      TF_RETURN_IF_ERROR(keys.allocate(number, TensorShape({count}), &outputs[i].first));
      TF_RETURN_IF_ERROR(values.allocate(number, TensorShape({count, dim}), &outputs[i].second));
    }
    return RunPerTable(counts, &executor, [&](size_t i, engine::Executor* threads) {
      if (outputs[i].first == nullptr) return absl::OkStatus();
      return tables[i]->Write(outputs[i].first, outputs[i].second, threads);
    });
  }

 private:
  /// The gradient of one table.
  class TableGradient {
   public:
    TableGradient(const FeatureSpecs& specs, size_t table, const std::vector<FeatureIds>& ids,
                  const std::vector<FeatureRows>& gradients)
        : specs_(specs),
          table_(table),
          features_(specs.of_table[table]),
          ids_(ids),
          gradients_(gradients),
          keys_(ids, features_),
          plain_(IsPlain(specs, ids, table)) {}

    /// True if the keys are the ids in their order, and not the distinct ids.
    bool is_plain() const noexcept { return plain_; }
    size_t count() const noexcept { return plain_ ? keys_.keys().size : pooled_.size(); }

    /// Finds the distinct keys, unless is_plain().
    absl::Status Build(engine::Executor* executor) {
      if (plain_) return absl::OkStatus();
      for (const size_t f : features_) weighted_ = weighted_ || ids_[f].weights() != nullptr;
      WithReal(engine::RealOf(specs_.dtypes[table_]), [&](auto real) { Join<decltype(real)>(); });
      const engine::Segments segments{splits_.data(), splits_.size() - 1};
      return ToAbsl(pooled_.Build(keys_.keys(), segments, executor));
    }

    absl::Status Write(Tensor* keys, Tensor* values, engine::Executor* executor) const {
      char* const out = const_cast<char*>(values->tensor_data().data());
      const size_t dim = specs_.dims[table_];
      if (!plain_) {
        WriteKeys(keys_.keys(), [&](size_t j) { return pooled_.first(j); }, keys);
        return ToAbsl(pooled_.Sum(specs_.dtypes[table_], weighted_ ? weights_.data() : nullptr,
                                  scaled_.data(), dim, out, executor));
      }
      WriteKeys(keys_.keys(), [](size_t j) { return j; }, keys);
      const size_t bytes = dim * engine::SizeOf(specs_.dtypes[table_]);
      char* to = out;
      for (const size_t f : features_) {
        for (size_t i = 0; i < ids_[f].count(); ++i, to += bytes) {
          engine::CopyBytes(to, gradients_[f].Row(i), bytes);
        }
      }
      return absl::OkStatus();
    }

   private:
    /// Joins the segments of all features: their splits, their weights, and their gradients divided
    /// by the norms.
    template <typename Real>
    void Join() {
      const size_t dim = specs_.dims[table_];
      size_t segments = 0;
      for (const size_t f : features_) segments += ids_[f].count();
      splits_.reserve(segments + 1);
      splits_.push_back(0);
      scaled_.resize(segments * dim * sizeof(Real));
      if (weighted_) weights_.resize(keys_.keys().size * sizeof(Real));
      Real* to = reinterpret_cast<Real*>(scaled_.data());
      Real* weight = reinterpret_cast<Real*>(weights_.data());
      for (const size_t f : features_) {
        const FeatureIds& own = ids_[f];
        const FeatureSpec& spec = specs_.features[f];
        const int64_t before = splits_.back();
        for (size_t i = 0; i < own.count(); ++i, to += dim) {
          const int64_t* const splits = own.segments().splits;
          splits_.push_back(before + (own.single() ? static_cast<int64_t>(i) + 1 : splits[i + 1]));
          const Real* const gradient = reinterpret_cast<const Real*>(gradients_[f].Row(i));
          const Real norm = own.single() ? Real{1} : NormOf<Real>(spec, own, i);
          Divide(gradient, norm, dim, to);
        }
        if (!weighted_) continue;
        const auto* const given = static_cast<const Real*>(own.weights());
        for (size_t i = 0; i < own.keys().size; ++i) {
          *weight++ = given == nullptr ? Real{1} : given[i];
        }
      }
    }

    const FeatureSpecs& specs_;
    const size_t table_;
    const std::vector<size_t>& features_;
    const std::vector<FeatureIds>& ids_;
    const std::vector<FeatureRows>& gradients_;
    const JoinedKeys keys_;
    const bool plain_;
    bool weighted_ = false;
    std::vector<int64_t> splits_;
    std::vector<char> weights_, scaled_;  // reals
    engine::PooledGradient pooled_;
  };

  FeatureSpecs specs_;
  std::vector<size_t> trained_;
  std::vector<DataType> key_types_;
};

DE_REGISTER_KERNEL("DeLookupFeaturesGradient", FeaturesGradientOp);

}  // namespace
}  // namespace de::kernels
