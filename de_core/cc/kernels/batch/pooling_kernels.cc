// Kernels that sum rows without outputting them.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/batch/pooling.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/kernels/batch/feature_batch.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorShapeUtils;

// With fewer keys per thread, waking a thread takes longer than it saves.
constexpr size_t kPooledKeysPerThread = 4096;
// Tasks per thread. More than one, so that other threads take over tasks of a thread that starts
// late.
constexpr size_t kTasksPerThread = 4;

absl::Status SegmentsOf(const Tensor& keys, const Tensor& splits, engine::Segments* segments) {
  if (!TensorShapeUtils::IsVector(keys.shape()) || !TensorShapeUtils::IsVector(splits.shape()) ||
      splits.NumElements() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keys and row_splits must be vectors, and row_splits not be empty. Received: keys.shape=",
        keys.shape().DebugString(), ", row_splits.shape=", splits.shape().DebugString()));
  }
  segments->splits = splits.flat<int64_t>().data();
  segments->count = static_cast<size_t>(splits.NumElements()) - 1;
  return ToAbsl(segments->Check(static_cast<size_t>(keys.NumElements())));
}

/// Reads the weights in input `index`.
absl::Status WeightsOf(OpKernelContext* context, int index, const Tensor& keys,
                       const void** weights) {
  const Tensor& given = context->input(index);
  *weights = given.tensor_data().data();
  if (given.shape() == keys.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "weights must hold one number per key. Received: weights.shape=", given.shape().DebugString(),
      ", keys.shape=", keys.shape().DebugString()));
}

absl::Status CheckGradient(const Tensor& gradient, const engine::Segments& segments, int64_t dim) {
  if (gradient.dims() == 2 && gradient.dim_size(0) == static_cast<int64_t>(segments.count) &&
      (dim < 0 || gradient.dim_size(1) == dim)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("gradient must have one row per segment. Received: gradient.shape=",
                   gradient.shape().DebugString(), " for ", segments.count, " segments"));
}

/// A kernel that reads the rows of input 1 in parts, segment by segment.
class PoolingOp : public TableOp {
 public:
  explicit PoolingOp(OpKernelConstruction* context) : TableOp(context) {
    DataType real;
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &real));
    OP_REQUIRES_OK(context, ToEngine(value_dtype_, &dtype_));
    OP_REQUIRES(
        context, ToTensorFlow(engine::RealOf(dtype_)) == real,
        absl::InvalidArgumentError(absl::StrCat(
            "T must be float, or double for rows of double. Received: ", DataTypeString(real))));
    real_bytes_ = engine::SizeOf(engine::RealOf(dtype_));
  }

 protected:
  /// Uses the rows of `count` keys, the first at `position` of the batch, all in one segment.
  template <typename Use>
  absl::Status ForEachRun(OpKernelContext* context, const TableResource& table, const Use& use) {
    const Tensor& keys = context->input(1);
    const KeyBatch batch(keys);
    engine::Segments segments;
    TF_RETURN_IF_ERROR(SegmentsOf(keys, context->input(2), &segments));
    const size_t row_bytes = static_cast<size_t>(table.dim()) * engine::SizeOf(dtype_);
    // Each segment is handled by one task.
    PoolExecutor executor(context);
    const size_t size = batch.keys().size;
    const size_t worth = std::min(executor.threads(), size / kPooledKeysPerThread + 1);
    const size_t tasks = worth <= 1 ? 1 : std::min(worth * kTasksPerThread, segments.count + 1);
    const auto begin_of = [&](size_t task) {
      if (task == 0 || task == tasks) return task == 0 ? size_t{0} : size;
      return static_cast<size_t>(segments.splits[segments.Of(size * task / tasks)]);
    };
    std::vector<std::function<absl::Status()>> parts;
    for (size_t task = 0; task < tasks; ++task) {
      parts.push_back([&, task] {
        const size_t begin = begin_of(task), end = begin_of(task + 1);
        const size_t first = begin < end ? segments.Of(begin) : 0;
        return ReadSegments(table, batch.keys(), begin, end, segments.splits, first, row_bytes,
                            use);
      });
    }
    return RunAll(parts, &executor);
  }

  DataType value_dtype_;
  engine::DType dtype_;
  size_t real_bytes_ = 0;
};

