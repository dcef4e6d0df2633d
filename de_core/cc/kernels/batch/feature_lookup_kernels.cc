// Kernels that read the rows of many features from many tables at once.
#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <memory>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "de_core/cc/kernels/batch/feature_batch.h"

namespace de::kernels {
namespace {

using tensorflow::DataTypeString;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// A kernel that reads rows of the tables in the input `handles`.
class FeatureRowsOp : public GuardedOp {
 public:
  explicit FeatureRowsOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, specs_.Init(context));
  }

 protected:
  absl::Status Execute(OpKernelContext* context) final {
    std::vector<TablePointer> tables;
    TF_RETURN_IF_ERROR(TablesOf(context, &tables));
    PoolExecutor executor(context);
    std::vector<FeatureIds> ids;
    TF_RETURN_IF_ERROR(ReadFeatures(context, specs_, &executor, &ids));
    return Run(context, tables, ids, &executor);
  }

  virtual absl::Status Run(OpKernelContext* context, const std::vector<TablePointer>& tables,
                           const std::vector<FeatureIds>& ids, PoolExecutor* executor) = 0;

  /// Reads the rows of a part, a few at a time. Calls use(rows, key, count, segment) for `count`
  /// rows, the first of key number `key`, all in one segment.
  template <typename Use>
  absl::Status ForEachRun(const TableResource& table, const FeatureIds& ids,
                          const FeaturePart& part, size_t row_bytes, const Use& use) const {
    const int64_t* const splits = ids.segments().splits;
    const auto begin_of = [&](size_t segment) {
      return splits == nullptr ? segment : static_cast<size_t>(splits[segment]);
    };
    const size_t end = begin_of(part.end), at_once = engine::KeysAtOnce(row_bytes);
    size_t at = begin_of(part.begin), segment = part.begin;
    // Not a vector: it would set all elements to zero first.
    const std::unique_ptr<double[]> rows(
        new double[(std::min(at_once, end - at) * row_bytes + 7) / sizeof(double)]);
    char* const data = reinterpret_cast<char*>(rows.get());
    while (at < end) {
      const size_t count = std::min(at_once, end - at);
      TF_RETURN_IF_ERROR(table.Read(ids.keys().Slice(at, count), {data, nullptr}, nullptr));
      for (size_t i = 0; i < count;) {
        while (begin_of(segment + 1) <= at + i) ++segment;
        const size_t last = std::min(count, begin_of(segment + 1) - at);
        use(data + i * row_bytes, at + i, last - i, segment);
        i = last;
      }
      at += count;
    }
    return absl::OkStatus();
  }

  size_t RowBytes(size_t table) const {
    return specs_.dims[table] * engine::SizeOf(specs_.dtypes[table]);
  }

  FeatureSpecs specs_;

 private:
  /// Finds the tables, and checks that features and tables have the same types.
  absl::Status TablesOf(OpKernelContext* context, std::vector<TablePointer>* tables) const {
    tensorflow::OpInputList ids;
    TF_RETURN_IF_ERROR(context->input_list("ids", &ids));
    TF_RETURN_IF_ERROR(TablesIn(context, tables));
    if (tables->size() != specs_.dims.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there must be one of `dims` per handle. Received: ", specs_.dims.size(),
                       " dims for ", tables->size(), " handles"));
    }
    for (size_t number = 0; number < tables->size(); ++number) {
      const TablePointer& table = (*tables)[number];
      TF_RETURN_IF_ERROR(table->CheckValues(ToTensorFlow(specs_.dtypes[number]),
                                            static_cast<int64_t>(specs_.dims[number])));
      for (const size_t f : specs_.of_table[number]) {
        const tensorflow::DataType type = ids[static_cast<int>(f)].dtype();
        // int32 ids of a table of int64 keys are widened.
        if (type == tensorflow::DT_INT32 && table->key_dtype() == tensorflow::DT_INT64) continue;
        TF_RETURN_IF_ERROR(table->CheckKeys(type));
      }
    }
    return absl::OkStatus();
  }
};

