// Kernels that write tables to files, read them back, and serve files as frozen tables.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/snapshot_reader.h"
#include "de_core/cc/engine/snapshot_writer.h"
#include "de_core/cc/kernels/env_stream.h"
#include "de_core/cc/kernels/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/random.h"

namespace de::kernels {
namespace {

using tensorflow::Env;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

absl::Status PathOf(OpKernelContext* context, std::string* path) {
  TF_RETURN_IF_ERROR(CheckScalar(context, 1, "path"));
  *path = std::string(context->input(1).scalar<tensorflow::tstring>()());
  if (path->empty()) {
    return absl::InvalidArgumentError("path must name a snapshot file. Received: ''");
  }
  return absl::OkStatus();
}

engine::SnapshotSection SectionOf(const engine::RowBatch& batch) {
  engine::SnapshotSection section;
  section.hash_begin = batch.hash_begin;
  section.hash_last = batch.hash_last;
  section.count = batch.size();
  section.words = batch.words.data();
  section.rows = batch.rows.data();
  if (!batch.keys.empty()) section.keys = batch.keys.data();
  if (!batch.values.empty()) section.values = batch.values.data();
  return section;
}

class SaveOp final : public LiveTableOp {
 public:
  explicit SaveOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("values_only", &values_only_));
    OP_REQUIRES_OK(context, context->GetAttr("metadata", &metadata_));
    OP_REQUIRES(
        context, metadata_.size() % 2 == 0,
        absl::InvalidArgumentError(absl::StrCat(
            "metadata must be keys and values in turn. Received: ", metadata_.size(), " strings")));
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::Table* live) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, &path));
    // An optimizer that meets the table for the first time widens its rows: begin again then.
    bool widened = true;
    for (int attempt = 0; widened && attempt < 3; ++attempt) {
      TF_RETURN_IF_ERROR(Save(context->env(), *live, path, &widened));
    }
    if (!widened) return absl::OkStatus();
    return absl::AbortedError(
        "optimizers kept adding slots to the table while it was saved; save again");
  }

 private:
  absl::Status Save(Env* env, const engine::Table& live, const std::string& path,
                    bool* widened) const {
    engine::SnapshotHeader header(live.layout());
    header.values_only = values_only_;
    header.initializer = live.initializer();
    header.created_micros = static_cast<int64_t>(env->NowMicros());
    for (size_t half = 0; half < 2; ++half) {
      const uint64_t random = tensorflow::random::New64();
      std::memcpy(header.id.data() + 8 * half, &random, sizeof(random));
    }
    for (size_t i = 0; i < metadata_.size(); i += 2)
      header.metadata[metadata_[i]] = metadata_[i + 1];
    const size_t stride = header.layout.stride();
    std::unique_ptr<AtomicFile> file;
    TF_RETURN_IF_ERROR(AtomicFile::Create(env, path, &file));
    std::unique_ptr<engine::SnapshotWriter> writer;
    TF_RETURN_IF_ERROR(InFile(path, engine::SnapshotWriter::Create(file.get(), header, &writer)));
    engine::RowBatch batch;
    for (engine::ExportCursor cursor; !cursor.done;) {
      TF_RETURN_IF_ERROR(ToAbsl(live.ExportBatch(&cursor, &batch)));
      if (batch.size() * stride != batch.rows.size()) return absl::OkStatus();
      TF_RETURN_IF_ERROR(InFile(path, writer->Append(SectionOf(batch))));
    }
    *widened = false;
    TF_RETURN_IF_ERROR(InFile(path, writer->Finish()));
    return file->Commit();
  }

  bool values_only_ = false;
  std::vector<std::string> metadata_;
};