class TablePoolOp final : public PoolingOp {
 public:
  explicit TablePoolOp(OpKernelConstruction* context) : PoolingOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(context, context->GetAttr("weighted", &weighted_));
  }

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* table) final {
    const OpClock::Call call(&table->lookups);
    const Tensor& keys = context->input(1);
    TF_RETURN_IF_ERROR(table->CheckKeys(keys));
    TF_RETURN_IF_ERROR(table->CheckValues(value_dtype_, dim_));
    engine::Segments segments;
    TF_RETURN_IF_ERROR(SegmentsOf(keys, context->input(2), &segments));
    const void* weights = nullptr;
    if (weighted_) TF_RETURN_IF_ERROR(WeightsOf(context, 3, keys, &weights));
    Tensor* sums = nullptr;
    TF_RETURN_IF_ERROR(
        AllocateOutput(context, 0, {static_cast<int64_t>(segments.count), dim_}, &sums));
    char* const out = const_cast<char*>(sums->tensor_data().data());
    std::memset(out, 0, sums->tensor_data().size());
    const auto dim = static_cast<size_t>(dim_);
    const engine::AddRows add = engine::RowAddition(dtype_);
    return ForEachRun(context, *table,
                      [&](const char* rows, size_t position, size_t count, size_t segment) {
                        const char* factors = static_cast<const char*>(weights);
                        add(rows, factors == nullptr ? nullptr : factors + position * real_bytes_,
                            count, dim, out + segment * dim * real_bytes_);
                      });
  }

 private:
  int64_t dim_ = 0;
  bool weighted_ = false;
};

class TablePoolDotsOp final : public PoolingOp {
 public:
  using PoolingOp::PoolingOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* table) final {
    const Tensor& keys = context->input(1);
    const Tensor& gradient = context->input(3);
    TF_RETURN_IF_ERROR(table->CheckKeys(keys));
    TF_RETURN_IF_ERROR(table->CheckValues(value_dtype_, table->dim()));
    engine::Segments segments;
    TF_RETURN_IF_ERROR(SegmentsOf(keys, context->input(2), &segments));
    TF_RETURN_IF_ERROR(CheckGradient(gradient, segments, table->dim()));
    Tensor* dots = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, keys.shape(), &dots));
    char* const out = const_cast<char*>(dots->tensor_data().data());
    const char* const vectors = gradient.tensor_data().data();
    const auto dim = static_cast<size_t>(table->dim());
    const engine::DotRows dot = engine::RowProduct(dtype_);
    return ForEachRun(context, *table,
                      [&](const char* rows, size_t position, size_t count, size_t segment) {
                        dot(rows, vectors + segment * dim * real_bytes_, count, dim,
                            out + position * real_bytes_);
                      });
  }
};

class PoolGradientOp final : public GuardedOp {
 public:
  explicit PoolGradientOp(OpKernelConstruction* context) : GuardedOp(context) {
    DataType values;
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &values));
    OP_REQUIRES_OK(context, ToEngine(values, &dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("weighted", &weighted_));
  }

  absl::Status Execute(OpKernelContext* context) override {
    const Tensor& keys = context->input(0);
    TF_RETURN_IF_ERROR(CheckKeyCount(keys));
    const Tensor& gradient = context->input(3);
    engine::Segments segments;
    TF_RETURN_IF_ERROR(SegmentsOf(keys, context->input(1), &segments));
    TF_RETURN_IF_ERROR(CheckGradient(gradient, segments, -1));
    if (ToTensorFlow(engine::RealOf(dtype_)) != gradient.dtype()) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient must be float, or double for values of double. Received: ",
                       DataTypeString(gradient.dtype())));
    }
    const void* weights = nullptr;
    if (weighted_) TF_RETURN_IF_ERROR(WeightsOf(context, 2, keys, &weights));
    const KeyBatch batch(keys);
    engine::PooledGradient pooled;
    PoolExecutor executor(context);
    TF_RETURN_IF_ERROR(ToAbsl(pooled.Build(batch.keys(), &executor)));
    const auto dim = static_cast<size_t>(gradient.dim_size(1));
    const size_t row_bytes = dim * engine::SizeOf(engine::RealOf(dtype_));
    // of each key; not a vector, which would set all elements to zero first
    const std::unique_ptr<const void*[]> gradients(new const void*[batch.keys().size]);
    const char* row = gradient.tensor_data().data();
    for (size_t segment = 0; segment < segments.count; ++segment, row += row_bytes) {
      for (int64_t i = segments.splits[segment]; i < segments.splits[segment + 1]; ++i) {
        gradients[static_cast<size_t>(i)] = row;
      }
    }
    const auto count = static_cast<int64_t>(pooled.size());
    Tensor* unique = nullptr;
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {count}, &unique));
    TF_RETURN_IF_ERROR(AllocateOutput(context, 1, {count, gradient.dim_size(1)}, &values));
    WriteDistinctKeys(pooled, batch.keys(), unique);
    return ToAbsl(pooled.Sum(dtype_, weights, gradients.get(), dim,
                             const_cast<char*>(values->tensor_data().data()), &executor));
  }

 private:
  engine::DType dtype_;
  bool weighted_ = false;
};

