// Kernels that read rows.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/table/slot_values.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// DeTableFind, and DeTableFindOrInsert with `insert`.
template <bool insert>
class FindOp final : public TableOp {
 public:
  explicit FindOp(OpKernelConstruction* context) : TableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
  }

  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    const OpClock::Call call(&table->lookups);
    const Tensor& keys = context->input(1);
    TF_RETURN_IF_ERROR(table->CheckKeys(keys));
    TF_RETURN_IF_ERROR(table->CheckValues(value_dtype_, dim_));
    TensorShape shape;
    TF_RETURN_IF_ERROR(RowsShape(keys, dim_, &shape));
    Tensor* values = nullptr;
    Tensor* found = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &values));
    TF_RETURN_IF_ERROR(context->allocate_output(1, keys.shape(), &found));
    const KeyBatch batch(keys);
    ValueTarget target(values);
    PoolExecutor executor(context);
    bool* flags = found->flat<bool>().data();
    if constexpr (insert) {
      std::shared_ptr<engine::TableBackend> live;
      TF_RETURN_IF_ERROR(table->Live(&live));
      return ToAbsl(live->FindOrInsert(batch.keys(), target.out(), flags, &executor));
    } else {
      return table->Find(batch.keys(), target.out(), flags, &executor);
    }
  }

 private:
  DataType value_dtype_;
  int64_t dim_ = 0;
};

class FindWithDefaultsOp final : public TableOp {
 public:
  using TableOp::TableOp;

  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    const Tensor& keys = context->input(1);
    const Tensor& defaults = context->input(2);
    TF_RETURN_IF_ERROR(table->CheckKeys(keys));
    const int64_t dim = defaults.dims() == 0 ? 1 : defaults.dim_size(defaults.dims() - 1);
    TF_RETURN_IF_ERROR(table->CheckValues(defaults.dtype(), dim));
    const int64_t count = keys.NumElements();
    if (count > 0 && defaults.NumElements() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("defaults must hold at least one row. Received: defaults.shape=",
                       defaults.shape().DebugString()));
    }
    TensorShape shape;
    TF_RETURN_IF_ERROR(RowsShape(keys, dim, &shape));
    Tensor* values = nullptr;
    Tensor found;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &values));
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_BOOL, keys.shape(), &found));
    const KeyBatch batch(keys);
    ValueTarget target(values);
    PoolExecutor executor(context);
    bool* const exists = found.flat<bool>().data();
    TF_RETURN_IF_ERROR(table->Find(batch.keys(), target.out(), exists, &executor));
    const bool own_rows = defaults.NumElements() == values->NumElements();
    for (int64_t i = 0; i < count; ++i) {
      if (!exists[i]) CopyRow(defaults, own_rows ? i : 0, i, dim, values);
    }
    if (context->num_outputs() > 1) context->set_output(1, found);
    return absl::OkStatus();
  }

 private:
  static void CopyRow(const Tensor& from, int64_t row, int64_t target, int64_t dim, Tensor* to) {
    if (from.dtype() == tensorflow::DT_STRING) {
      const auto* strings = from.flat<tensorflow::tstring>().data();
      std::copy_n(strings + row * dim, dim, to->flat<tensorflow::tstring>().data() + target * dim);
      return;
    }
    const auto bytes = static_cast<size_t>(dim * tensorflow::DataTypeSize(from.dtype()));
    std::memcpy(const_cast<char*>(to->tensor_data().data()) + static_cast<size_t>(target) * bytes,
                from.tensor_data().data() + static_cast<size_t>(row) * bytes, bytes);
  }
};

class ContainsOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    const Tensor& keys = context->input(1);
    TF_RETURN_IF_ERROR(table->CheckKeys(keys));
    Tensor* found = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, keys.shape(), &found));
    const KeyBatch batch(keys);
    PoolExecutor executor(context);
    return table->Find(batch.keys(), engine::ValuesOut{}, found->flat<bool>().data(), &executor);
  }
};

class EmbeddingAnchorOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;
  absl::Status Execute(OpKernelContext* context) override {
    context->set_output(0, context->input(2));
    return absl::OkStatus();
  }
  bool IsExpensive() override { return false; }
};

