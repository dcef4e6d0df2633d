// Ops that read rows.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeTableFind")
    .DE_TABLE_AND_KEYS.Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("dim: int >= 1")
    .SetShapeFn(Guarded(RowsAndFound))
    .Doc(R"doc(
Reads the rows of `keys` from a live or a frozen table, and changes nothing.

keys: any shape.
values: keys.shape + [dim]; a key without a row reads as its initial row.
found: keys.shape; whether the key has a row.
)doc");

REGISTER_OP("DeTableFindWithDefaults")
    .DE_TABLE_AND_KEYS.Input("defaults: Tvalues")
    .Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(1, c->input(1));
      return RowsLikeDefaults(c);
    }))
    .Doc(R"doc(
Reads the rows of `keys` like DeTableFind. A key without a row reads as a row of `defaults`.

keys: any shape.
defaults: keys.shape + [dim], a row for each key; or another tensor of rows, of which the first
  one serves all keys.
values: keys.shape + [dim].
found: keys.shape; whether the key has a row.
)doc");

REGISTER_OP("DeTableContains")
    .DE_TABLE_AND_KEYS.Output("found: bool")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return HandleOnly(c);
    }))
    .Doc("Returns whether each key has a row.");

REGISTER_OP("DeEmbeddingAnchor")
    .Input("anchor: Tanchor")
    .Input("keys: Tkeys")
    .Input("rows: Tvalues")
    .Output("output: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("Tanchor: " DE_ANCHOR_TYPES " = DT_RESOURCE")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->input(2));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Returns `rows` unchanged and ties them to `anchor`, so that the gradient of the output with respect
to the anchor is an IndexedSlices of `keys`.

anchor: the table's anchor, its value, or the token of a DeLoopAnchor. An op that takes the anchor
  itself runs where the anchor is.
)doc");

REGISTER_OP("DeTableExportBatch")
    .Input("handle: resource")
    .Input("cursor: uint64")
    .Output("keys: Tkeys")
    .Output("values: Tvalues")
    .Output("next_cursor: uint64")
    .Output("done: bool")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("slot: string = ''")
    .SetIsStateful()
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {1}, 0));
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
      c->set_output(2, c->Scalar());
      c->set_output(3, c->Scalar());
      return HandleOnly(c);
    }))
    .Doc(R"doc(
Exports the next few thousand rows, for tables too large to export at once. A row that exists
throughout is returned exactly once, whatever else is written meanwhile.

cursor: position to continue from; 0 to start.
keys: [n]; n may be 0 before the end.
values: [n, dim] or [n, width of the slot].
next_cursor: the cursor of the next call.
done: whether this was the last batch.
)doc");

REGISTER_OP("DeTableExport")
    .Input("handle: resource")
    .Output("keys: Tkeys")
    .Output("values: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("slot: string = ''")
    .SetIsStateful()
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
      return HandleOnly(c);
    }))
    .Doc(R"doc(
Exports all keys and their values, or the optimizer slot 'owner/name'. Each row is consistent.

keys: [n].
values: [n, dim] or [n, width of the slot].
)doc");

}  // namespace de::ops
