// Kernels that create a table and describe it.
#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/refcount.h"

namespace de::kernels {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using Kind = engine::InitializerOptions::Kind;

struct KindEntry {
  const char* name;
  Kind kind;
  size_t args;
};
constexpr KindEntry kKinds[] = {
    {"zeros", Kind::kZeros, 0},
    {"constant", Kind::kConstant, 1},
    {"uniform", Kind::kUniform, 2},
    {"normal", Kind::kNormal, 2},
    {"truncated_normal", Kind::kTruncatedNormal, 2},
    {"row", Kind::kRow, 0},
    {"quantile", Kind::kQuantile, 0},
};

absl::Status ReadInitializer(OpKernelConstruction* context, engine::InitializerOptions* out) {
  std::string name;
  std::vector<float> args;
  int64_t seed = 0;
  std::vector<float> table;
  TF_RETURN_IF_ERROR(context->GetAttr("initializer", &name));
  TF_RETURN_IF_ERROR(context->GetAttr("init_args", &args));
  TF_RETURN_IF_ERROR(context->GetAttr("init_seed", &seed));
  TF_RETURN_IF_ERROR(context->GetAttr("init_table", &table));
  for (const KindEntry& entry : kKinds) {
    if (name != entry.name) continue;
    if (args.size() != entry.args) {
      return absl::InvalidArgumentError(absl::StrCat("initializer '", name, "' takes ", entry.args,
                                                     " init_args. Received: ", args.size()));
    }
    out->kind = entry.kind;
    if (!args.empty()) out->a = args[0];
    if (args.size() > 1) out->b = args[1];
    out->seed = static_cast<uint64_t>(seed);
    out->table = std::move(table);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("initializer must be zeros, constant, uniform, normal, truncated_normal, row or "
                   "quantile. Received: '",
                   name, "'"));
}

using Known = std::pair<std::string, tensorflow::core::WeakPtr<TableResource>>;
using Held = std::pair<std::string, tensorflow::core::RefCountPtr<TableResource>>;

/// The live tables of this process, for the statistics of a parameter server, whatever session,
/// function or cluster created them.
struct Registry {
  std::mutex mutex;
  std::vector<Known> tables;

  /// Returns the tables that still exist, and forgets the others.
  std::vector<Held> Living() {
    const std::lock_guard<std::mutex> guard(mutex);
    std::vector<Held> living;
    for (const Known& each : tables) {
      auto held = each.second.GetNewRef();
      if (held != nullptr) living.emplace_back(each.first, std::move(held));
    }
    // Nothing throws from here on. An exception in between would leave names that were moved away.
    const auto gone = [](const Known& each) { return each.second.GetNewRef() == nullptr; };
    tables.erase(std::remove_if(tables.begin(), tables.end(), gone), tables.end());
    return living;
  }
};

/// Never destroyed: tables may outlive static objects.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

/// Adds a table to the list. The list does not keep the table alive.
void NoteLiveTable(const std::string& name, TableResource* table) {
  Registry& registry = TheRegistry();
  registry.Living();  // otherwise freed tables would accumulate
  const std::lock_guard<std::mutex> guard(registry.mutex);
  registry.tables.emplace_back(name, tensorflow::core::WeakPtr<TableResource>(table));
}

/// Creates or finds a TableResource and outputs its handle.
class HandleOp : public GuardedOp {
 public:
  explicit HandleOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &shared_name_));
    OP_REQUIRES_OK(context, context->GetAttr("key_dtype", &key_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("value_dtype", &value_dtype_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
    if (shared_name_.empty()) shared_name_ = name();
  }

  absl::Status Execute(OpKernelContext* context) override {
    Tensor* handle = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, tensorflow::TensorShape({}), &handle));
    if (anonymous_) {
      Owned made;
      TF_RETURN_IF_ERROR(Make(&made));
      handle->scalar<ResourceHandle>()() =
          ResourceHandle::MakeRefCountingHandle(made.release(), context->device()->name());
      return absl::OkStatus();
    }
    auto* manager = context->resource_manager();
    const std::string& container = container_.empty() ? manager->default_container() : container_;
    // TensorFlow's resource manager calls this function and does not handle exceptions.
    const auto make = [this](TableResource** table) {
      Owned made;
      TF_RETURN_IF_ERROR(GuardedKernel([&] { return Make(&made); }));
      *table = made.release();
      return absl::OkStatus();
    };
    TableResource* found = nullptr;
    TF_RETURN_IF_ERROR(
        manager->LookupOrCreate<TableResource>(container, shared_name_, &found, make));
    Owned table(found);
    TF_RETURN_IF_ERROR(table->CheckKeys(key_dtype_));
    TF_RETURN_IF_ERROR(table->CheckValues(value_dtype_, dim_));
    handle->scalar<ResourceHandle>()() =
        keeps_ ? ResourceHandle::MakeRefCountingHandle(table.release(), context->device()->name())
               : tensorflow::MakeResourceHandle<TableResource>(context, container, shared_name_);
    return absl::OkStatus();
  }

 protected:
  using Owned = tensorflow::core::RefCountPtr<TableResource>;
  virtual absl::Status Make(Owned* made) = 0;

  std::string container_, shared_name_;
  DataType key_dtype_, value_dtype_;
  int64_t dim_;
  bool anonymous_ = false;  // only its handle leads to the table
  bool keeps_ = false;      // also found by name; handles keep the table alive in any case
};

