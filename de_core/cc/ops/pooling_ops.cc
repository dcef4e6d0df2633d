// Ops that sum rows without outputting them.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

using tensorflow::shape_inference::DimensionHandle;

/// Requires inputs `keys` and `splits` to be vectors. Returns the number of segments.
absl::Status SegmentsOf(InferenceContext* c, int keys, int splits, DimensionHandle* segments) {
  ShapeHandle vector;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(keys), 1, &vector));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(splits), 1, &vector));
  return c->Subtract(c->Dim(vector, 0), 1, segments);
}

/// Sets output `index` to the row splits of segment ids (input 0) below a number (input 1).
absl::Status SplitsOfIds(InferenceContext* c, int index) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {0}, 1));
  DimensionHandle count;
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &count));
  TF_RETURN_IF_ERROR(c->Add(count, 1, &count));
  c->set_output(index, c->Vector(count));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("DeTablePool")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("row_splits: int64")
    .Input("weights: T")
    .Input("anchor: Tanchor")
    .Output("sums: T")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("T: {float, double}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .Attr("Tanchor: list(" DE_ANCHOR_TYPES ") >= 0")
    .Attr("weighted: bool")
    .Attr("dim: int >= 1")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      int64_t dim = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      DimensionHandle segments;
      TF_RETURN_IF_ERROR(SegmentsOf(c, 1, 2, &segments));
      c->set_output(0, c->Matrix(segments, dim));
      return HandleOnly(c);
    }))
    .Doc(R"doc(
Reads the rows of `keys` from a live or a frozen table and sums the rows of each segment. Changes
nothing, and holds only a few rows in memory at a time.

keys: [n].
row_splits: [segments + 1]; segment i is keys[row_splits[i]:row_splits[i + 1]].
weights: [n], the rows' factors if `weighted`; otherwise ignored.
anchor: empty, or the table's anchor if gradients are needed.
sums: [segments, dim]; zeros for a segment without keys. float, or double for double rows.
)doc");

REGISTER_OP("DeTablePoolDots")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("row_splits: int64")
    .Input("gradient: T")
    .Input("anchor: Tanchor")
    .Output("dots: T")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("T: {float, double}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .Attr("Tanchor: list(" DE_ANCHOR_TYPES ") >= 0 = []")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return HandleOnly(c);
    }))
    .Doc(R"doc(
The gradient of DeTablePool with respect to its weights: each row times the gradient of its segment.

keys: [n].
row_splits: [segments + 1].
gradient: [segments, dim].
anchor: as for DeTablePool, for gradients of this gradient.
dots: [n].
)doc");

REGISTER_OP("DePoolGradient")
    .Input("keys: Tkeys")
    .Input("row_splits: int64")
    .Input("weights: T")
    .Input("gradient: T")
    .Output("unique_keys: Tkeys")
    .Output("values: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("T: {float, double}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .Attr("weighted: bool")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      ShapeHandle gradient;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 2, &gradient));
      const DimensionHandle keys = c->UnknownDim();
      c->set_output(0, c->Vector(keys));
      c->set_output(1, c->Matrix(keys, c->Dim(gradient, 1)));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
The gradient of DeTablePool with respect to the rows: each distinct key once, with the sum of weight
times the segment's gradient over all its occurrences.

keys: [n].
row_splits: [segments + 1].
weights: [n] if `weighted`.
gradient: [segments, dim].
unique_keys: [m].
values: [m, dim].
)doc");

REGISTER_OP("DeRowSplits")
    .Input("segment_ids: int64")
    .Input("segments: int64")
    .Output("row_splits: int64")
    .SetShapeFn(Guarded([](InferenceContext* c) { return SplitsOfIds(c, 0); }))
    .Doc(R"doc(
Returns the start of each segment of a sorted batch.

segment_ids: [n], ascending, in [0, segments).
segments: scalar.
row_splits: [segments + 1].
)doc");

REGISTER_OP("DeSegmentOrder")
    .Input("segment_ids: int64")
    .Input("segments: int64")
    .Output("order: int64")
    .Output("row_splits: int64")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(c->UnknownDim()));
      return SplitsOfIds(c, 1);
    }))
    .Doc(R"doc(
Sorts a batch by segment. Elements of one segment keep their order.

segment_ids: [n], in any order, below `segments`. Elements with a negative id are left out.
segments: scalar.
order: [m], positions in the batch.
row_splits: [segments + 1], the start of each segment in `order`.
)doc");

}  // namespace de::ops