class RestoreOp final : public LiveTableOp {
 public:
  explicit RestoreOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("replace", &replace_));
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::Table* live) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, &path));
    PoolExecutor executor(context);
    return Restore(context->env(), path, live, &executor);
  }

 private:
  absl::Status Restore(Env* env, const std::string& path, engine::Table* live,
                       engine::Executor* executor) const {
    std::unique_ptr<FileSource> source;
    TF_RETURN_IF_ERROR(FileSource::Open(env, path, &source));
    // Every byte is checked before the first row changes.
    std::unique_ptr<engine::SnapshotReader> reader;
    TF_RETURN_IF_ERROR(InFile(
        path, engine::SnapshotReader::Open(source.get(), engine::SnapshotVerify::kFull, &reader)));
    const engine::RowLayout& layout = reader->header().layout;
    TF_RETURN_IF_ERROR(
        InFile(path, live->LoadRows(layout, engine::Keys{}, engine::Values{}, executor)));
    for (const engine::RowSlot& slot : layout.slots()) {
      TF_RETURN_IF_ERROR(InFile(path, live->EnsureSlots(slot.owner, {slot.spec})));
    }
    if (replace_) {
      TF_RETURN_IF_ERROR(InFile(path, live->SetInitializer(reader->header().initializer)));
      TF_RETURN_IF_ERROR(ToAbsl(live->Clear()));
    }
    if (live->size() < reader->rows()) TF_RETURN_IF_ERROR(ToAbsl(live->Reserve(reader->rows())));
    engine::SectionBuffer buffer;
    for (size_t i = 0; i < reader->sections().size(); ++i) {
      TF_RETURN_IF_ERROR(InFile(path, reader->ReadSection(i, &buffer)));
      const engine::SnapshotSection& section = buffer.section;
      engine::Keys keys;
      keys.size = section.count;
      if (layout.key_type() == engine::KeyType::kString) {
        keys.strings = section.keys;
      } else {
        keys.ints = reinterpret_cast<const int64_t*>(section.words);
      }
      TF_RETURN_IF_ERROR(
          InFile(path, live->LoadRows(layout, keys, {section.rows, section.values}, executor)));
    }
    return absl::OkStatus();
  }

  bool replace_ = true;
};

class FrozenTableOpenOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    tensorflow::core::RefCountPtr<TableResource> table;
    OP_REQUIRES_OK(context, TableOf(context, &table));
    std::string path;
    OP_REQUIRES_OK(context, PathOf(context, &path));
    std::shared_ptr<const FrozenFile> file;
    OP_REQUIRES_OK(context, FrozenFile::Open(context->env(), path, &file));
    const engine::RowLayout& layout = file->header().layout;
    OP_REQUIRES(context, layout.key_type() == KeyTypeOf(table->key_dtype()),
                absl::InvalidArgumentError(
                    absl::StrCat(path, ": the file's keys must be of the table's type, ",
                                 tensorflow::DataTypeString(table->key_dtype()),
                                 ". Received: ", engine::NameOf(layout.key_type()))));
    const absl::Status fits =
        table->CheckValues(ToTensorFlow(layout.value_dtype()), static_cast<int64_t>(layout.dim()));
    OP_REQUIRES(context, fits.ok(),
                absl::InvalidArgumentError(absl::StrCat(path, ": ", fits.message())));
    table->OpenFrozen(std::move(file));
  }
};

class FrozenTableCloseOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    const tensorflow::ResourceHandle& handle = tensorflow::HandleFromInput(context, 0);
    tensorflow::core::RefCountPtr<TableResource> table;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, handle, &table));
    if (table->CloseFrozen()) {
      OP_REQUIRES_OK(context, tensorflow::DeleteResource(context, handle));
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("DeTableSave").Device(tensorflow::DEVICE_CPU), SaveOp);
REGISTER_KERNEL_BUILDER(Name("DeTableRestore").Device(tensorflow::DEVICE_CPU), RestoreOp);
REGISTER_KERNEL_BUILDER(Name("DeFrozenTableOpen").Device(tensorflow::DEVICE_CPU),
                        FrozenTableOpenOp);
REGISTER_KERNEL_BUILDER(Name("DeFrozenTableClose").Device(tensorflow::DEVICE_CPU),
                        FrozenTableCloseOp);

}  // namespace
}  // namespace de::kernels