class LiveHandleOp final : public HandleOp {
 public:
  explicit LiveHandleOp(OpKernelConstruction* context) : HandleOp(context) {
    int64_t init_size = 0;
    OP_REQUIRES_OK(context, context->GetAttr("anonymous", &anonymous_));
    OP_REQUIRES_OK(context, context->GetAttr("init_size", &init_size));
    OP_REQUIRES_OK(context, ReadInitializer(context, &options_.initializer));
    OP_REQUIRES_OK(context, ToEngine(value_dtype_, &options_.value_dtype));
    DataType slot_dtype;
    OP_REQUIRES_OK(context, context->GetAttr("slot_dtype", &slot_dtype));
    OP_REQUIRES_OK(context, ToEngine(slot_dtype, &options_.slot_dtype));
    std::string policy;
    OP_REQUIRES_OK(context, context->GetAttr("policy", &policy));
    DE_OP_REQUIRES_OK(context, engine::ParseRowPolicy(policy, &options_.policy));
    options_.key_type = KeyTypeOf(key_dtype_);
    options_.dim = static_cast<size_t>(dim_);
    options_.init_size = static_cast<uint64_t>(init_size);
    OP_REQUIRES_OK(context, context->GetAttr("tier_path", &tier_path_));
    OP_REQUIRES_OK(context, context->GetAttr("tier_bytes", &tier_bytes_));
  }

 protected:
  absl::Status Make(Owned* made) override {
    std::unique_ptr<engine::TableBackend> table;
    TF_RETURN_IF_ERROR(ToAbsl(Create(&table)));
    made->reset(new TableResource(key_dtype_, value_dtype_, dim_, shared_name_, std::move(table)));
    NoteLiveTable(shared_name_, made->get());
    return absl::OkStatus();
  }

 private:
  engine::Status Create(std::unique_ptr<engine::TableBackend>* table) const {
    if (tier_path_.empty()) {
      std::unique_ptr<engine::Table> in_memory;
      DE_RETURN_IF_ERROR(engine::Table::Create(options_, &in_memory));
      *table = std::move(in_memory);
      return engine::Status::Ok();
    }
    std::unique_ptr<engine::DiskRows> cold;
    engine::DiskOptions disk;
    disk.directory = tier_path_;
    DE_RETURN_IF_ERROR(engine::DiskRows::Create(disk, options_.key_type, &cold));
    return engine::TieredTable::Create(options_, static_cast<uint64_t>(tier_bytes_),
                                       std::move(cold), table);
  }

  engine::TableOptions options_;
  std::string tier_path_;
  int64_t tier_bytes_ = 0;
};

class FrozenHandleOp final : public HandleOp {
 public:
  explicit FrozenHandleOp(OpKernelConstruction* context) : HandleOp(context) {
    // A user may keep one function of a loaded model and drop the model. The function captures the
    // table's handle, so the handle must keep the table alive.
    keeps_ = true;
  }

