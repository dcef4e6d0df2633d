// The op that divides a batch into segments.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeSegmentOrder")
    .Input("segment_ids: int64")
    .Input("segments: int64")
    .Output("order: int64")
    .Output("row_splits: int64")
    .Attr("sorted: bool = false")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {0}, 1));
      tensorflow::shape_inference::DimensionHandle count;
      TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &count));
      TF_RETURN_IF_ERROR(c->Add(count, 1, &count));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Vector(count));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Sorts a batch by segment. Elements of one segment keep their order.

segment_ids: [n], in any order, below `segments`. Elements with a negative id are left out.
segments: scalar.
order: [m], positions in the batch; empty if `sorted`.
row_splits: [segments + 1], the start of each segment in `order`.
sorted: require that `segment_ids` ascend from 0.
)doc");

}  // namespace de::ops