class LookupFeaturesOp final : public FeatureRowsOp {
 public:
  explicit LookupFeaturesOp(OpKernelConstruction* context) : FeatureRowsOp(context) {
    const size_t outputs = specs_.joined ? 1 : specs_.features.size();
    OP_REQUIRES(context, context->num_outputs() == static_cast<int>(outputs),
                absl::InvalidArgumentError(absl::StrCat(
                    "Trows must have one type per output. Received: ", context->num_outputs(),
                    " types for ", outputs, " outputs")));
  }

 protected:
  absl::Status Run(OpKernelContext* context, const std::vector<TablePointer>& tables,
                   const std::vector<FeatureIds>& ids, PoolExecutor* executor) final {
    std::vector<FeatureRows> rows;
    TF_RETURN_IF_ERROR(AllocateRows(context, ids, &rows));
    std::list<OpClock::Call> calls;  // one per table, in however many parts it is read
    for (const TablePointer& table : tables) calls.emplace_back(&table->lookups);
    // Features of single ids are read at once. Others are read part by part.
    std::vector<std::function<absl::Status()>> tasks;
    const size_t total = CountKeys(ids);
    const size_t threads = total < kIdsWorthThreads ? 1 : executor->threads();
    for (size_t f = 0; f < ids.size(); ++f) {
      const size_t t = specs_.features[f].table;
      if (IsPlain(specs_, ids, f)) {
        const auto read = [&, f, t](engine::Executor* with) {
          return tables[t]->Read(ids[f].keys(), {rows[f].data, nullptr, rows[f].stride}, with);
        };
        if (threads > 1 && ids[f].count() > total / threads) {
          TF_RETURN_IF_ERROR(read(executor));
        } else {
          tasks.push_back([read] { return read(nullptr); });
        }
        continue;
      }
      for (const FeaturePart& part : PartsOf(ids, {f})) {
        tasks.push_back([&, t, part] { return Pool(*tables[t], ids, rows, part); });
      }
    }
    return RunAll(tasks, threads > 1 ? executor : nullptr);
  }

 private:
  absl::Status AllocateRows(OpKernelContext* context, const std::vector<FeatureIds>& ids,
                            std::vector<FeatureRows>* rows) const {
    std::vector<const Tensor*> tensors;
    const auto add = [&](int index, TensorShape shape, size_t width) -> absl::Status {
      TF_RETURN_IF_ERROR(shape.AddDimWithStatus(static_cast<int64_t>(width)));
      Tensor* tensor = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(index, shape, &tensor));
      tensors.push_back(tensor);
      return absl::OkStatus();
    };
    for (size_t f = 0; f < ids.size(); ++f) {
      if (!specs_.joined) {
        TF_RETURN_IF_ERROR(
            add(static_cast<int>(f), ids[f].outer(), specs_.dims[specs_.features[f].table]));
      } else if (f == 0) {
        TF_RETURN_IF_ERROR(add(0, ids[0].outer(), specs_.joined_dim));
      } else if (ids[f].outer() != ids[0].outer()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "features whose rows form one matrix must have as many examples each. Received: ",
            ids[0].outer().DebugString(), " and ", ids[f].outer().DebugString()));
      }
    }
    return RowsIn(specs_, ids, tensors, rows);
  }

  /// Pools the rows of some segments.
  absl::Status Pool(const TableResource& table, const std::vector<FeatureIds>& ids,
                    const std::vector<FeatureRows>& rows, const FeaturePart& part) const {
    const FeatureSpec& spec = specs_.features[part.feature];
    const FeatureIds& own = ids[part.feature];
    const FeatureRows& out = rows[part.feature];
    const size_t dim = specs_.dims[spec.table], real_bytes = engine::SizeOf(spec.real);
    for (size_t i = part.begin; i < part.end; ++i) std::memset(out.Row(i), 0, dim * real_bytes);
    const engine::AddRows add = engine::RowAddition(specs_.dtypes[spec.table]);
    const char* const weights = static_cast<const char*>(own.weights());
    TF_RETURN_IF_ERROR(ForEachRun(table, own, part, RowBytes(spec.table),
                                  [&](const char* from, size_t key, size_t count, size_t segment) {
                                    add(from,
                                        weights == nullptr ? nullptr : weights + key * real_bytes,
                                        count, dim, out.Row(segment));
                                  }));
    if (own.single()) return absl::OkStatus();
    WithReal(spec.real, [&](auto real) {
      using Real = decltype(real);
      if (spec.combiner < FeatureSpec::Combiner::kMean) return;
      for (size_t i = part.begin; i < part.end; ++i) {
        Real* const row = reinterpret_cast<Real*>(out.Row(i));
        Divide(row, NormOf<Real>(spec, own, i), dim, row);
      }
    });
    return absl::OkStatus();
  }
};

