// Ops that write tables to snapshot files and read them back.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status HandlePathKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
  return HandleAndScalar(c);
}

absl::Status Restores(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleAndPaths(c));
  return ScalarOutputs(c);
}

absl::Status RestoresKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
  return Restores(c);
}

}  // namespace

// Common attributes of saves of all rows and of chosen keys.
#define DE_SAVE_ATTRS                        \
  Attr("values_only: bool = false")          \
      .Attr("metadata: list(string) = []")   \
      .Attr("chain: string = ''")            \
      .Attr("delta: bool = false")           \
      .Attr("commit: bool = true")           \
      .Attr("consistent: bool = false")      \
      .Attr("store_as: string = ''")         \
      .Attr("of_checkpoint: bool = false")   \
      .Attr("keep_slots: list(string) = []") \
      .Attr("keep_at_least: list(string) = []")

REGISTER_OP("DeTableSave")
    .Input("handle: resource")
    .Input("path: string")
    .Output("report: string")
    .DE_SAVE_ATTRS.SetShapeFn(Guarded(HandleAndScalar))
    .Doc(R"doc(
Writes a live table to one snapshot file while other ops continue.

The file appears under its name when it is complete and synced. A failed save leaves no file. The
value and slots of each row are of the same moment during the save.

path: scalar; the file's path.
report: scalar; JSON: id, parent, sequence, rows, tombstones, bytes, seconds, rested_seconds (how
  long the save slept to leave the cores to the rest of the process), longest_hold_seconds (the
  longest time that writers of a part of the table waited), copied_bytes (greatest memory of copies
  for `consistent`), and with `store_as` max_error and mean_error of the stored values.
values_only: omit the optimizer slots.
metadata: alternating keys and values, stored in the file's header.
chain: name of a series of saves. From now on the table records which rows change after this save.
delta: write only the changes since the last save of `chain`, which is the file's parent.
commit: make this save the parent of the chain's next delta. Otherwise call DeTableCommitSave.
consistent: save all rows as of the moment when the save begins. Rows that change before they are
  written are copied first. The save fails if these copies need more than 256 MiB.
store_as: '', or the dtype in which values are stored: 'float32', 'float16', 'bfloat16', or 'int8'
  with a scale per row. The table's values must be floating-point.
of_checkpoint: the path belongs to a TensorFlow checkpoint, `<prefix>.data-<anything>`. If
  `<prefix>.index` of this op's last run was not written, that run's file is deleted first. If it
  was, the files of earlier runs under that prefix are deleted. Use one op per table.
keep_slots: alternating owners and names of slots. Only rows are written whose slots all have at
  least the matching number of `keep_at_least` in their first element.
keep_at_least: one decimal number for each slot of `keep_slots`, as text: a float cannot represent
  times in microseconds exactly.
)doc");

REGISTER_OP("DeTableSaveKeys")
    .Input("handle: resource")
    .Input("path: string")
    .Input("keys: key_dtype")
    .Attr("key_dtype: {int64, int32, string}")
    .Output("report: string")
    .DE_SAVE_ATTRS.SetShapeFn(Guarded(HandlePathKeys))
    .Doc(R"doc(
Like DeTableSave for some keys only. The save belongs to no chain.

keys: [n]; keys without a row are not written.
)doc");

REGISTER_OP("DeTableCommitSave")
    .Input("handle: resource")
    .Input("id: string")
    .Attr("chain: string")
    .SetShapeFn(Guarded(HandleAndScalar))
    .Doc(R"doc(
Makes a save that ran with commit=false the parent of its chain's next delta.

id: scalar; the save's id, from its report. It must be the chain's last save.
)doc");

REGISTER_OP("DeTableChains")
    .Input("handle: resource")
    .Output("chains: string")
    .SetShapeFn(Guarded(tensorflow::shape_inference::ScalarShape))
    .Doc("JSON: for each chain of a table its name, last id and sequence; the changes' memory.");

REGISTER_OP("DeTableRestore")
    .Input("handle: resource")
    .Input("path: string")
    .Output("report: string")
    .Attr("replace: bool = true")
    .Attr("slots: bool = true")
    .Attr("convert: bool = false")
    .Attr("shard_index: int = 0")
    .Attr("shard_count: int >= 1 = 1")
    .Attr("chain: string = ''")
    .SetShapeFn(Guarded(Restores))
    .Doc(R"doc(
Reads snapshot files into a live table. If a file does not fit or is damaged, nothing changes.

path: scalar or [n]; bases, each followed by its deltas in order. Several bases are the parts of one
  saved table.
report: scalar; JSON: rows (in the table afterwards), read (from the files), bytes, seconds, id and
  sequence of the last file.
replace: remove rows that are not in the files, and use the saved table's initial rows.
slots: read the optimizer slots too. Otherwise rows get their slots' initial values.
convert: convert values from another floating-point dtype, or from a smaller storage format.
shard_index, shard_count: read only keys that DeShardOf assigns to this shard.
chain: continue a chain of saves: its next delta follows the last of these files. Only for one base
  with its deltas, read completely.
)doc");

REGISTER_OP("DeTableRestoreKeys")
    .Input("handle: resource")
    .Input("path: string")
    .Input("keys: key_dtype")
    .Attr("key_dtype: {int64, int32, string}")
    .Output("report: string")
    .Attr("replace: bool = true")
    .Attr("slots: bool = true")
    .Attr("convert: bool = false")
    .Attr("shard_index: int = 0")
    .Attr("shard_count: int >= 1 = 1")
    .SetShapeFn(Guarded(RestoresKeys))
    .Doc(R"doc(
Like DeTableRestore for some keys only.

keys: [n]; with `replace`, all other rows are removed.
)doc");

}  // namespace de::ops
