// Ops on the metadata of rows, and those that give rows up.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status ScalarOutput(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return HandleOnly(c);
}

absl::Status PairsOfNumbers(InferenceContext* c) {
  for (int output = 0; output < 2; ++output) {
    c->set_output(output, c->Vector(InferenceContext::kUnknownDim));
  }
  return HandleOnly(c);
}

}  // namespace

REGISTER_OP("DeTableTouch")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Attr("Tkeys: {int64, int32, string}")
    .SetShapeFn(HandleOnly)
    .Doc("Marks the rows of `keys` as used now; keys without a row are ignored.");

REGISTER_OP("DeTableReadColumn")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Output("values: int64")
    .Output("found: bool")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      c->set_output(1, c->input(1));
      return HandleOnly(c);
    })
    .Doc(R"doc(
Reads what the table remembers of rows beside their values.

keys: any shape.
values: keys.shape; 0 for a key without a row.
found: keys.shape; whether the key has a row.
)doc");

REGISTER_OP("DeTableWriteColumn")
    .Input("handle: resource")
    .Input("keys: Tkeys")
    .Input("values: int64")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->Merge(c->input(1), c->input(2), &unused));
      return HandleOnly(c);
    })
    .Doc(R"doc(
Sets what the table remembers of rows; keys without one are ignored.

keys: any shape.
values: keys.shape.
)doc");

REGISTER_OP("DeTableRankCandidates")
    .Input("handle: resource")
    .Input("total: int64")
    .Input("reserved: int64")
    .Output("ranks: uint64")
    .Output("hashes: uint64")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetIsStateful()
    .SetShapeFn(PairsOfNumbers)
    .Doc(R"doc(
The rows of one table among which the line lies between those that stay and those that go, when
`reserved` of the `total` rows of several tables shall stay: the fewer of the two kinds.

total: scalar; rows of all tables.
reserved: scalar; rows that stay.
ranks: [m]; higher stays longer.
hashes: [m]; of the keys, which decide between equal ranks.
)doc");

REGISTER_OP("DeFirstKept")
    .Input("ranks: uint64")
    .Input("hashes: uint64")
    .Input("total: int64")
    .Input("reserved: int64")
    .Output("kept: uint64")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(2));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The lowest rank that stays, given the candidates of all tables.

ranks: [m]; of DeTableRankCandidates, of all tables.
hashes: [m].
total: scalar, as the candidates were chosen by.
reserved: scalar, as the candidates were chosen by.
kept: [2]; rank and hash.
)doc");

REGISTER_OP("DeTableEvictBelow")
    .Input("handle: resource")
    .Input("kept: uint64")
    .Output("evicted: int64")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Removes the rows that rank below `kept`, rank and hash, and returns their number.");

REGISTER_OP("DeTableEvictExpired")
    .Input("handle: resource")
    .Output("evicted: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOutput)
    .Doc("Removes all rows that outlived the time to live and returns their number.");

}  // namespace de::ops
