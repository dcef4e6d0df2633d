// Kernels that serve snapshot files as read-only tables, and describe these tables.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "de_core/cc/engine/policy/oov_policy.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "de_core/cc/kernels/snapshot/snapshot_paths.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
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
    const engine::SnapshotHeader& header = file->header();
    if (header.layout.key_type() != KeyTypeOf(table->key_dtype())) {
      return absl::InvalidArgumentError(
          absl::StrCat(paths[0], ": the file's keys must be of the table's type, ",
                       tensorflow::DataTypeString(table->key_dtype()),
                       ". Received: ", engine::NameOf(header.layout.key_type())));
    }
    const absl::Status fits = table->CheckValues(ToTensorFlow(header.reads_as()),
                                                 static_cast<int64_t>(header.layout.dim()));
    if (!fits.ok()) return absl::InvalidArgumentError(absl::StrCat(paths[0], ": ", fits.message()));
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

std::string TimeOf(int64_t micros) {
  return absl::FormatTime(absl::RFC3339_sec, absl::FromUnixMicros(micros), absl::UTCTimeZone());
}

/// By FrozenFile::Health.
constexpr const char* kHealth[] = {"unchecked", "intact", "damaged"};

/// Returns the policy for unknown ids, as fields of a JSON object.
absl::Status OovFields(const engine::SnapshotHeader& header, std::string* json) {
  engine::OovPolicy oov;
  TF_RETURN_IF_ERROR(ToAbsl(engine::OovPolicy::Load(header.metadata, &oov)));
  *json = absl::StrCat("\"oov\": \"", engine::NameOf(oov.kind), "\"");
  if (oov.kind == engine::OovPolicy::Kind::kConstant) {
    const bool text = header.reads_as() == engine::DType::kString;
    absl::StrAppend(json, ", \"oov_value\": ", text ? JsonText(oov.value) : oov.value);
  }
  if (oov.kind == engine::OovPolicy::Kind::kRow) {
    if (header.reads_as() != engine::DType::kFloat32) {
      absl::StrAppend(json, ", \"oov_value\": ", JsonText(oov.value));
      return absl::OkStatus();
    }
    std::vector<float> row(oov.value.size() / sizeof(float));
    if (!row.empty()) std::memcpy(row.data(), oov.value.data(), row.size() * sizeof(float));
    const auto number = [](std::string* out, float each) { *out += JsonNumber(each); };
    absl::StrAppend(json, ", \"oov_value\": [", absl::StrJoin(row, ", ", number), "]");
  }
  return absl::OkStatus();
}

class ServingStatsOp final : public GuardedOp {
 public:
  explicit ServingStatsOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tables", &names_));
    OP_REQUIRES(context, names_.size() == static_cast<size_t>(context->num_inputs()),
                absl::InvalidArgumentError(absl::StrCat(
                    "tables must hold one name for each handle. Received: ", names_.size(), " for ",
                    context->num_inputs())));
  }

  absl::Status Execute(OpKernelContext* context) override {
    std::vector<std::string> tables;
    for (size_t begin = 0; begin < names_.size();) {
      size_t end = begin + 1;
      while (end < names_.size() && names_[end] == names_[begin]) ++end;
      TF_RETURN_IF_ERROR(Describe(context, begin, end, &tables.emplace_back()));
      begin = end;
    }
    return OutputScalar<tensorflow::tstring>(context, 0,
                                             absl::StrCat("[", absl::StrJoin(tables, ", "), "]"));
  }

 private:
  /// Describes the table whose parts are the handles [begin, end).
  absl::Status Describe(OpKernelContext* context, size_t begin, size_t end,
                        std::string* json) const {
    std::shared_ptr<const FrozenFile> file;
    int64_t rows = 0, created = 0;
    uint64_t bytes = 0, checked = 0, read = 0;
    auto health = FrozenFile::Health::kIntact;
    std::string damage;
    size_t deltas = 0;
    std::vector<std::string> files;
    std::string types;
    for (size_t i = begin; i < end; ++i) {
      tensorflow::core::RefCountPtr<TableResource> table;
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(
          context, tensorflow::HandleFromInput(context, static_cast<int>(i)), &table));
      TF_RETURN_IF_ERROR(table->Frozen(&file));
      int64_t own = 0;
      FrozenFile::Health own_health = file->health();
      absl::Status wrong = file->Rows(&own);  // may find damage before the background check does
      if (own_health == FrozenFile::Health::kDamaged) wrong = file->damage();
      if (absl::IsDataLoss(wrong)) {
        own_health = FrozenFile::Health::kDamaged;
        damage = wrong.message();
      } else {
        TF_RETURN_IF_ERROR(wrong);
      }
      if (health != FrozenFile::Health::kDamaged && own_health != FrozenFile::Health::kIntact) {
        health = own_health;
      }
      checked += file->checked_bytes();
      read += file->read_bytes();
      rows += own;
      bytes += file->file_bytes();
      deltas = std::max(deltas, file->deltas());
      created = std::max(created, file->header().created_micros);
      for (const std::string& name : file->names()) files.push_back(JsonText(name));
      types = absl::StrCat("\"dim\": ", table->dim(), ", \"key_dtype\": \"",
                           tensorflow::DataTypeString(table->key_dtype()), "\"");
    }
    const engine::SnapshotHeader& last = file->header();
    std::string oov;
    TF_RETURN_IF_ERROR(OovFields(last, &oov));
    *json = absl::StrCat(
        "{\"table\": ", JsonText(names_[begin]), ", \"rows\": ", rows, ", ", types,
        ", \"value_dtype\": \"", engine::NameOf(last.reads_as()), "\", \"stored_as\": \"",
        engine::NameOf(last.layout.value_dtype()), "\", \"bytes\": ", bytes, ", ", oov,
        ", \"base\": \"", engine::HexOf(file->base().id), "\", \"base_created\": \"",
        TimeOf(file->base().created_micros), "\", \"generation\": ", last.sequence,
        ", \"deltas\": ", deltas, ", \"id\": \"", engine::HexOf(last.id), "\", \"created\": \"",
        TimeOf(created), "\", \"created_micros\": ", created, ", \"file\": ",
        files.size() == 1 ? files[0] : absl::StrCat("[", absl::StrJoin(files, ", "), "]"),
        ", \"health\": \"", kHealth[static_cast<size_t>(health)],
        "\", \"checked_bytes\": ", checked, ", \"read_bytes\": ", read,
        damage.empty() ? "" : absl::StrCat(", \"damage\": ", JsonText(damage)), "}");
    return absl::OkStatus();
  }

  std::vector<std::string> names_;
};

DE_REGISTER_KERNEL("DeFrozenTableOpen", FrozenTableOpenOp);
DE_REGISTER_KERNEL("DeFrozenTableClose", FrozenTableCloseOp);
DE_REGISTER_KERNEL("DeServingStats", ServingStatsOp);

}  // namespace
}  // namespace de::kernels
