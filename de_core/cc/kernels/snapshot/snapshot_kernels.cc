// Kernels that save live tables to snapshot files and manage chains of saves.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/save/table_save.h"
#include "de_core/cc/kernels/background/background_threads.h"
#include "de_core/cc/kernels/background/save_pace.h"
#include "de_core/cc/kernels/files/env_stream.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "de_core/cc/kernels/snapshot/snapshot_paths.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/random.h"

namespace de::kernels {
namespace {

using tensorflow::Env;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

constexpr size_t kMostThreads = 16;                       // per save
constexpr int kAttempts = 3;                              // per save
constexpr uint64_t kMostHeldBytes = uint64_t{256} << 20;  // copies of rows that change meanwhile

absl::Status StoredDType(const std::string& name, std::optional<engine::DType>* dtype) {
  dtype->reset();
  if (name.empty()) return absl::OkStatus();
  for (const engine::DType each : {engine::DType::kFloat32, engine::DType::kHalf,
                                   engine::DType::kBFloat16, engine::DType::kInt8}) {
    if (engine::NameOf(each) == name) *dtype = each;
  }
  if (dtype->has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "store_as must be '', 'float32', 'float16', 'bfloat16' or 'int8'. Received: store_as='", name,
      "'"));
}

class SaveOp final : public LiveTableOp {
 public:
  explicit SaveOp(OpKernelConstruction* context) : LiveTableOp(context) {
    std::vector<std::string> metadata, keep_slots, keep_at_least;
    std::string store_as;
    bool consistent = false;
    OP_REQUIRES_OK(context, context->GetAttr("values_only", &options_.values_only));
    OP_REQUIRES_OK(context, context->GetAttr("metadata", &metadata));
    OP_REQUIRES_OK(context, context->GetAttr("chain", &options_.chain));
    OP_REQUIRES_OK(context, context->GetAttr("delta", &options_.delta));
    OP_REQUIRES_OK(context, context->GetAttr("commit", &options_.commit));
    OP_REQUIRES_OK(context, context->GetAttr("consistent", &consistent));
    OP_REQUIRES_OK(context, context->GetAttr("store_as", &store_as));
    OP_REQUIRES_OK(context, context->GetAttr("of_checkpoint", &of_checkpoint_));
    OP_REQUIRES_OK(context, context->GetAttr("keep_slots", &keep_slots));
    OP_REQUIRES_OK(context, context->GetAttr("keep_at_least", &keep_at_least));
    OP_REQUIRES(
        context, metadata.size() % 2 == 0,
        absl::InvalidArgumentError(absl::StrCat(
            "metadata must alternate keys and values. Received: ", metadata.size(), " strings")));
    OP_REQUIRES(context, keep_slots.size() == 2 * keep_at_least.size(),
                absl::InvalidArgumentError(absl::StrCat(
                    "keep_slots must hold an owner and a name for each number of keep_at_least. "
                    "Received: ",
                    keep_slots.size(), " strings for ", keep_at_least.size(), " numbers")));
    OP_REQUIRES_OK(context, StoredDType(store_as, &options_.store_as));
    if (consistent) options_.held_bytes = kMostHeldBytes;
    for (size_t i = 0; i < metadata.size(); i += 2) {
      options_.metadata[metadata[i]] = metadata[i + 1];
    }
    for (size_t i = 0; i < keep_at_least.size(); ++i) {
      double least = 0;
      OP_REQUIRES(
          context, absl::SimpleAtod(keep_at_least[i], &least),
          absl::InvalidArgumentError(absl::StrCat(
              "keep_at_least must be decimal numbers. Received: '", keep_at_least[i], "'")));
      options_.keep.push_back({keep_slots[2 * i], keep_slots[2 * i + 1], least});
    }
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    std::string path;
    TF_RETURN_IF_ERROR(PathOf(context, 1, &path));
    std::optional<KeyBatch> keys;
    TF_RETURN_IF_ERROR(ChosenKeys(context, table, &keys));
    if (of_checkpoint_) RemoveOutdated(context->env(), path);
    const uint64_t begin = context->env()->NowMicros();
    const size_t cores = PoolExecutor(context).threads();
    BackgroundThreads executor(std::min(cores, kMostThreads));
    SavePace pace(cores);
    // A new optimizer adds slots, which changes the layout of the rows, and Clear removes all rows.
    // If either happens during the save, the save must start again. During the last attempt, such
    // changes wait for the save.
    absl::Status status;
    bool outdated = true;
    for (int attempt = 0; outdated && attempt < kAttempts; ++attempt) {
      engine::SaveOptions options = options_;
      if (keys.has_value()) options.keys = &keys->keys();
      options.undisturbed = attempt + 1 == kAttempts;
      if (attempt == 0)
        options.rest = [&pace] { return pace.Rest(); };  // later attempts never rest
      options.created_micros = static_cast<int64_t>(context->env()->NowMicros());
      for (size_t half = 0; half < 2; ++half) {
        const uint64_t random = tensorflow::random::New64();
        std::memcpy(options.id.data() + 8 * half, &random, sizeof(random));
      }
      std::string report;
      status = Save(context->env(), path, live, std::move(options), &executor, &outdated, &report);
      if (!status.ok()) continue;
      absl::StrAppend(&report, ", \"seconds\": ",
                      JsonNumber(1e-6 * static_cast<double>(context->env()->NowMicros() - begin)),
                      ", \"rested_seconds\": ", JsonNumber(pace.rested_seconds()), "}");
      return OutputScalar<tensorflow::tstring>(context, 0, report);
    }
    return status;
  }

