// Kernels that read snapshot files without a table.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/rows/value_reader.h"
#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/engine/snapshot/snapshot_compact.h"
#include "de_core/cc/kernels/background/background_threads.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "de_core/cc/kernels/snapshot/snapshot_paths.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

class InfoOp final : public GuardedOp {
 public:
  explicit InfoOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("verify", &verify_));
    OP_REQUIRES_OK(context, context->GetAttr("own", &own_));
  }

  absl::Status Execute(OpKernelContext* context) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, 0, &path));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), {path}, &files));
    const engine::SnapshotReader& reader = *files.readers()[0];
    if (verify_) {
      PoolExecutor executor(context);
      TF_RETURN_IF_ERROR(files.Named(engine::VerifySections(reader, &executor)));
    }
    return OutputScalar<tstring>(context, 0, InfoJson(reader, own_));
  }

 private:
  bool verify_ = false;
  bool own_ = false;
};

/// Reads the range of sections [first, end) from the inputs `first` and `count`.
absl::Status SectionsOf(OpKernelContext* context, const engine::SnapshotReader& reader,
                        size_t* first, size_t* end) {
  TF_RETURN_IF_ERROR(CheckScalar(context, 1, "first"));
  TF_RETURN_IF_ERROR(CheckScalar(context, 2, "count"));
  const int64_t begin = context->input(1).scalar<int64_t>()();
  const int64_t count = context->input(2).scalar<int64_t>()();
  const auto sections = static_cast<int64_t>(reader.sections().size());
  if (begin < 0 || count < 1 || begin >= sections || count > sections - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("first and count must name sections of the file, which has ", sections,
                     ". Received: first=", begin, ", count=", count));
  }
  *first = static_cast<size_t>(begin);
  *end = static_cast<size_t>(begin + count);
  return absl::OkStatus();
}

class ReadOp final : public GuardedOp {
 public:
  explicit ReadOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key_dtype", &key_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("value_dtype", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("with_values", &with_values_));
  }

  absl::Status Execute(OpKernelContext* context) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, 0, &path));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), {path}, &files));
    return Read(context, path, *files.readers()[0]);
  }

 private:
  struct Outputs {
    Tensor* keys = nullptr;
    Tensor* deleted = nullptr;
    Tensor* values = nullptr;
    Tensor* slots = nullptr;
  };

  absl::Status Read(OpKernelContext* context, const std::string& path,
                    const engine::SnapshotReader& reader) const {
    const engine::SnapshotHeader& header = reader.header();
    const engine::RowLayout& layout = header.layout;
    if (KeyTypeOf(key_dtype_) != layout.key_type() ||
        ToTensorFlow(header.reads_as()) != value_dtype_) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": key_dtype and value_dtype must be the file's, ",
          engine::NameOf(layout.key_type()), " and ", engine::NameOf(header.reads_as()),
          ". Received: ", tensorflow::DataTypeString(key_dtype_), " and ",
          tensorflow::DataTypeString(value_dtype_)));
    }
    size_t first = 0, end = 0;
    TF_RETURN_IF_ERROR(SectionsOf(context, reader, &first, &end));
    int64_t entries = 0;
    for (size_t i = first; i < end; ++i) {
      entries += int64_t{reader.sections()[i].count} + reader.sections()[i].tombstones;
    }
    const int64_t rows = with_values_ ? entries : 0;
    const int64_t dim = with_values_ ? static_cast<int64_t>(layout.dim()) : 0;
    const size_t row_end =
        layout.key_type() == engine::KeyType::kString ? layout.key_offset() : layout.stride();
    const size_t slot_bytes = with_values_ ? row_end - layout.value_bytes() : 0;
    Outputs out;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({entries}), &out.keys));
    TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({entries}), &out.deleted));
    TF_RETURN_IF_ERROR(context->allocate_output(2, TensorShape({rows, dim}), &out.values));
    TF_RETURN_IF_ERROR(context->allocate_output(
        3, TensorShape({rows, static_cast<int64_t>(slot_bytes)}), &out.slots));
    engine::SectionBuffer buffer;
    int64_t at = 0;
    for (size_t i = first; i < end; ++i) {
      TF_RETURN_IF_ERROR(InFile(path, reader.ReadSection(i, &buffer)));
      if (key_dtype_ == tensorflow::DT_INT32) {
        TF_RETURN_IF_ERROR(InFile(path, engine::CheckInt32Keys(buffer.section)));
      }
      PutKeys(buffer, at, out);
      if (with_values_) PutRows(header, buffer.section, at, slot_bytes, out);
      at += static_cast<int64_t>(buffer.section.count + buffer.section.tombstones);
    }
    return absl::OkStatus();
  }

  void PutKeys(const engine::SectionBuffer& buffer, int64_t at, const Outputs& out) const {
    for (size_t i = 0; i < buffer.words.size(); ++i) {
      const int64_t to = at + static_cast<int64_t>(i);
      out.deleted->flat<bool>()(to) = i >= buffer.section.count;
      if (key_dtype_ == tensorflow::DT_STRING) {
        out.keys->flat<tstring>()(to) = tstring(buffer.keys[i].data(), buffer.keys[i].size());
      } else if (key_dtype_ == tensorflow::DT_INT32) {
        out.keys->flat<int32_t>()(to) = static_cast<int32_t>(buffer.words[i]);
      } else {
        out.keys->flat<int64_t>()(to) = static_cast<int64_t>(buffer.words[i]);
      }
    }
  }

  void PutRows(const engine::SnapshotHeader& header, const engine::SnapshotSection& section,
               int64_t at, size_t slot_bytes, const Outputs& out) const {
    const engine::RowLayout& layout = header.layout;
    const size_t dim = layout.dim();
    char* const slots =
        reinterpret_cast<char*>(out.slots->data()) + static_cast<size_t>(at) * slot_bytes;
    if (slot_bytes > 0) {
      std::memset(slots, 0, (section.count + section.tombstones) * slot_bytes);
      for (size_t i = 0; i < section.count; ++i) {
        std::memcpy(slots + i * slot_bytes,
                    section.rows + i * layout.stride() + layout.value_bytes(), slot_bytes);
      }
    }
    if (value_dtype_ == tensorflow::DT_STRING) {
      auto values = out.values->flat<tstring>();
      for (size_t i = 0; i < section.count * dim; ++i) {
        values(at * static_cast<int64_t>(dim) + static_cast<int64_t>(i)) =
            tstring(section.values[i].data(), section.values[i].size());
      }
      return;
    }
    const engine::ValueReader reader = engine::ReaderOf(layout.value_dtype(), header.reads_as());
    const engine::RowSlot* scale = layout.FindSlot(engine::kScaleOwner, engine::kScaleName);
    const size_t bytes = dim * engine::SizeOf(header.reads_as());
    char* const values =
        reinterpret_cast<char*>(out.values->data()) + static_cast<size_t>(at) * bytes;
    for (size_t i = 0; i < section.count; ++i) {
      const char* row = section.rows + i * layout.stride();
      float factor = 1.0F;
      if (scale != nullptr) std::memcpy(&factor, row + scale->offset, sizeof(factor));
      reader.values(row, factor, dim, values + i * bytes);
    }
    std::memset(values + section.count * bytes, 0, section.tombstones * bytes);
  }

  tensorflow::DataType key_dtype_ = tensorflow::DT_INT64;
  tensorflow::DataType value_dtype_ = tensorflow::DT_FLOAT;
  bool with_values_ = true;
};

class CompactOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

  absl::Status Execute(OpKernelContext* context) override {
    // Run on a thread of low priority: no training step waits for this op.
    absl::Status status;
    BackgroundThreads thread(1);
    thread.Run(2, [&](size_t number) {
      if (number == 1) status = GuardedKernel([&] { return Compact(context); });
    });
    return status;
  }

 private:
  static absl::Status Compact(OpKernelContext* context) {
    const uint64_t begin = context->env()->NowMicros();
    std::vector<std::string> paths;
    TF_RETURN_IF_ERROR(PathsOf(context, 0, &paths));
    std::string target;
    TF_RETURN_IF_ERROR(PathOf(context, 1, &target));
    SnapshotFiles files;
    TF_RETURN_IF_ERROR(SnapshotFiles::Open(context->env(), paths, &files));
    std::unique_ptr<AtomicFile> file;
    const bool is_delta = !files.readers().empty() &&
                          files.readers()[0]->header().kind == engine::SnapshotKind::kDelta;
    TF_RETURN_IF_ERROR(AtomicFile::Create(
        context->env(), target, is_delta ? AtomicFile::Kind::kUncached : AtomicFile::Kind::kCached,
        &file));
    engine::CompactReport report;
    TF_RETURN_IF_ERROR(files.Named(engine::CompactSnapshots(files.readers(), file.get(), &report)));
    TF_RETURN_IF_ERROR(file->Commit());
    const engine::SnapshotHeader& last = files.readers().back()->header();
    return OutputScalar<tstring>(
        context, 0,
        absl::StrCat("{\"id\": \"", engine::HexOf(last.id), "\", \"sequence\": ", last.sequence,
                     ", \"rows\": ", report.rows, ", \"tombstones\": ", report.tombstones,
                     ", \"bytes\": ", report.bytes, ", \"seconds\": ",
                     JsonNumber(1e-6 * static_cast<double>(context->env()->NowMicros() - begin)),
                     "}"));
  }
};

DE_REGISTER_KERNEL("DeSnapshotCompact", CompactOp);
DE_REGISTER_KERNEL("DeSnapshotInfo", InfoOp);
DE_REGISTER_KERNEL("DeSnapshotRead", ReadOp);

}  // namespace
}  // namespace de::kernels
