// Kernels that read snapshot files into live tables.
#include <optional>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/table_restore.h"
#include "de_core/cc/kernels/snapshot_json.h"
#include "de_core/cc/kernels/snapshot_paths.h"
#include "de_core/cc/kernels/table_op.h"
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
                       engine::Table* live) override {
    const uint64_t begin = context->env()->NowMicros();
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(PathsOf(context, 1, &paths));
    std::optional<KeyBatch> keys;
    TF_RETURN_IF_ERROR(ChosenKeys(context, table, &keys));
    engine::RestoreOptions options = options_;
    if (keys.has_value()) options.keys = &keys->keys();
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), paths, &files));
    PoolExecutor executor(context);
    engine::RestoreReport report;
    TF_RETURN_IF_ERROR(
        files.Named(engine::RestoreTable(live, files.readers(), options, &executor, &report)));
    const engine::SnapshotHeader& last = files.readers().back()->header();
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

class RestorePartOp final : public LiveTableOp {
 public:
  explicit RestorePartOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("slots", &slots_));
    OP_REQUIRES_OK(context, context->GetAttr("convert", &convert_));
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::Table* live) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, 1, &path));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), {path}, &files));
    const engine::SnapshotReader& reader = *files.readers()[0];
    size_t first = 0, end = 0;
    TF_RETURN_IF_ERROR(SectionsOf(context, 2, reader, &first, &end));
    uint64_t entries = 0;
    for (size_t i = first; i < end; ++i) {
      entries += uint64_t{reader.sections()[i].count} + reader.sections()[i].tombstones;
    }
    const tensorflow::Tensor& mask = context->input(4);
    if (mask.dims() != 1 || static_cast<uint64_t>(mask.NumElements()) != entries) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mask must have one element for each of the ", entries,
          " rows and tombstones of the sections. Received: shape=", mask.shape().DebugString()));
    }
    engine::SectionLoader loader;
    TF_RETURN_IF_ERROR(InFile(
        path, engine::SectionLoader::Create(live, reader.header(), slots_, convert_, &loader)));
    // All of them, before the first row changes.
    engine::SectionBuffer buffer;
    for (size_t i = first; i < end; ++i) {
      TF_RETURN_IF_ERROR(InFile(path, reader.ReadSection(i, &buffer)));
    }
    for (const engine::RowSlot& slot : reader.header().layout.slots()) {
      if (!slots_ || slot.owner == engine::kScaleOwner) continue;
      TF_RETURN_IF_ERROR(InFile(path, live->EnsureSlots(slot.owner, {slot.spec})));
    }
    const bool* next = mask.flat<bool>().data();
    for (size_t i = first; i < end; ++i) {
      TF_RETURN_IF_ERROR(InFile(path, reader.ReadSection(i, &buffer)));
      const size_t size = buffer.section.count + buffer.section.tombstones;
      const std::vector<bool> chosen(next, next + size);
      next += size;
      TF_RETURN_IF_ERROR(InFile(path, loader.Load(buffer.section, &chosen)));
    }
    return absl::OkStatus();
  }

 private:
  bool slots_ = true;
  bool convert_ = false;
};

REGISTER_KERNEL_BUILDER(Name("DeTableRestore").Device(tensorflow::DEVICE_CPU), RestoreOp);
REGISTER_KERNEL_BUILDER(Name("DeTableRestoreKeys").Device(tensorflow::DEVICE_CPU), RestoreOp);
REGISTER_KERNEL_BUILDER(Name("DeTableRestorePart").Device(tensorflow::DEVICE_CPU), RestorePartOp);

}  // namespace
}  // namespace de::kernels
