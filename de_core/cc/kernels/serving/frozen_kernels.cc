// Kernels that serve snapshot files as read-only tables.
#include "de_core/cc/kernels/snapshot/snapshot_paths.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelContext;

class FrozenTableOpenOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(PathsOf(context, 1, &paths));
    std::shared_ptr<const FrozenFile> file;
    PoolExecutor executor(context);
    TF_RETURN_IF_ERROR(FrozenFile::Open(context->env(), paths, &executor, &file));
    TF_RETURN_IF_ERROR(CheckServes(*table, paths[0], file->header()));
    table->OpenFrozen(std::move(file));
    return absl::OkStatus();
  }
};

class FrozenTableCloseOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    if (!table->CloseFrozen()) return absl::OkStatus();
    auto* manager = context->resource_manager();
    const std::string& container =
        table->container().empty() ? manager->default_container() : table->container();
    return manager->Delete<TableResource>(container, table->name());
  }
};

DE_REGISTER_KERNEL("DeFrozenTableOpen", FrozenTableOpenOp);
DE_REGISTER_KERNEL("DeFrozenTableClose", FrozenTableCloseOp);

}  // namespace
}  // namespace de::kernels