/// DeTableExport, and DeTableExportBatch with `one_batch`.
template <bool one_batch>
class ExportOp final : public TableOp {
 public:
  explicit ExportOp(OpKernelConstruction* context) : TableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("slot", &slot_));
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("Tkeys", &key_dtype_));
  }

  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    std::shared_ptr<engine::TableBackend> live;
    TF_RETURN_IF_ERROR(table->Live(&live));
    TF_RETURN_IF_ERROR(table->CheckKeys(key_dtype_));
    RowPart part;
    TF_RETURN_IF_ERROR(PartOf(live->layout(), &part));
    const DataType exported = slot_.empty() ? ToTensorFlow(part.dtype) : SlotsReadAs(part.dtype);
    if (exported != value_dtype_) {
      return absl::InvalidArgumentError(
          absl::StrCat("Tvalues must be the dtype of the exported values, ",
                       tensorflow::DataTypeString(exported),
                       ". Received: ", tensorflow::DataTypeString(value_dtype_)));
    }
    std::vector<int64_t> words;
    std::vector<tensorflow::tstring> names, strings;
    std::string rows;
    engine::RowBatch batch;
    engine::ExportCursor cursor;
    if (one_batch) {
      TF_RETURN_IF_ERROR(CheckScalar(context, 1, "cursor"));
      cursor.next_hash = context->input(1).scalar<uint64_t>()();
    }
    for (bool more = true; more; more = !one_batch && !cursor.done) {
      TF_RETURN_IF_ERROR(ToAbsl(live->ExportBatch(&cursor, &batch)));
      if (batch.size() == 0) continue;
      // Slots may be added or dropped between two batches.
      RowPart now;
      TF_RETURN_IF_ERROR(PartOf(batch.layout, &now));
      if (now.width != part.width || now.dtype != part.dtype) {
        return absl::FailedPreconditionError(absl::StrCat(
            "a slot must keep its width and dtype while it is exported; export it again. "
            "Received: slot='",
            slot_, "', width=", now.width, ", first width=", part.width));
      }
      const size_t stride = batch.layout.stride();
      for (size_t i = 0; i < batch.size(); ++i) {
        words.push_back(static_cast<int64_t>(batch.words[i]));
        rows.append(batch.rows.data() + i * stride + now.offset, now.bytes);
      }
      for (const std::string_view key : batch.keys) names.emplace_back(key.data(), key.size());
      for (const std::string_view v : batch.values) strings.emplace_back(v.data(), v.size());
    }
    const auto count = static_cast<int64_t>(words.size());
    Tensor* keys = nullptr;
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({count}), &keys));
    TF_RETURN_IF_ERROR(context->allocate_output(
        1, TensorShape({count, static_cast<int64_t>(part.width)}), &values));
    if (key_dtype_ == tensorflow::DT_STRING) {
      std::move(names.begin(), names.end(), keys->flat<tensorflow::tstring>().data());
    } else if (key_dtype_ == tensorflow::DT_INT32) {
      for (int64_t i = 0; i < count; ++i) {
        keys->flat<int32_t>()(i) = static_cast<int32_t>(words[static_cast<size_t>(i)]);
      }
    } else {
      std::copy(words.begin(), words.end(), keys->flat<int64_t>().data());
    }
    if (one_batch) {
      TF_RETURN_IF_ERROR(OutputScalar<uint64_t>(context, 2, cursor.next_hash));
      TF_RETURN_IF_ERROR(OutputScalar<bool>(context, 3, cursor.done));
    }
    if (value_dtype_ == tensorflow::DT_STRING) {
      std::move(strings.begin(), strings.end(), values->flat<tensorflow::tstring>().data());
    } else if (count > 0) {
      return ReadSlots(part.dtype, rows, values);
    }
    return absl::OkStatus();
  }

 private:
  /// The part of each row to export.
  struct RowPart {
    size_t width;
    engine::DType dtype;
    size_t bytes, offset;
  };

  absl::Status PartOf(const engine::RowLayout& layout, RowPart* part) const {
    if (slot_.empty()) {
      *part = {layout.dim(), layout.value_dtype(), layout.value_bytes(), 0};
      return absl::OkStatus();
    }
    std::string owner;
    const engine::RowSlot* slot = nullptr;
    TF_RETURN_IF_ERROR(FindSlot(layout, slot_, &owner, &slot));
    *part = {slot->spec.width, slot->spec.dtype, slot->bytes(), slot->offset};
    return absl::OkStatus();
  }

  std::string slot_;
  DataType value_dtype_, key_dtype_;
};

DE_REGISTER_KERNEL("DeTableFind", FindOp<false>);
DE_REGISTER_KERNEL("DeTableFindOrInsert", FindOp<true>);
DE_REGISTER_KERNEL("DeTableFindWithDefaults", FindWithDefaultsOp);
DE_REGISTER_KERNEL("DeTableContains", ContainsOp);
DE_REGISTER_KERNEL("DeEmbeddingAnchor", EmbeddingAnchorOp);
DE_REGISTER_KERNEL("DeTableExport", ExportOp<false>);
DE_REGISTER_KERNEL("DeTableExportBatch", ExportOp<true>);

}  // namespace
}  // namespace de::kernels