/// A kernel whose input 0 is the segment id of each element, and input 1 the number of segments.
class SegmentIdsOp : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

 protected:
  using Ids = tensorflow::TTypes<int64_t>::ConstFlat;

  absl::Status Execute(OpKernelContext* context) final {
    TF_RETURN_IF_ERROR(CheckScalar(context, 1, "segments"));
    const int64_t segments = context->input(1).scalar<int64_t>()();
    if (segments < 0 || segments >= kMostSegments) {
      return absl::InvalidArgumentError(absl::StrCat(
          "segments must be from 0 to ", kMostSegments - 1, ". Received: segments=", segments));
    }
    return Run(context, context->input(0).flat<int64_t>(), segments);
  }

  virtual absl::Status Run(OpKernelContext* context, const Ids& ids, int64_t segments) = 0;

 private:
  // A tensor of row splits has 8 bytes for each segment, and a tensor has less than 2^63 bytes.
  static constexpr int64_t kMostSegments = int64_t{1} << 59;
};

class RowSplitsOp final : public SegmentIdsOp {
 public:
  using SegmentIdsOp::SegmentIdsOp;

 protected:
  absl::Status Run(OpKernelContext* context, const Ids& ids, int64_t segments) final {
    Tensor* splits = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {segments + 1}, &splits));
    auto out = splits->flat<int64_t>();
    int64_t segment = 0;
    out(0) = 0;
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (ids(i) < segment || ids(i) >= segments) {
        return absl::InvalidArgumentError(
            absl::StrCat("the ids of a pooled lookup must be in row-major order "
                         "(tf.sparse.reorder sorts them), with rows in [0, ",
                         segments, "). Received: row ", ids(i), " after row ", segment));
      }
      while (segment < ids(i)) out(++segment) = i;
    }
    while (segment < segments) out(++segment) = ids.size();
    return absl::OkStatus();
  }
};

class SegmentOrderOp final : public SegmentIdsOp {
 public:
  using SegmentIdsOp::SegmentIdsOp;

 protected:
  absl::Status Run(OpKernelContext* context, const Ids& ids, int64_t segments) final {
    Tensor* splits = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 1, {segments + 1}, &splits));
    auto begins = splits->flat<int64_t>();
    begins.setZero();
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (ids(i) >= segments) {
        return absl::InvalidArgumentError(
            absl::StrCat("segment_ids must be below ", segments, ". Received: ", ids(i)));
      }
      if (ids(i) >= 0) ++begins(ids(i) + 1);
    }
    for (int64_t i = 0; i < segments; ++i) begins(i + 1) += begins(i);
    Tensor* order = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {begins(segments)}, &order));
    auto out = order->flat<int64_t>();
    std::vector<int64_t> next(begins.data(), begins.data() + segments);
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (ids(i) >= 0) out(next[static_cast<size_t>(ids(i))]++) = i;
    }
    return absl::OkStatus();
  }
};

DE_REGISTER_KERNEL("DeTablePool", TablePoolOp);
DE_REGISTER_KERNEL("DeTablePoolDots", TablePoolDotsOp);
DE_REGISTER_KERNEL("DePoolGradient", PoolGradientOp);
DE_REGISTER_KERNEL("DeRowSplits", RowSplitsOp);
DE_REGISTER_KERNEL("DeSegmentOrder", SegmentOrderOp);

}  // namespace
}  // namespace de::kernels
