// The kernel that divides a batch into segments.
#include <vector>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A tensor of row splits has 8 bytes for each segment, and a tensor has less than 2^63 bytes.
constexpr int64_t kMostSegments = int64_t{1} << 59;

class SegmentOrderOp final : public GuardedOp {
 public:
  explicit SegmentOrderOp(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("sorted", &sorted_));
  }

 protected:
  absl::Status Execute(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckScalar(context, 1, "segments"));
    const int64_t segments = context->input(1).scalar<int64_t>()();
    if (segments < 0 || segments >= kMostSegments) {
      return absl::InvalidArgumentError(absl::StrCat(
          "segments must be from 0 to ", kMostSegments - 1, ". Received: segments=", segments));
    }
    const auto ids = context->input(0).flat<int64_t>();
    Tensor* splits = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 1, {segments + 1}, &splits));
    auto begins = splits->flat<int64_t>();
    begins.setZero();
    for (int64_t i = 0, last = 0; i < ids.size(); ++i) {
      if (sorted_ && (ids(i) < last || ids(i) >= segments)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the ids of a pooled lookup must be in row-major order "
                         "(tf.sparse.reorder sorts them), with rows in [0, ",
                         segments, "). Received: row ", ids(i), " after row ", last));
      }
      if (ids(i) >= segments) {
        return absl::InvalidArgumentError(
            absl::StrCat("segment_ids must be below ", segments, ". Received: ", ids(i)));
      }
      if (ids(i) >= 0) ++begins(ids(i) + 1);
      last = ids(i);
    }
    for (int64_t i = 0; i < segments; ++i) begins(i + 1) += begins(i);
    Tensor* order = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(context, 0, {sorted_ ? 0 : begins(segments)}, &order));
    if (sorted_) return absl::OkStatus();
    auto out = order->flat<int64_t>();
    std::vector<int64_t> next(begins.data(), begins.data() + segments);
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (ids(i) >= 0) out(next[static_cast<size_t>(ids(i))]++) = i;
    }
    return absl::OkStatus();
  }

 private:
  bool sorted_ = false;
};

DE_REGISTER_KERNEL("DeSegmentOrder", SegmentOrderOp);

}  // namespace
}  // namespace de::kernels