 private:
  /// Deletes files that this op saved earlier and that belong to no TensorFlow checkpoint: files of
  /// a checkpoint that failed after this op ran, and of a checkpoint that was overwritten. Records
  /// `path`.
  void RemoveOutdated(Env* env, const std::string& path) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const std::string last = std::exchange(last_path_, path);
    if (last.empty()) return;
    const std::string prefix = PrefixOf(last);
    // Version 1 of TensorFlow's checkpoint format has a file named like the prefix.
    const int64_t index = std::max(ModifiedAt(env, prefix + ".index"), ModifiedAt(env, prefix));
    const int64_t rows = ModifiedAt(env, last);
    if (index < rows) {  // the checkpoint's index is missing or older: its last save failed
      env->DeleteFile(last).IgnoreError();
      return;
    }
    if (index > rows) {  // the last save completed the checkpoint
      for (const std::string& path : older_paths_) {
        if (PrefixOf(path) == prefix && path != last) env->DeleteFile(path).IgnoreError();
      }
      older_paths_.clear();
    }
    older_paths_.push_back(last);
  }

  static std::string PrefixOf(const std::string& path) {
    return path.substr(0, path.rfind(".data-"));
  }

  static absl::Status Save(Env* env, const std::string& path, engine::TableBackend* live,
                           engine::SaveOptions options, engine::Executor* executor, bool* outdated,
                           std::string* json) {
    *outdated = false;
    const engine::SnapshotId id = options.id;
    const bool converted = options.store_as.has_value();
    // Deltas bypass the page cache: there are many, a restore reads few of them, and a server reads
    // each delta once. Other files without slots are mapped by servers.
    const AtomicFile::Kind kind = options.delta         ? AtomicFile::Kind::kUncached
                                  : options.values_only ? AtomicFile::Kind::kMapped
                                                        : AtomicFile::Kind::kCached;
    std::unique_ptr<engine::TableSave> save;
    TF_RETURN_IF_ERROR(InFile(path, engine::TableSave::Begin(live, std::move(options), &save)));
    std::unique_ptr<AtomicFile> file;
    TF_RETURN_IF_ERROR(AtomicFile::Create(env, path, kind, &file));
    const absl::Status written = InFile(path, save->Write(file.get(), executor));
    *outdated = save->outdated();
    TF_RETURN_IF_ERROR(written);
    TF_RETURN_IF_ERROR(file->Commit());
    TF_RETURN_IF_ERROR(InFile(path, save->Done()));
    const engine::SaveReport& report = save->report();
    *json = absl::StrCat("{\"id\": \"", engine::HexOf(id), "\", \"parent\": \"",
                         engine::HexOf(report.parent), "\", \"sequence\": ", report.sequence,
                         ", \"rows\": ", report.rows, ", \"tombstones\": ", report.tombstones,
                         ", \"bytes\": ", report.bytes,
                         ", \"longest_hold_seconds\": ", JsonNumber(report.longest_hold),
                         ", \"copied_bytes\": ", report.held_peak);
    if (converted) {
      absl::StrAppend(json, ", \"max_error\": ", JsonNumber(report.error.max),
                      ", \"mean_error\": ", JsonNumber(report.error.mean()));
    }
    return absl::OkStatus();
  }

  engine::SaveOptions options_;
  bool of_checkpoint_ = false;
  std::mutex mutex_;
  std::string last_path_;
  std::vector<std::string> older_paths_;
};

class CommitSaveOp final : public LiveTableOp {
 public:
  explicit CommitSaveOp(OpKernelConstruction* context) : LiveTableOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("chain", &chain_));
  }

  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    TF_RETURN_IF_ERROR(CheckScalar(context, 1, "id"));
    const std::string text(context->input(1).scalar<tensorflow::tstring>()());
    engine::SnapshotId id;
    if (!engine::IdOf(text, &id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "id must be the 32 hexadecimal digits of a save's report. Received: id='", text, "'"));
    }
    return ToAbsl(live->chains().Commit(chain_, id));
  }

 private:
  std::string chain_;
};

class ChainsOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;

  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    std::string json;
    for (const auto& [chain, last, pending] : live->chains().entries()) {
      absl::StrAppend(
          &json, json.empty() ? "" : ", ", "{\"chain\": ", JsonText(chain),
          ", \"id\": ", last ? absl::StrCat("\"", engine::HexOf(last->id), "\"") : "null",
          ", \"sequence\": ", last ? last->sequence : 0, ", \"pending\": ",
          pending ? absl::StrCat("\"", engine::HexOf(pending->id), "\"") : "null", "}");
    }
    return OutputScalar<tensorflow::tstring>(
        context, 0,
        absl::StrCat("{\"chains\": [", json, "], \"bytes\": ", live->chains().bytes(), "}"));
  }
};

DE_REGISTER_KERNEL("DeTableSave", SaveOp);
DE_REGISTER_KERNEL("DeTableSaveKeys", SaveOp);
DE_REGISTER_KERNEL("DeTableCommitSave", CommitSaveOp);
DE_REGISTER_KERNEL("DeTableChains", ChainsOp);

}  // namespace
}  // namespace de::kernels
