// Kernels that read snapshot files into live tables.
#include <optional>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "de_core/cc/kernels/snapshot/snapshot_paths.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class RestoreOp final : public LiveTableOp {
 public:
  explicit RestoreOp(OpKernelConstruction* context) : LiveTableOp(context) {
    int64_t index = 0, count = 1;
    OP_REQUIRES_OK(context, context->GetAttr("replace", &options_.replace));
    OP_REQUIRES_OK(context, context->GetAttr("slots", &options_.slots));
    OP_REQUIRES_OK(context, context->GetAttr("convert", &options_.convert));
    OP_REQUIRES_OK(context, context->GetAttr("shard_index", &index));
    OP_REQUIRES_OK(context, context->GetAttr("shard_count", &count));
    if (context->HasAttr("chain")) {
      OP_REQUIRES_OK(context, context->GetAttr("chain", &options_.chain));
    }
    OP_REQUIRES(context, index >= 0 && index < count && count < (int64_t{1} << 31),
                absl::InvalidArgumentError(absl::StrCat(
                    "shard_index must be in [0, shard_count). Received: shard_index=", index,
                    ", shard_count=", count)));
    options_.shard_index = static_cast<uint32_t>(index);
    options_.shard_count = static_cast<uint32_t>(count);
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    const uint64_t begin = context->env()->NowMicros();
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(PathsOf(context, 1, &paths));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), paths, &files));
    const engine::SnapshotHeader& last = files.readers().back()->header();
    std::optional<KeyBatch> keys;
    TF_RETURN_IF_ERROR(ChosenKeys(context, table, &keys));
    engine::RestoreOptions options = options_;
    if (keys.has_value()) options.keys = &keys->keys();
    engine::RestoreReport report;
    options.int32_keys = table.key_dtype() == tensorflow::DT_INT32;
    PoolExecutor executor(context);
    TF_RETURN_IF_ERROR(
        files.Named(engine::RestoreTable(live, files.readers(), options, &executor, &report)));
    return OutputScalar<tensorflow::tstring>(
        context, 0,
        absl::StrCat("{\"rows\": ", live->size(), ", \"read\": ", report.read,
                     ", \"bytes\": ", report.bytes, ", \"id\": \"", engine::HexOf(last.id),
                     "\", \"sequence\": ", last.sequence, ", \"seconds\": ",
                     JsonNumber(1e-6 * static_cast<double>(context->env()->NowMicros() - begin)),
                     "}"));
  }

 private:
  engine::RestoreOptions options_;
};

DE_REGISTER_KERNEL("DeTableRestore", RestoreOp);
DE_REGISTER_KERNEL("DeTableRestoreKeys", RestoreOp);

}  // namespace
}  // namespace de::kernels
