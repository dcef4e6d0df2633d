// Kernels on the metadata of rows, and for eviction.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "de_core/cc/engine/policy/row_rank.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// Reads `total` from input `first`, and `reserved` from the next input.
absl::Status ReadQuota(OpKernelContext* context, int first, uint64_t* total, uint64_t* reserved) {
  TF_RETURN_IF_ERROR(CheckScalar(context, first, "total"));
  TF_RETURN_IF_ERROR(CheckScalar(context, first + 1, "reserved"));
  const int64_t all = context->input(first).scalar<int64_t>()();
  const int64_t stay = context->input(first + 1).scalar<int64_t>()();
  if (all < 0 || stay < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of rows to keep must not be negative. Received: reserved=", stay));
  }
  *total = static_cast<uint64_t>(all);
  *reserved = static_cast<uint64_t>(stay);
  return absl::OkStatus();
}

class TouchOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    TF_RETURN_IF_ERROR(table.CheckKeys(context->input(1)));
    return ToAbsl(live->Touch(KeyBatch(context->input(1)).keys()));
  }
};

/// A kernel on one metadata column of a table's rows, for example the time of the last use.
class ColumnOp : public LiveTableOp {
 public:
  explicit ColumnOp(OpKernelConstruction* context) : LiveTableOp(context) {
    std::string name;
    OP_REQUIRES_OK(context, context->GetAttr("column", &name));
    column_ = engine::RowColumnOf(name);
  }

 protected:
  engine::RowColumn column_ = engine::RowColumn::kNone;
};

class RankCandidatesOp final : public ColumnOp {
 public:
  using ColumnOp::ColumnOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    uint64_t total = 0, reserved = 0;
    TF_RETURN_IF_ERROR(ReadQuota(context, 1, &total, &reserved));
    std::vector<engine::RowRank> rows;
    TF_RETURN_IF_ERROR(
        ToAbsl(live->RankCandidates(column_, engine::Candidates(total, reserved), &rows)));
    const TensorShape shape({static_cast<int64_t>(rows.size())});
    Tensor *ranks = nullptr, *hashes = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &ranks));
    TF_RETURN_IF_ERROR(context->allocate_output(1, shape, &hashes));
    for (size_t i = 0; i < rows.size(); ++i) {
      ranks->flat<uint64_t>().data()[i] = rows[i].rank;
      hashes->flat<uint64_t>().data()[i] = rows[i].hash;
    }
    return absl::OkStatus();
  }
};

class FirstKeptOp final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;
  absl::Status Execute(OpKernelContext* context) override {
    uint64_t total = 0, reserved = 0;
    TF_RETURN_IF_ERROR(ReadQuota(context, 2, &total, &reserved));
    const Tensor& ranks = context->input(0);
    const Tensor& hashes = context->input(1);
    if (ranks.shape() != hashes.shape()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "ranks and hashes must have one shape. Received: ", ranks.shape().DebugString(), " and ",
          hashes.shape().DebugString()));
    }
    std::vector<engine::RowRank> rows;
    for (int64_t i = 0; i < ranks.NumElements(); ++i) {
      rows.push_back({ranks.flat<uint64_t>().data()[i], hashes.flat<uint64_t>().data()[i]});
    }
    const engine::RowRank kept =
        engine::FirstKept(engine::Candidates(total, reserved), std::move(rows), reserved == 0);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({2}), &output));
    output->flat<uint64_t>()(0) = kept.rank;
    output->flat<uint64_t>()(1) = kept.hash;
    return absl::OkStatus();
  }
};

class EvictBelowOp final : public ColumnOp {
 public:
  using ColumnOp::ColumnOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    const Tensor& kept = context->input(1);
    if (kept.NumElements() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "kept must be a rank and a hash. Received: shape=", kept.shape().DebugString()));
    }
    uint64_t evicted = 0;
    TF_RETURN_IF_ERROR(ToAbsl(
        live->EvictBelow(column_, {kept.flat<uint64_t>()(0), kept.flat<uint64_t>()(1)}, &evicted)));
    return OutputScalar<int64_t>(context, 0, static_cast<int64_t>(evicted));
  }
};

class EvictExpiredOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource&,
                       engine::TableBackend* live) override {
    uint64_t evicted = 0;
    TF_RETURN_IF_ERROR(ToAbsl(live->EvictExpired(&evicted)));
    return OutputScalar<int64_t>(context, 0, static_cast<int64_t>(evicted));
  }
};

class TakeEvictedKeysOp final : public LiveTableOp {
 public:
  using LiveTableOp::LiveTableOp;
  absl::Status RunLive(OpKernelContext* context, const TableResource& table,
                       engine::TableBackend* live) override {
    const tensorflow::DataType dtype = context->expected_output_dtype(0);
    TF_RETURN_IF_ERROR(table.CheckKeys(dtype));
    TF_RETURN_IF_ERROR(CheckScalar(context, 1, "capacity"));
    const auto taken = live->evicted_keys().Take(context->input(1).scalar<uint64_t>()());
    Tensor* keys = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {static_cast<int64_t>(taken.size())}, &keys));
    const auto copy = [](const auto& from, auto to) {
      std::copy(from.begin(), from.end(), to.data());
    };
    if (dtype == tensorflow::DT_STRING) copy(taken.strings, keys->flat<tensorflow::tstring>());
    if (dtype == tensorflow::DT_INT32) copy(taken.ints, keys->flat<int32_t>());
    if (dtype == tensorflow::DT_INT64) copy(taken.ints, keys->flat<int64_t>());
    return OutputScalar<int64_t>(context, 1, static_cast<int64_t>(taken.lost));
  }
};

DE_REGISTER_KERNEL("DeTableTouch", TouchOp);
DE_REGISTER_KERNEL("DeTableRankCandidates", RankCandidatesOp);
DE_REGISTER_KERNEL("DeFirstKept", FirstKeptOp);
DE_REGISTER_KERNEL("DeTableEvictBelow", EvictBelowOp);
DE_REGISTER_KERNEL("DeTableEvictExpired", EvictExpiredOp);
DE_REGISTER_KERNEL("DeTableTakeEvictedKeys", TakeEvictedKeysOp);

}  // namespace
}  // namespace de::kernels
