// Ops on the metadata of rows, and for eviction.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeTableTouch")
    .DE_TABLE_AND_KEYS.SetShapeFn(Guarded(HandleOnly))
    .Doc("Marks the rows of `keys` as used now. Ignores keys without a row.");

REGISTER_OP("DeTableRankCandidates")
    .Input("handle: resource")
    .Input("total: int64")
    .Input("reserved: int64")
    .Output("ranks: uint64")
    .Output("hashes: uint64")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleToVectors))
    .Doc(R"doc(
Returns the candidates of one table for the lowest row to keep, when `reserved` of the `total` rows
of several tables are kept. They are either the highest or the lowest rows, whichever are fewer.

total: scalar; number of rows in all tables.
reserved: scalar; number of rows to keep.
ranks: [m]; rows of higher rank stay longer.
hashes: [m]; hashes of the keys, which order rows of equal rank.
)doc");

REGISTER_OP("DeFirstKept")
    .Input("ranks: uint64")
    .Input("hashes: uint64")
    .Input("total: int64")
    .Input("reserved: int64")
    .Output("kept: uint64")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(2));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Returns the lowest rank to keep, given the candidates of all tables.

ranks: [m]; from DeTableRankCandidates, of all tables.
hashes: [m].
total: scalar, the same as for the candidates.
reserved: scalar, the same as for the candidates.
kept: [2]; rank and hash.
)doc");

REGISTER_OP("DeTableEvictBelow")
    .Input("handle: resource")
    .Input("kept: uint64")
    .Output("evicted: int64")
    .Attr("column: {'time', 'step', 'uses', 'score'}")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleToScalars))
    .Doc("Removes the rows that rank below `kept`, a rank and a hash. Returns their number.");

REGISTER_OP("DeTableEvictExpired")
    .Input("handle: resource")
    .Output("evicted: int64")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleToScalars))
    .Doc("Removes all expired rows and returns their number.");

REGISTER_OP("DeTableTakeEvictedKeys")
    .Input("handle: resource")
    .Input("capacity: uint64")
    .Output("keys: Tkeys")
    .Output("lost: int64")
    .Attr("Tkeys: {int64, int32, string}")
    .SetIsStateful()
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Scalar());
      return InputsOfRank(c, {0, 1}, 0);
    }))
    .Doc("Takes the recorded keys of evicted rows. Then records at most `capacity` keys; 0: none.");

}  // namespace de::ops
