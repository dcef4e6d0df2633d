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

/// Returns the file of shard `index` if the files are bases and divide the keys by hash among
/// `count` shards. Returns nullptr otherwise.
const engine::SnapshotReader* OwnFile(const SnapshotFiles& files, uint32_t index, uint32_t count,
                                      size_t* at) {
  if (files.readers().size() != count) return nullptr;
  const engine::SnapshotReader* own = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const engine::SnapshotHeader& header = files.readers()[i]->header();
    const auto partition = header.metadata.find("partition");
    const auto shard = header.metadata.find("shard");
    if (header.kind != engine::SnapshotKind::kBase || partition == header.metadata.end() ||
        partition->second != "hash" || shard == header.metadata.end()) {
      return nullptr;
    }
    if (shard->second != absl::StrCat(index, "/", count)) continue;
    own = files.readers()[i];
    *at = i;
  }
  return own;
}

class RestoreOp final : public TableOp {
 public:
  explicit RestoreOp(OpKernelConstruction* context) : TableOp(context) {
    int64_t index = 0, count = 1;
    OP_REQUIRES_OK(context, context->GetAttr("replace", &options_.replace));
    OP_REQUIRES_OK(context, context->GetAttr("slots", &options_.slots));
    OP_REQUIRES_OK(context, context->GetAttr("convert", &options_.convert));
    OP_REQUIRES_OK(context, context->GetAttr("shard_index", &index));
    OP_REQUIRES_OK(context, context->GetAttr("shard_count", &count));
    if (context->HasAttr("chain")) {
      OP_REQUIRES_OK(context, context->GetAttr("chain", &options_.chain));
    }
    if (context->HasAttr("map")) OP_REQUIRES_OK(context, context->GetAttr("map", &map_));
    OP_REQUIRES(context, index >= 0 && index < count && count < (int64_t{1} << 31),
                absl::InvalidArgumentError(absl::StrCat(
                    "shard_index must be in [0, shard_count). Received: shard_index=", index,
                    ", shard_count=", count)));
    options_.shard_index = static_cast<uint32_t>(index);
    options_.shard_count = static_cast<uint32_t>(count);
  }

  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    const uint64_t begin = context->env()->NowMicros();
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(PathsOf(context, 1, &paths));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), paths, &files));
    const engine::SnapshotHeader& last = files.readers().back()->header();
    engine::RestoreReport report;
    int64_t rows = 0;
    bool mapped = false;
    if (map_) TF_RETURN_IF_ERROR(Map(context, table, paths, files, &mapped));
    if (mapped) {
      TF_RETURN_IF_ERROR(table->Size(&rows));
    } else {
      std::shared_ptr<engine::TableBackend> live;
      TF_RETURN_IF_ERROR(table->Live(&live));
      std::optional<KeyBatch> keys;
      TF_RETURN_IF_ERROR(ChosenKeys(context, *table, &keys));
      engine::RestoreOptions options = options_;
      if (keys.has_value()) options.keys = &keys->keys();
      options.int32_keys = table->key_dtype() == tensorflow::DT_INT32;
      PoolExecutor executor(context);
      TF_RETURN_IF_ERROR(files.Named(
          engine::RestoreTable(live.get(), files.readers(), options, &executor, &report)));
      rows = static_cast<int64_t>(live->size());
    }
    return OutputScalar<tensorflow::tstring>(
        context, 0,
        absl::StrCat("{\"rows\": ", rows, ", \"read\": ", report.read,
                     ", \"bytes\": ", report.bytes, ", \"id\": \"", engine::HexOf(last.id),
                     "\", \"sequence\": ", last.sequence, ", \"seconds\": ",
                     JsonNumber(1e-6 * static_cast<double>(context->env()->NowMicros() - begin)),
                     "}"));
  }

 private:
  /// Makes the table answer reads from its own file, if `files` contains it and it can be mapped.
  absl::Status Map(OpKernelContext* context, TableResource* table,
                   const std::vector<std::string>& paths, const SnapshotFiles& files,
                   bool* mapped) const {
    size_t at = 0;
    const engine::SnapshotReader* const own =
        OwnFile(files, options_.shard_index, options_.shard_count, &at);
    if (own == nullptr) return absl::OkStatus();
    // Without this mark, the caller checks that every key is in int32.
    const auto& metadata = own->header().metadata;
    const auto mark = metadata.find("keys");
    const bool int32_keys = mark != metadata.end() && mark->second == "int32";
    if (table->key_dtype() == tensorflow::DT_INT32 && !int32_keys) return absl::OkStatus();
    TF_RETURN_IF_ERROR(CheckServes(*table, paths[at], own->header()));
    std::shared_ptr<const FrozenFile> file;
    PoolExecutor executor(context);
    const absl::Status opened = FrozenFile::Open(context->env(), {paths[at]}, &executor, &file);
    if (absl::IsUnimplemented(opened))
      return absl::OkStatus();  // a file of a remote file system cannot be mapped
    TF_RETURN_IF_ERROR(opened);
    table->ServeUntilLive(
        std::move(file),
        [path = paths[at], options = options_,
         pool = context->device()->tensorflow_cpu_worker_threads()->workers](
            engine::TableBackend* live) -> absl::Status {
          SnapshotFiles own_file;
          TF_RETURN_IF_ERROR(SnapshotFiles::Open(tensorflow::Env::Default(), {path}, &own_file));
          engine::RestoreOptions whole = options;
          whole.shard_index = 0;
          whole.shard_count = 1;
          engine::RestoreReport report;
          PoolExecutor executor(pool);
          return own_file.Named(
              engine::RestoreTable(live, own_file.readers(), whole, &executor, &report));
        });
    *mapped = true;
    return absl::OkStatus();
  }

  engine::RestoreOptions options_;
  bool map_ = false;
};

DE_REGISTER_KERNEL("DeTableRestore", RestoreOp);
DE_REGISTER_KERNEL("DeTableRestoreKeys", RestoreOp);

}  // namespace
}  // namespace de::kernels