class WeightGradientOp final : public FeatureRowsOp {
 public:
  using FeatureRowsOp::FeatureRowsOp;

 protected:
  absl::Status Run(OpKernelContext* context, const std::vector<TablePointer>& tables,
                   const std::vector<FeatureIds>& ids, PoolExecutor* executor) final {
    tensorflow::OpInputList given, weights;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &given));
    TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
    std::vector<FeatureRows> gradients;
    TF_RETURN_IF_ERROR(GradientsIn(specs_, ids, given, &gradients));
    std::vector<std::function<absl::Status()>> tasks;
    for (size_t f = 0; f < ids.size(); ++f) {
      const FeatureSpec& spec = specs_.features[f];
      if (!spec.weighted) continue;
      Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(
          context->allocate_output(spec.weights, weights[spec.weights].shape(), &out));
      char* const data = const_cast<char*>(out->tensor_data().data());
      std::memset(data, 0, out->tensor_data().size());  // for ids that are not looked up
      for (const FeaturePart& part : PartsOf(ids, {f})) {
        tasks.push_back([&, part, data] {
          const FeatureSpec& own = specs_.features[part.feature];
          return WithReal(own.real, [&](auto real) {
            return Gradient(*tables[own.table], ids[part.feature], gradients[part.feature], part,
                            reinterpret_cast<decltype(real)*>(data));
          });
        });
      }
    }
    return RunAll(tasks, executor);
  }

 private:
  // With dots d[i] = <row i, gradient of its segment> and total = sum(w[i] * d[i]), the gradient of
  // w[i] is d[i] for "sum", (d[i] - total / norm) / norm for "mean", and
  // (d[i] - total * w[i] / norm^2) / norm for "sqrtn".
  template <typename Real>
  absl::Status Gradient(const TableResource& table, const FeatureIds& ids,
                        const FeatureRows& gradients, const FeaturePart& part, Real* out) const {
    using Combiner = FeatureSpec::Combiner;
    const FeatureSpec& spec = specs_.features[part.feature];
    const int64_t* const splits = ids.segments().splits;
    const auto first = static_cast<size_t>(splits[part.begin]);
    std::vector<Real> dots(static_cast<size_t>(splits[part.end]) - first);
    const size_t dim = specs_.dims[spec.table];
    const engine::DotRows dot = engine::RowProduct(specs_.dtypes[spec.table]);
    TF_RETURN_IF_ERROR(ForEachRun(table, ids, part, RowBytes(spec.table),
                                  [&](const char* rows, size_t key, size_t count, size_t segment) {
                                    dot(rows, gradients.Row(segment), count, dim,
                                        dots.data() + (key - first));
                                  }));
    const Real* const weights = static_cast<const Real*>(ids.weights());
    for (size_t segment = part.begin; segment < part.end; ++segment) {
      const auto begin = static_cast<size_t>(splits[segment]);
      const auto end = static_cast<size_t>(splits[segment + 1]);
      const Real norm = NormOf<Real>(spec, ids, segment);
      Real total = 0;
      for (size_t i = begin; i < end; ++i) total += weights[i] * dots[i - first];
      for (size_t i = begin; i < end; ++i) {
        Real value = dots[i - first];
        if (spec.combiner == Combiner::kMean) value -= total / norm;
        if (spec.combiner == Combiner::kSqrtn) value -= total * weights[i] / (norm * norm);
        out[ids.kept().empty() ? i : ids.kept()[i]] = norm == 0 ? Real{0} : value / norm;
      }
    }
    return absl::OkStatus();
  }
};

DE_REGISTER_KERNEL("DeLookupFeatures", LookupFeaturesOp);
DE_REGISTER_KERNEL("DeLookupFeaturesWeightGradient", WeightGradientOp);

}  // namespace
}  // namespace de::kernels
