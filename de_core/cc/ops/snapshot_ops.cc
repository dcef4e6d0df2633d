// Ops that write tables to files and read them back.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status HandleAndPath(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &unused));
  return HandleOnly(c);
}

}  // namespace

REGISTER_OP("DeTableSave")
    .Input("handle: resource")
    .Input("path: string")
    .Attr("values_only: bool = false")
    .Attr("metadata: list(string) = []")
    .SetShapeFn(HandleAndPath)
    .Doc(R"doc(
Writes a live table to one snapshot file, under a temporary name first.

path: scalar; where the file shall lie.
values_only: leave the optimizer slots out.
metadata: keys and values in turn, kept in the file's header.
)doc");

REGISTER_OP("DeTableRestore")
    .Input("handle: resource")
    .Input("path: string")
    .Attr("replace: bool = true")
    .SetShapeFn(HandleAndPath)
    .Doc(R"doc(
Reads a snapshot file into a live table. A file that does not fit or is damaged changes nothing.

path: scalar; a snapshot file.
replace: remove the rows that are not in the file, and read new keys as the saved table did.
)doc");

REGISTER_OP("DeFrozenTable")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("key_dtype: {int64, int32, string}")
    .Attr("value_dtype: {float, double, half, bfloat16, int8, int32, int64, bool, string}")
    .Attr("dim: int >= 1")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("A read-only table over a snapshot file; empty until DeFrozenTableOpen ran.");

REGISTER_OP("DeFrozenTableOpen")
    .Input("handle: resource")
    .Input("path: string")
    .SetShapeFn(HandleAndPath)
    .Doc("Maps the snapshot file at `path` into memory and serves it under `handle`.");

REGISTER_OP("DeFrozenTableClose")
    .Input("handle: resource")
    .SetShapeFn(HandleOnly)
    .Doc("Undoes one DeFrozenTableOpen; the last one frees the table.");

}  // namespace de::ops