 protected:
  absl::Status Make(Owned* made) override {
    made->reset(new TableResource(key_dtype_, value_dtype_, dim_, container_, shared_name_));
    return absl::OkStatus();
  }
};

/// Closes a live table when it is destroyed. Functions capture a table's handle, but never this
/// lease.
class TableLease final : public tensorflow::ResourceBase {
 public:
  explicit TableLease(tensorflow::core::RefCountPtr<TableResource> table)
      : table_(std::move(table)) {}
  ~TableLease() override { table_->Close(); }
  std::string DebugString() const override {
    return absl::StrCat("lease of a ", table_->DebugString());
  }

 private:
  const tensorflow::core::RefCountPtr<TableResource> table_;
};

class LeaseOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    Tensor* lease = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, tensorflow::TensorShape({}), &lease));
    table->Ref();
    tensorflow::core::RefCountPtr<TableResource> held(table);
    lease->scalar<ResourceHandle>()() = ResourceHandle::MakeRefCountingHandle(
        new TableLease(std::move(held)), context->device()->name());
    return absl::OkStatus();
  }
};

class SizeOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    int64_t rows = 0;
    TF_RETURN_IF_ERROR(table->Size(&rows));
    return OutputScalar<int64_t>(context, 0, rows);
  }
};

class StatsOp final : public TableOp {
 public:
  using TableOp::TableOp;
  absl::Status Run(OpKernelContext* context, TableResource* table) override {
    std::string json;
    TF_RETURN_IF_ERROR(table->StatsJson(&json));
    return OutputScalar<tensorflow::tstring>(context, 0, json);
  }
};

class ReserveOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    TF_RETURN_IF_ERROR(CheckScalar(context, 1, "rows"));
    const int64_t rows = context->input(1).scalar<int64_t>()();
    if (rows < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows must not be negative. Received: rows=", rows));
    }
    return ToAbsl(live->Reserve(static_cast<uint64_t>(rows)));
  }
};

class ShardOfOp final : public GuardedOp {
 public:
  explicit ShardOfOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_shards", &shards_));
    OP_REQUIRES(context, shards_ <= 0x7fffffff,
                absl::InvalidArgumentError(
                    absl::StrCat("num_shards must fit in int32. Received: ", shards_)));
  }
  absl::Status Execute(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckKeyCount(context->input(0)));
    const KeyBatch batch(context->input(0));
    Tensor* shards = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, context->input(0).shape(), &shards));
    int32_t* out = shards->flat<int32_t>().data();
    for (size_t i = 0; i < batch.keys().size; ++i) {
      out[i] = static_cast<int32_t>(
          engine::ShardOfKey(engine::WordOf(batch.keys(), i), static_cast<uint32_t>(shards_)));
    }
    return absl::OkStatus();
  }

 private:
  int64_t shards_ = 1;
};

class ProcessTablesOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

  absl::Status Execute(OpKernelContext* context) override {
    std::vector<std::string> found;
    for (const Held& each : TheRegistry().Living()) {
      std::string stats;
      if (!each.second->StatsJson(&stats).ok()) continue;  // closed meanwhile
      found.push_back(
          absl::StrCat("{\"table\": ", JsonText(each.first), ", \"stats\": ", stats, "}"));
    }
    return OutputScalar<tensorflow::tstring>(context, 0,
                                             absl::StrCat("[", absl::StrJoin(found, ", "), "]"));
  }
};

DE_REGISTER_KERNEL("DeProcessTables", ProcessTablesOp);
DE_REGISTER_KERNEL("DeTable", LiveHandleOp);
DE_REGISTER_KERNEL("DeFrozenTable", FrozenHandleOp);
DE_REGISTER_KERNEL("DeTableLease", LeaseOp);
DE_REGISTER_KERNEL("DeTableSize", SizeOp);
DE_REGISTER_KERNEL("DeTableStats", StatsOp);
DE_REGISTER_KERNEL("DeTableReserve", ReserveOp);
DE_REGISTER_KERNEL("DeShardOf", ShardOfOp);

}  // namespace
}  // namespace de::kernels
