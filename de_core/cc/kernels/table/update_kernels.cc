// Kernels that write and remove rows.
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

/// A kernel whose input 0 is the handle of a live table, and input 1 keys.
class LiveKeysOp : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

 protected:
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) final {
    TF_RETURN_IF_ERROR(table.CheckKeys(context->input(1)));
    const KeyBatch batch(context->input(1));
    PoolExecutor executor(context);
    return RunKeys(context, table, live, batch.keys(), &executor);
  }

  virtual absl::Status RunKeys(OpKernelContext* context, const TableResource& table,
                               engine::TableBackend* live, const engine::Keys& keys,
                               engine::Executor* executor) = 0;
};

class InsertOrAssignOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live, const engine::Keys& keys,
                       engine::Executor* executor) override {
    const Tensor& values = context->input(2);
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), values, table.dim(), "values"));
    TF_RETURN_IF_ERROR(table.CheckValues(values.dtype(), table.dim()));
    const ValueBatch rows(values);
    return ToAbsl(live->InsertOrAssign(keys, rows.values(), executor));
  }
};

class AccumOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live, const engine::Keys& keys,
                       engine::Executor* executor) override {
    const Tensor &old_values = context->input(2), &values = context->input(3);
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), values, table.dim(), "new_values"));
    TF_RETURN_IF_ERROR(table.CheckValues(values.dtype(), table.dim()));
    TF_RETURN_IF_ERROR(CheckRows(context->input(1), old_values, table.dim(), "old_values"));
    return ToAbsl(live->AccumOrAssign(keys, values.tensor_data().data(),
                                      old_values.tensor_data().data(), executor));
  }
};

class EraseOp final : public LiveKeysOp {
 public:
  using LiveKeysOp::LiveKeysOp;
  absl::Status RunKeys(OpKernelContext*, const TableResource&, engine::TableBackend* live,
                       const engine::Keys& keys, engine::Executor* executor) override {
    return ToAbsl(live->Erase(keys, executor));
  }
};

/// DeTableClear and DeTableShrinkToFit.
template <engine::Status (engine::TableBackend::*verb)()>
class VerbOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext*, const TableResource&,
                       engine::TableBackend* live) override {
    return ToAbsl((live->*verb)());
  }
};

DE_REGISTER_KERNEL("DeTableInsertOrAssign", InsertOrAssignOp);
DE_REGISTER_KERNEL("DeTableAccum", AccumOp);
DE_REGISTER_KERNEL("DeTableErase", EraseOp);
DE_REGISTER_KERNEL("DeTableClear", VerbOp<&engine::TableBackend::Clear>);
DE_REGISTER_KERNEL("DeTableShrinkToFit", VerbOp<&engine::TableBackend::ShrinkToFit>);

}  // namespace
}  // namespace de::kernels
