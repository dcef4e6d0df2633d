// Ops that write and remove rows, and the settings of optimizer steps.
#include <vector>

#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status WritesRowsOfTables(InferenceContext* c) {
  int tables = 0;
  std::vector<tensorflow::DataType> keys, grads;
  TF_RETURN_IF_ERROR(c->GetAttr("tables", &tables));
  TF_RETURN_IF_ERROR(c->GetAttr("Tkeys", &keys));
  TF_RETURN_IF_ERROR(c->GetAttr("Tgrads", &grads));
  if (keys.size() != static_cast<size_t>(tables) || grads.size() != keys.size()) {
    return absl::InvalidArgumentError(
        "there must be keys and gradients for each table. Received: lists of other lengths");
  }
  for (int t = 0; t < tables; ++t) {
    TF_RETURN_IF_ERROR(ValuesFollowKeys(c, tables + t, 2 * tables + t));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("DeTableInsertOrAssign")
    .DE_TABLE_AND_KEYS.Input("values: Tvalues")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .SetShapeFn(Guarded([](InferenceContext* c) { return ValuesFollowKeys(c, 1, 2); }))
    .Doc(R"doc(
Writes one row per key. If a key occurs several times, its last row wins.

keys: any shape.
values: keys.shape + [dim].
)doc");

REGISTER_OP("DeTableAccum")
    .DE_TABLE_AND_KEYS.Input("old_values: Tvalues")
    .Input("new_values: Tvalues")
    .Attr("Tvalues: " DE_NUMBER_TYPES)
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(ValuesFollowKeys(c, 1, 3));
      return ValuesFollowKeys(c, 1, 2);
    }))
    .Doc(R"doc(
Adds new_values - old_values to existing rows, and stores new_values for keys without a row. So if
several workers read the same old values, all their changes count.

keys: any shape.
old_values: keys.shape + [dim].
new_values: keys.shape + [dim].
)doc");

REGISTER_OP("DeTableFindOrInsert")
    .DE_TABLE_AND_KEYS.Output("values: Tvalues")
    .Output("found: bool")
    .Attr("Tvalues: " DE_VALUE_TYPES)
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn(Guarded(RowsAndFound))
    .Doc("Reads the rows of `keys`, and stores the initial row of each key without a row.");

REGISTER_OP("DeTableErase")
    .DE_TABLE_AND_KEYS.SetShapeFn(Guarded(HandleOnly))
    .Doc("Removes the rows of `keys` with their slots. Keys without a row are no error.");

REGISTER_OP("DeTableClear")
    .Input("handle: resource")
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("Removes all rows.");

REGISTER_OP("DeTablesApply")
    .Input("handles: tables * resource")
    .Input("keys: Tkeys")
    .Input("grads: Tgrads")
    .Input("hypers: settings * double")
    .Input("owner: string")
    .Attr("tables: int >= 0")
    .Attr("Tkeys: list({int64, int32, string}) >= 0")
    .Attr("Tgrads: list(" DE_FLOAT_TYPES ") >= 0")
    .Attr("settings: int >= 0")
    .Attr("settings_of: list(int)")
    .Attr("rule: string")
    .Attr("average: bool = false")
    .SetShapeFn(Guarded(WritesRowsOfTables))
    .Doc(R"doc(
Runs one step of a sparse optimizer inside many tables at the same time, on all threads. Sums the
gradients of equal keys, then updates each key's row and slots in one probe. A key without a row
starts from its initial row.

handles: the tables, each once.
keys: of each table, any shape.
grads: of each table, keys.shape + [dim].
hypers: each [k]; the rule's hyperparameters in the order of optimizer_rules.h.
owner: scalar; the optimizer instance that owns the slots, a name without '/'.
settings_of: for each table the number of its `hypers`.
rule: the update rule, such as 'adam'.
average: whether to keep each row's moving average in the slot 'average' too. Its momentum is then
  the last of `hypers`.
)doc");

REGISTER_OP("DeStepSettings")
    .Input("rate: Trate")
    .Input("step: int64")
    .Input("constants: double")
    .Output("settings: double")
    .Attr("Trate: {float, double}")
    .Attr("powers: list(int)")
    .Attr("Tpowers: {float, double}")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {0, 1}, 0));
      TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
      c->set_output(0, c->input(2));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Returns the settings of one optimizer step: `constants` with the learning rate as element 0, and
with some elements raised to the power of the step.

rate: a scalar.
step: a scalar; the number of the step, counted from 1.
constants: [k].
settings: [k].
powers: positions in `constants`.
Tpowers: the dtype in which powers are computed.
)doc");

}  // namespace de::ops
