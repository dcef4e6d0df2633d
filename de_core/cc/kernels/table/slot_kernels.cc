// Kernels on optimizer slots.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/frozen_mark.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/kernels/table/slot_values.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

/// Reads the scalar string in input `index`.
absl::Status ScalarString(OpKernelContext* context, int index, const char* name,
                          std::string* text) {
  TF_RETURN_IF_ERROR(CheckScalar(context, index, name));
  *text = std::string(context->input(index).scalar<tstring>()());
  return absl::OkStatus();
}

/// A slot's owner and name, its width and dtype, and its bytes per row in the table. A metadata
/// column, for example the time of the last use, is a slot that is read and written as int64.
struct SlotName {
  std::string owner, name;
  int64_t width = 0;
  engine::DType dtype = engine::DType::kFloat32;
  size_t bytes = 0;

  absl::Status Read(OpKernelContext* context, int index, const engine::TableBackend& table,
                    tensorflow::DataType tensors) {
    std::string text;
    TF_RETURN_IF_ERROR(ScalarString(context, index, "slot", &text));
    const engine::RowLayout layout = table.layout();
    const engine::RowSlot* slot = nullptr;
    TF_RETURN_IF_ERROR(FindSlot(layout, text, &owner, &slot));
    const tensorflow::DataType wanted = SlotsReadAs(slot->spec.dtype);
    if (tensors != wanted) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot '", text, "' must be read and written as ", tensorflow::DataTypeString(wanted),
          ". Received: ", tensorflow::DataTypeString(tensors)));
    }
    name = slot->spec.name;
    width = static_cast<int64_t>(slot->spec.width);
    dtype = slot->spec.dtype;
    bytes = slot->bytes();
    return absl::OkStatus();
  }
};

class EnsureSlotsOp final : public LiveTableOp {
 public:
  explicit EnsureSlotsOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("names", &names_));
    OP_REQUIRES_OK(context, context->GetAttr("widths", &widths_));
    bool valid = names_.size() == widths_.size();
    for (const int64_t width : widths_) {
      valid = valid && width >= 1 && width <= static_cast<int64_t>(engine::kMaxDim);
    }
    OP_REQUIRES(
        context, valid,
        absl::InvalidArgumentError(absl::StrCat(
            "widths must hold one number from 1 to ", engine::kMaxDim,
            " for each name. Received: ", names_.size(), " names, ", widths_.size(), " widths")));
  }

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    std::string owner;
    TF_RETURN_IF_ERROR(ScalarString(context, 1, "owner", &owner));
    const Tensor& initial = context->input(2);
    if (initial.NumElements() != static_cast<int64_t>(names_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("initial must hold one number for each of ",
                                                     names_.size(),
                                                     " names. Received: ", initial.NumElements()));
    }
    if (!engine::IsFloating(live->options().value_dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a table with optimizer slots must hold floats. Received: ",
                       engine::NameOf(live->options().value_dtype)));
    }
    const engine::DType real = engine::RealOf(live->options().value_dtype);
    std::vector<engine::SlotSpec> specs;
    for (size_t i = 0; i < names_.size(); ++i) {
      specs.push_back({names_[i], real, static_cast<size_t>(widths_[i]),
                       initial.flat<double>()(static_cast<int64_t>(i))});
    }
    return ToAbsl(live->EnsureSlots(owner, specs));
  }

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> widths_;
};

class FindSlotOp final : public LiveTableOp {
 public:
  explicit FindSlotOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("Tvalues", &dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
  }

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    const Tensor& keys = context->input(1);
    TF_RETURN_IF_ERROR(table.CheckKeys(keys));
    SlotName slot;
    absl::Status status = slot.Read(context, 2, *live, dtype_);
    if (status.ok() && slot.width != dim_) {
      return absl::InvalidArgumentError(absl::StrCat("dim must be the width of the slot, ",
                                                     slot.width, ". Received: dim=", dim_));
    }
    TensorShape shape;
    TF_RETURN_IF_ERROR(RowsShape(keys, dim_, &shape));
    Tensor* values = nullptr;
    Tensor* found = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &values));
    TF_RETURN_IF_ERROR(context->allocate_output(1, keys.shape(), &found));
    if (status.ok()) {
      const KeyBatch batch(keys);
      std::string stored(batch.keys().size * slot.bytes, '\0');
      status = ToAbsl(live->FindSlot(slot.owner, slot.name, slot.bytes, batch.keys(), stored.data(),
                                     found->flat<bool>().data()));
      if (status.ok()) return ReadSlots(slot.dtype, stored, values);
    }
    // A step computed outside the table asks which rows are frozen. Without the slot none is, and
    // the answer is that of a table without rows.
    if (!absl::IsNotFound(status) || slot.owner != engine::kFreezeOwner) return status;
    std::memset(values->data(), 0, values->TotalBytes());
    std::memset(found->data(), 0, found->TotalBytes());
    return absl::OkStatus();
  }

 private:
  tensorflow::DataType dtype_;
  int64_t dim_ = 0;
};

class AssignSlotOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    const Tensor& keys = context->input(1);
    const Tensor& values = context->input(2);
    TF_RETURN_IF_ERROR(table.CheckKeys(keys));
    SlotName slot;
    TF_RETURN_IF_ERROR(slot.Read(context, 3, *live, values.dtype()));
    TensorShape wanted;
    TF_RETURN_IF_ERROR(RowsShape(keys, slot.width, &wanted));
    if (values.shape() != wanted) {
      return absl::InvalidArgumentError(absl::StrCat(
          "values must have the shape keys.shape + [width of the slot] = ", wanted.DebugString(),
          ". Received: values.shape=", values.shape().DebugString()));
    }
    const KeyBatch batch(keys);
    std::string stored;
    TF_RETURN_IF_ERROR(ConvertValues(values, slot.dtype, &stored));
    return ToAbsl(live->AssignSlot(slot.owner, slot.name, slot.bytes, batch.keys(), stored.data()));
  }
};

/// DeTableDropSlots and DeTableTakeAverages.
template <engine::Status (engine::TableBackend::*verb)(const std::string&)>
class OwnerOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    std::string owner;
    TF_RETURN_IF_ERROR(ScalarString(context, 1, "owner", &owner));
    return ToAbsl((live->*verb)(owner));
  }
};

class SlotsOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    const engine::RowLayout layout = live->layout();
    const auto count = static_cast<int64_t>(layout.slots().size());
    Tensor* names = nullptr;
    Tensor* widths = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({count}), &names));
    TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({count}), &widths));
    int64_t at = 0;
    for (const engine::RowSlot& slot : layout.slots()) {
      names->flat<tstring>()(at) = slot.owner + "/" + slot.spec.name;
      widths->flat<int64_t>()(at++) = static_cast<int64_t>(slot.spec.width);
    }
    return absl::OkStatus();
  }
};

DE_REGISTER_KERNEL("DeTableEnsureSlots", EnsureSlotsOp);
DE_REGISTER_KERNEL("DeTableFindSlot", FindSlotOp);
DE_REGISTER_KERNEL("DeTableAssignSlot", AssignSlotOp);
DE_REGISTER_KERNEL("DeTableDropSlots", OwnerOp<&engine::TableBackend::DropSlots>);
DE_REGISTER_KERNEL("DeTableTakeAverages", OwnerOp<&engine::TableBackend::TakeAverages>);
DE_REGISTER_KERNEL("DeTableSlots", SlotsOp);

}  // namespace
}  // namespace de::kernels
