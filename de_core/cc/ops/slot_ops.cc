// Ops on the slots that optimizers keep in the rows.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status HandleAndScalar(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &unused));
  return HandleOnly(c);
}

}  // namespace

REGISTER_OP("DeTableEnsureSlots")
    .Input("handle: resource")
    .Input("owner: string")
    .Input("initial: double")
    .Attr("names: list(string)")
    .Attr("widths: list(int)")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &unused));
      return HandleAndScalar(c);
    })
    .Doc(R"doc(
Adds an optimizer's slots that are not there yet to all rows.

owner: scalar; the optimizer instance, a name without '/'.
initial: [k]; what each slot begins as.
names: [k].
widths: [k]; numbers a row.
)doc");

REGISTER_OP("DeTableFindSlot")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("slot: string")
    .Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: {float, double}")
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(HandleOnly(c));
      c->set_output(1, c->input(1));
      return RowsOf(c, 1, 0);
    })
    .Doc(R"doc(
Reads one slot of the rows of `keys`.

keys: any shape.
slot: scalar, 'owner/name'.
values: keys.shape + [dim]; of a key without a row what the slot begins as.
found: keys.shape; whether the key has a row.
dim: the width of the slot.
)doc");

REGISTER_OP("DeTableAssignSlot")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("values: Tvalues")
    .Input("slot: string")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: {float, double}")
    .SetShapeFn([](InferenceContext* c) { return ValuesFollowKeys(c, 1, 2); })
    .Doc(R"doc(
Writes one slot of the rows of `keys`; keys without a row are ignored.

keys: any shape.
values: keys.shape + [width of the slot].
slot: scalar, 'owner/name'.
)doc");

REGISTER_OP("DeTableTakeAverages")
    .Input("handle: resource")
    .Input("owner: string")
    .SetShapeFn(HandleAndScalar)
    .Doc("Makes each row the moving average that `owner` keeps of it, where it keeps one.");

REGISTER_OP("DeTableDropSlots")
    .Input("handle: resource")
    .Input("owner: string")
    .SetShapeFn(HandleAndScalar)
    .Doc("Takes an optimizer's slots out of all rows; none there is no error.");

REGISTER_OP("DeTableSlots")
    .Input("handle: resource")
    .Output("names: string")
    .Output("widths: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
      return HandleOnly(c);
    })
    .Doc(R"doc(
Which slots the rows have.

names: [k], each 'owner/name'.
widths: [k], numbers a row.
)doc");

}  // namespace de::ops
