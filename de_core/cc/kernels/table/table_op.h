// Common code of table kernels: finds the table, and distinguishes live from frozen tables.
#ifndef DE_CORE_KERNELS_TABLE_OP_H_
#define DE_CORE_KERNELS_TABLE_OP_H_

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "de_core/cc/kernels/table/table_resource.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// A kernel on the table in input 0.
class TableOp : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

 protected:
  absl::Status Execute(tensorflow::OpKernelContext* context) final {
    tensorflow::core::RefCountPtr<TableResource> table;
    TF_RETURN_IF_ERROR(
        tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &table));
    return Run(context, table.get());
  }

  virtual absl::Status Run(tensorflow::OpKernelContext* context, TableResource* table) = 0;
};

/// A kernel whose input 0 is the handle of a live table: it is not destroyed and can be written
/// (the table of an exported model is read-only). Other handles are errors.
class LiveTableOp : public TableOp {
 public:
  using TableOp::TableOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context, TableResource* table) final {
    std::shared_ptr<engine::TableBackend> live;
    TF_RETURN_IF_ERROR(table->Live(&live));
    return RunLive(context, *table, live.get());
  }

  virtual absl::Status RunLive(tensorflow::OpKernelContext* context, const TableResource& table,
                               engine::TableBackend* live) = 0;
};

/// Returns an error unless the tensor, the input `name`, is a scalar.
inline absl::Status CheckScalar(const tensorflow::Tensor& tensor, const char* name) {
  if (tensorflow::TensorShapeUtils::IsScalar(tensor.shape())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a scalar. Received: shape=", tensor.shape().DebugString()));
}
inline absl::Status CheckScalar(tensorflow::OpKernelContext* context, int index, const char* name) {
  return CheckScalar(context->input(index), name);
}

/// Returns an error unless the shape of `rows` is keys.shape + [dim].
inline absl::Status CheckRows(const tensorflow::Tensor& keys, const tensorflow::Tensor& rows,
                              int64_t dim, const char* name) {
  tensorflow::TensorShape wanted;
  TF_RETURN_IF_ERROR(RowsShape(keys, dim, &wanted));
  if (rows.shape() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have the shape keys.shape + [dim] = ", wanted.DebugString(),
                   ". Received: ", name, ".shape=", rows.shape().DebugString()));
}

/// Writes one value to output `index`.
template <typename T, typename Value>
absl::Status OutputScalar(tensorflow::OpKernelContext* context, int index, const Value& value) {
  tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(index, tensorflow::TensorShape({}), &output));
  output->scalar<T>()() = value;
  return absl::OkStatus();
}

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_TABLE_OP_H_
