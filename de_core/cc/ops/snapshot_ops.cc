// Ops that write tables to snapshot files and read them back.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {
namespace {

absl::Status HandleAndPath(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {0, 1}, 0));
  return ScalarOutputs(c);
}

absl::Status HandlePathKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
  return HandleAndPath(c);
}

absl::Status Restores(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleAndPaths(c));
  return ScalarOutputs(c);
}

absl::Status RestoresKeys(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
  return Restores(c);
}

absl::Status HandlePathRangeMask(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {2, 3}, 0));
  TF_RETURN_IF_ERROR(InputsOfRank(c, {4}, 1));
  return HandleAndPath(c);
}

}  // namespace

// What a save of all rows and one of given keys share.
#define DE_SAVE_ATTRS                            \
  Attr("values_only: bool = false")              \
      .Attr("metadata: list(string) = []")       \
      .Attr("chain: string = ''")                \
      .Attr("delta: bool = false")               \
      .Attr("commit: bool = true")               \
      .Attr("consistent: bool = false")          \
      .Attr("consistent_bytes: int = 268435456") \
      .Attr("store_as: string = ''")             \
      .Attr("of_checkpoint: bool = false")       \
      .Attr("keep_slots: list(string) = []")     \
      .Attr("keep_at_least: list(string) = []")

REGISTER_OP("DeTableSave")
    .Input("handle: resource")
    .Input("path: string")
    .Output("report: string")
    .DE_SAVE_ATTRS.SetShapeFn(HandleAndPath)
    .Doc(R"doc(
Writes a live table to one snapshot file while other verbs go on.

The file gets its name when it is whole and synced; a failed save leaves none. Each row, value and
slots, is of one moment during the save.

path: scalar; where the file shall lie.
report: scalar; JSON: id, parent, sequence, rows, tombstones, bytes, seconds, rested_seconds (of
  those, for how long the save slept to leave the cores to the rest of the process),
  longest_hold_seconds (for how long it kept writers of one part of the table waiting at most),
  copied_bytes (what `consistent` held at most), and with `store_as` max_error and mean_error of the stored values.
values_only: leave the optimizer slots out.
metadata: keys and values in turn, kept in the file's header.
chain: name of a series of saves; the table notes from now on which rows change after this one.
delta: write only what changed since the last save of `chain`, which is the file's parent.
commit: make this save the parent of the chain's next delta. Else DeTableCommitSave does.
consistent: all rows are of one moment, when the save begins. Rows that change before they are
  written are copied first.
consistent_bytes: what those copies may take; the save fails when they need more.
store_as: '', or what values are stored as, 'float32', 'float16', 'bfloat16' or 'int8' with a scale
  a row. The table's values must be floating point.
of_checkpoint: the path is that of a checkpoint of TensorFlow's, `<prefix>.data-<anything>`. If
  `<prefix>.index` of this op's last run was not written, its file is deleted first; if it was, so
  are the files of runs before it under that prefix. One op a table.
keep_slots: owner and name of slots in turn; only rows with at least the matching number of
  `keep_at_least` in the first element of each of them are written.
keep_at_least: one decimal number for each slot of `keep_slots`; as text, for times in microseconds
  are more than a float holds.
)doc");

REGISTER_OP("DeTableSaveKeys")
    .Input("handle: resource")
    .Input("path: string")
    .Input("keys: key_dtype")
    .Attr("key_dtype: {int64, int32, string}")
    .Output("report: string")
    .DE_SAVE_ATTRS.SetShapeFn(HandlePathKeys)
    .Doc(R"doc(
DeTableSave of the rows of some keys alone; it belongs to no chain.

keys: [n]; keys without a row are not in the file.
)doc");

REGISTER_OP("DeTableCommitSave")
    .Input("handle: resource")
    .Input("id: string")
    .Attr("chain: string")
    .SetShapeFn(HandleAndPath)
    .Doc(R"doc(
Makes a save that ran with commit=false the parent of the next delta of its chain.

id: scalar; the save's id, from its report. It must be the chain's last save.
)doc");

REGISTER_OP("DeTableDropChain")
    .Input("handle: resource")
    .Attr("chain: string")
    .SetShapeFn(HandleOnly)
    .Doc("Ends a chain of saves: the table no longer notes what changes for it.");

REGISTER_OP("DeTableChains")
    .Input("handle: resource")
    .Output("chains: string")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("JSON: for each chain of a table its name, last id and sequence, and the bytes of marks.");

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
    .Attr("map: bool = false")
    .SetShapeFn(Restores)
    .Doc(R"doc(
Reads snapshot files into a live table. A file that does not fit or is damaged changes nothing.

path: scalar or [n]; bases, each followed by its deltas in their order. Several bases are those of
  a table that was saved in parts.
report: scalar; JSON: rows (in the table afterwards), read (from the files), bytes, seconds, id and
  sequence of the last file.
replace: remove the rows that are not in the files, and read new keys as the saved table did.
slots: read the optimizer slots too; else rows get their slots' initial values.
convert: take values of another floating-point dtype, and values stored in a smaller one.
shard_index, shard_count: read only keys that DeShardOf gives to this shard of so many.
chain: go on with a chain of saves: its next delta belongs on the last of these files. Only for one
  base with its deltas, read whole.
map: where one of the files holds all and only the rows of this shard, answer from it where it lies,
  mapped, and read it into the table when more than rows is wanted of that, such as to write them.
  Its header, directory and footer are checked at once. The report's `read` is 0 then.
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
    .SetShapeFn(RestoresKeys)
    .Doc(R"doc(
DeTableRestore of some keys alone.

keys: [n]; with `replace` all others are removed.
)doc");

REGISTER_OP("DeTableRestorePart")
    .Input("handle: resource")
    .Input("path: string")
    .Input("first: int64")
    .Input("count: int64")
    .Input("mask: bool")
    .Attr("slots: bool = true")
    .Attr("convert: bool = false")
    .SetShapeFn(HandlePathRangeMask)
    .Doc(R"doc(
Applies some rows of some sections of one snapshot file to a live table: rows replace those that are
there, tombstones remove them. For rows that a program chooses, after DeSnapshotRead has told it the
keys. Checks the sections it reads; verify the file first with DeSnapshotInfo.

first, count: the sections, count >= 1.
mask: [rows and tombstones of the sections], in the order of DeSnapshotRead.
)doc");

}  // namespace de::ops
