// Ops that write and remove rows.
#include "de_core/cc/ops/shapes.h"
#include "de_core/cc/ops/value_types.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status WritesRows(InferenceContext* c) { return ValuesFollowKeys(c, 1, 2); }

}  // namespace

REGISTER_OP("DeTableInsertOrAssign")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("values: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .SetShapeFn(WritesRows)
    .Doc(R"doc(
Writes one row for each key; of several rows for one key the last wins.

keys: any shape.
values: keys.shape + [dim].
)doc");

REGISTER_OP("DeTableAccumOrAssign")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("deltas: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_NUMBER_TYPES)
    .SetShapeFn(WritesRows)
    .Doc(R"doc(
Adds each delta to its key's row, or makes it the row where the key has none.

keys: any shape.
deltas: keys.shape + [dim]; the deltas of one key add up.
)doc");

REGISTER_OP("DeTableAccum")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("old_values: Tvalues")
    .Input("new_values: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_NUMBER_TYPES)
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(ValuesFollowKeys(c, 1, 3));
      return ValuesFollowKeys(c, 1, 2);
    })
    .Doc(R"doc(
Adds new_values - old_values to rows that exist and stores new_values where there is none, so that
the changes of several workers that read the same old values all count.

keys: any shape.
old_values: keys.shape + [dim].
new_values: keys.shape + [dim].
)doc");

REGISTER_OP("DeTableFindOrInsert")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(HandleOnly(c));
      c->set_output(1, c->input(1));
      return RowsOf(c, 1, 0);
    })
    .Doc("Reads the rows of `keys` and stores the initial row of each key that had none.");

REGISTER_OP("DeTableErase")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Attr("Tkeys: {int64, int32, string}")
    .SetShapeFn(HandleOnly)
    .Doc("Removes the rows of `keys`, slots included; keys without a row are no error.");

REGISTER_OP("DeTableClear")
    .Input("handle: resource")
    .SetShapeFn(HandleOnly)
    .Doc("Removes all rows.");

REGISTER_OP("DeTableApply")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("grads: Tgrads")
    .Input("hyper: double")
    .Input("owner: string")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tgrads: " DE_FLOAT_TYPES)
    .Attr("rule: string")
    .Attr("average: bool = false")
    .SetShapeFn(WritesRows)
    .Doc(R"doc(
One step of a sparse optimizer inside the table: gradients of equal keys are summed, then each key's
row and its slots are updated in one probe. A key without a row starts from its initial row.

keys: any shape.
grads: keys.shape + [dim].
hyper: [k]; the rule's hyperparameters in the order that optimizer_rules.h states.
owner: scalar; the optimizer instance whose slots are updated, a name without '/'.
rule: the update rule, such as 'adam'.
average: whether each row's moving average is kept in the slot 'average' too; its momentum is then
  the last of `hyper`.
)doc");

}  // namespace de::ops
