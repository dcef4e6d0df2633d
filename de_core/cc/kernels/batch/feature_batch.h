// The ids of many features in one batch, as the kernels of feature_lookup_ops.cc take them.
#ifndef DE_CORE_KERNELS_FEATURE_BATCH_H_
#define DE_CORE_KERNELS_FEATURE_BATCH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/pooling.h"
#include "de_core/cc/kernels/base/engine_bridge.h"
#include "de_core/cc/kernels/batch/many_tables.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// How one feature's ids are given and pooled.
struct FeatureSpec {
  enum class Kind { kDense, kRagged, kSparse };
  enum class Combiner { kNone, kSum, kMean, kSqrtn };

  size_t table = 0;  ///< number of the table among the op's tables
  Kind kind = Kind::kDense;
  Combiner combiner = Combiner::kSum;
  int64_t length = -1;  ///< most ids of an example; -1 for all
  bool weighted = false;
  bool padded = false;         ///< whether one id means padding
  int64_t padding = 0;         ///< that id, if ids are integers
  std::string padding_string;  ///< that id, if ids are strings
  int structure = 0;           ///< first of the feature's tensors in the input `structure`
  int weights = 0;             ///< the feature's tensor in the input `weights`, if weighted
  engine::DType real = engine::DType::kFloat32;  ///< type of weights, sums and gradients
};

/// The attributes that all kernels over features share.
struct FeatureSpecs {
  /// Reads and checks the attributes.
  absl::Status Init(tensorflow::OpKernelConstruction* context);

  std::vector<FeatureSpec> features;
  std::vector<std::vector<size_t>> of_table;  ///< numbers of each table's features
  std::vector<size_t> dims;                   ///< of each table
  std::vector<engine::DType> dtypes;          ///< of each table's rows
  bool joined = false;                        ///< whether all rows form one matrix
  size_t joined_dim = 0;                      ///< columns of that matrix
};

/// The ids of one feature, divided into segments. Each segment makes one row of the output.
class FeatureIds {
 public:
  /// Reads the feature's tensors, which must outlive this object. `structure` are none for a dense
  /// feature, the row splits of a ragged one, or indices and dense shape of a sparse one. `weights`
  /// is nullptr if the feature has none.
  absl::Status Build(const FeatureSpec& spec, const tensorflow::Tensor& ids,
                     const tensorflow::Tensor* structure, const tensorflow::Tensor* weights);

  /// The ids to look up: without padding, and without ids past the greatest length.
  const engine::Keys& keys() const noexcept { return keys_; }
  /// The number of segments.
  size_t count() const noexcept { return count_; }
  /// True if each segment is one id without a weight. There are no segments() then.
  bool single() const noexcept { return single_; }
  engine::Segments segments() const noexcept { return {splits_, count_}; }
  /// The weight of each of keys(), or nullptr.
  const void* weights() const noexcept { return weights_; }
  /// The position in the tensor of each of keys(), or empty if they are equal.
  const std::vector<size_t>& kept() const noexcept { return kept_; }
  /// The output's shape without its last dimension.
  const tensorflow::TensorShape& outer() const noexcept { return outer_; }

 private:
  absl::Status ReadStructure(const FeatureSpec& spec, const tensorflow::Tensor& ids,
                             const tensorflow::Tensor* structure);
  void Divide(const FeatureSpec& spec, size_t width);
  void DropUnkept(const tensorflow::Tensor* weights, size_t real_bytes);

  std::unique_ptr<KeyBatch> batch_;
  engine::Keys keys_;
  const int64_t* splits_ = nullptr;
  const int64_t* lists_ = nullptr;  ///< row splits of the examples; nullptr for a dense feature
  size_t count_ = 0, examples_ = 0, width_ = 0;
  const void* weights_ = nullptr;
  bool single_ = false;
  tensorflow::TensorShape outer_;
  std::vector<int64_t> own_splits_, own_lists_, own_ints_;
  std::vector<std::string_view> own_strings_;
  std::vector<char> own_weights_;
  std::vector<size_t> kept_;
  bool drops_ = false;  ///< whether kept_ leaves out some of the ids
};

