// Ops on optimizer slots.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeTableEnsureSlots")
    .Input("handle: resource")
    .Input("owner: string")
    .Input("initial: double")
    .Attr("names: list(string)")
    .Attr("widths: list(int)")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
      return HandleAndScalar(c);
    }))
    .Doc(R"doc(
Adds the slots of an optimizer that do not exist yet to all rows.

owner: scalar; the optimizer instance, a name without '/'.
initial: [k]; initial value of each slot.
names: [k].
widths: [k]; numbers per row.
)doc");

REGISTER_OP("DeTableFindSlot")
    .DE_TABLE_AND_KEYS.Input("slot: string")
    .Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tvalues: {float, double, int64}")
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn(Guarded(RowsAndFound))
    .Doc(R"doc(
Reads one slot of the rows of `keys`, or as int64 a metadata column.

keys: any shape.
slot: scalar, 'owner/name'; 'de/time', 'de/step', 'de/uses' or 'de/score' for a column.
values: keys.shape + [dim]; the slot's initial value for a key without a row.
found: keys.shape; whether the key has a row.
dim: the width of the slot.
)doc");

REGISTER_OP("DeTableAssignSlot")
    .DE_TABLE_AND_KEYS.Input("values: Tvalues")
    .Input("slot: string")
    .Attr("Tvalues: {float, double, int64}")
    .SetShapeFn(Guarded([](InferenceContext* c) { return ValuesFollowKeys(c, 1, 2); }))
    .Doc(R"doc(
Writes one slot of the rows of `keys`, or a metadata column. Ignores keys without a row.

keys: any shape.
values: keys.shape + [width of the slot]; the width of a column is 1.
slot: see DeTableFindSlot.
)doc");

REGISTER_OP("DeTableTakeAverages")
    .Input("handle: resource")
    .Input("owner: string")
    .SetShapeFn(Guarded(HandleAndScalar))
    .Doc("Sets each row to the moving average that `owner` keeps of it, if it keeps one.");

REGISTER_OP("DeTableDropSlots")
    .Input("handle: resource")
    .Input("owner: string")
    .SetShapeFn(Guarded(HandleAndScalar))
    .Doc("Removes an optimizer's slots from all rows. It is no error if there are none.");

REGISTER_OP("DeTableSlots")
    .Input("handle: resource")
    .Output("names: string")
    .Output("widths: int64")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleToVectors))
    .Doc(R"doc(
Lists the slots of the rows.

names: [k], each 'owner/name'.
widths: [k], numbers per row.
)doc");

}  // namespace de::ops
