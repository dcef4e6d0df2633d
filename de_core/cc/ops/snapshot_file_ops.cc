// Ops on snapshot files, and on the tables that serve them.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status ReadShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {0, 1, 2}, 0));
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(2, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
  c->set_output(3, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

absl::Status CompactShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {0}, 1));
  TF_RETURN_IF_ERROR(InputsOfRank(c, {1}, 0));
  return ScalarOutputs(c);
}

}  // namespace

REGISTER_OP("DeSnapshotInfo")
    .Input("path: string")
    .Output("info: string")
    .Attr("verify: bool = false")
    .Attr("own: bool = false")
    .SetIsStateful()
    .SetShapeFn(Guarded(tensorflow::shape_inference::ScalarShape))
    .Doc(R"doc(
Checks a snapshot file and describes it.

path: scalar.
info: scalar; JSON: kind ('base' or 'delta'), id, parent, sequence, replaces (a delta that replaces
  everything), created_micros, key_dtype, value_dtype (as stored), reads_as, dim, row_bytes,
  slots ([{owner, name, dtype, width, initial, offset}]), values_only, initializer, metadata (values
  that are not UTF-8 as {"hex": …}), rows, tombstones, sections, bytes, string_bytes, contents_crc.
verify: check every byte, not only header, directory and footer.
own: describe the table's own metadata too, such as the counts of keys that wait for admission.
)doc");

REGISTER_OP("DeSnapshotRead")
    .Input("path: string")
    .Input("first: int64")
    .Input("count: int64")
    .Output("keys: key_dtype")
    .Output("deleted: bool")
    .Output("values: value_dtype")
    .Output("slots: uint8")
    .Attr("key_dtype: {int64, int32, string}")
    .Attr("value_dtype: " DE_VALUE_TYPES)
    .Attr("with_values: bool = true")
    .SetIsStateful()
    .SetShapeFn(Guarded(ReadShape))
    .Doc(R"doc(
Reads some sections of a snapshot file, so that a file can be read in bounded memory.

path: scalar.
first, count: the sections.
keys: [n]; for each section the rows' keys, then the tombstones' keys.
deleted: [n]; true for tombstones.
values: [n, dim] of the dtype the file reads as; zeros for tombstones. [0, 0] without `with_values`.
slots: [n, row_bytes - …]; the bytes of each row after its value, without the key reference. A slot
  is at its offset from DeSnapshotInfo minus the bytes of a value.
)doc");

REGISTER_OP("DeSnapshotCompact")
    .Input("paths: string")
    .Input("target: string")
    .Output("report: string")
    .SetIsStateful()
    .SetShapeFn(Guarded(CompactShape))
    .Doc(R"doc(
Merges successive files of a chain into one, from file to file, in bounded memory.

A base and its deltas become a base. Deltas alone become a delta that follows the parent of the
first one. The result has the id of the last file, so the next delta can follow it too.

paths: [n]; files of a chain in order.
target: scalar; the new file.
report: scalar; JSON: id, sequence, rows, tombstones, bytes, seconds.
)doc");

REGISTER_OP("DeFrozenTable")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("key_dtype: {int64, int32, string}")
    .Attr("value_dtype: " DE_VALUE_TYPES)
    .Attr("dim: int >= 1")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(Guarded(tensorflow::shape_inference::ScalarShape))
    .Doc("A read-only table over a snapshot file; empty until DeFrozenTableOpen has run.");

REGISTER_OP("DeFrozenTableOpen")
    .Input("handle: resource")
    .Input("path: string")
    .SetShapeFn(Guarded(HandleAndPaths))
    .Doc(R"doc(
Maps snapshot files into memory and serves them under `handle`.

path: scalar, or [n]: a base and its deltas in order, or a chain file that names them. If a file
  does not follow the one before, the op fails and the table is unchanged.
)doc");

REGISTER_OP("DeServingStats")
    .Input("handles: N * resource")
    .Output("stats: string")
    .Attr("N: int >= 1")
    .Attr("tables: list(string)")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) TF_RETURN_IF_ERROR(InputsOfRank(c, {i}, 0));
      return ScalarOutputs(c);
    }))
    .Doc(R"doc(
Describes the frozen tables of an exported model.

handles: open frozen tables; the parts of one table are adjacent.
tables: for each handle the name of its table; the parts of a table have the same name.
stats: scalar; JSON: for each table an object with table, rows, dim, key_dtype, value_dtype,
  stored_as, bytes, oov (and oov_value), base (id), base_created, generation (deltas since the
  base), deltas (number of delta files), id, created, file (a name, or a list of several).
)doc");

REGISTER_OP("DeFrozenTableClose")
    .Input("handle: resource")
    .SetShapeFn(Guarded(HandleOnly))
    .Doc(
        "Undoes one DeFrozenTableOpen. The last one lets the table go, which the last handle "
        "frees.");

}  // namespace de::ops