/// Returns the divisor of the feature's combiner for the sum of a segment.
template <typename Real>
Real NormOf(const FeatureSpec& spec, const FeatureIds& ids, size_t segment) {
  using Combiner = FeatureSpec::Combiner;
  if (spec.combiner != Combiner::kMean && spec.combiner != Combiner::kSqrtn) return Real{1};
  const bool mean = spec.combiner == Combiner::kMean;
  const int64_t* const splits = ids.segments().splits;
  const auto* const weights = static_cast<const Real*>(ids.weights());
  Real total = weights == nullptr ? static_cast<Real>(splits[segment + 1] - splits[segment]) : 0;
  for (int64_t i = splits[segment]; weights != nullptr && i < splits[segment + 1]; ++i) {
    total += mean ? weights[i] : weights[i] * weights[i];
  }
  return mean ? total : std::sqrt(total);
}

/// out (dim) = row / norm; 0 if the norm is 0.
template <typename Real>
void Divide(const Real* row, Real norm, size_t dim, Real* out) noexcept {
  for (size_t c = 0; c < dim; ++c) out[c] = norm == 0 ? Real{0} : row[c] / norm;
}

/// Writes the distinct keys of a pooled gradient. `keys` are all keys.
void WriteDistinctKeys(const engine::PooledGradient& pooled, const engine::Keys& keys,
                       tensorflow::Tensor* out);

/// Returns the number of keys to look up of some features.
inline size_t CountKeys(const std::vector<FeatureIds>& ids, const std::vector<size_t>& features) {
  size_t count = 0;
  for (const size_t f : features) count += ids[f].keys().size;
  return count;
}

/// Returns the number of keys to look up of all features.
inline size_t CountKeys(const std::vector<FeatureIds>& ids) {
  size_t count = 0;
  for (const FeatureIds& each : ids) count += each.keys().size;
  return count;
}

/// Calls use(Real{}) with the type of `dtype`, float or double.
template <typename Use>
auto WithReal(engine::DType dtype, const Use& use) {
  return dtype == engine::DType::kFloat64 ? use(double{}) : use(float{});
}

/// The keys of all features of one table, in the order of the features.
class JoinedKeys {
 public:
  /// Joins the keys, which must outlive this object. Call it again to reuse the memory.
  void Join(const std::vector<FeatureIds>& ids, const std::vector<size_t>& features);
  const engine::Keys& keys() const noexcept { return keys_; }

 private:
  engine::Keys keys_;
  std::vector<int64_t> ints_;
  std::vector<std::string_view> strings_;
};

/// Reads the ids, the structure and the weights of all features, on several threads for a large
/// batch. The inputs have these names.
absl::Status ReadFeatures(tensorflow::OpKernelContext* context, const FeatureSpecs& specs,
                          engine::Executor* executor, std::vector<FeatureIds>* ids);

/// Where the rows of a feature lie: in a tensor of its own, or in some columns of a matrix of all
/// features.
struct FeatureRows {
  char* data = nullptr;  ///< the first segment's row
  size_t stride = 0;     ///< bytes from one segment's row to the next

  char* Row(size_t segment) const noexcept { return data + segment * stride; }
};

/// Returns where each feature's rows lie in `tensors`: one per feature, or one if they are joined.
absl::Status RowsIn(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids,
                    const std::vector<const tensorflow::Tensor*>& tensors,
                    std::vector<FeatureRows>* rows);

/// Returns where the gradients of each feature's rows lie.
absl::Status GradientsIn(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids,
                         const tensorflow::OpInputList& gradients, std::vector<FeatureRows>* rows);

/// True if each segment of a feature is one id without a weight, and its rows have the type of
/// arithmetic. Then a row of the output is a row of the table.
bool IsPlain(const FeatureSpecs& specs, const std::vector<FeatureIds>& ids, size_t feature);

/// Part of the work on a batch: some segments of one feature.
struct FeaturePart {
  size_t feature, begin, end;
};

/// Divides the features into parts of a few thousand ids. No part is empty.
std::vector<FeaturePart> PartsOf(const std::vector<FeatureIds>& ids,
                                 const std::vector<size_t>& features);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_FEATURE_BATCH_H_
