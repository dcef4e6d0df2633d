// Ops that create a table and describe it.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

using tensorflow::shape_inference::ScalarShape;

REGISTER_OP("DeTable")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("anonymous: bool = false")
    .Attr("key_dtype: {int64, int32, string}")
    .Attr("value_dtype: " DE_VALUE_TYPES)
    .Attr("dim: int >= 1")
    .Attr("init_size: int >= 0 = 0")
    .Attr("initializer: string = 'zeros'")
    .Attr("init_args: list(float) = []")
    .Attr("init_seed: int = 0")
    .Attr("init_table: list(float) = []")
    .Attr("policy: string = ''")
    .Attr("tier_path: string = ''")
    .Attr("tier_bytes: int >= 0 = 0")
    .Attr("slot_dtype: {float, bfloat16} = DT_FLOAT")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(Guarded(ScalarShape))
    .Doc(R"doc(
A hash table from keys to rows of `dim` values that grows as rows are written.

anonymous: the handle counts references, and the table is freed with the last one or with its lease.
  Otherwise the table is in the resource manager under `container` and `shared_name`.
init_size: number of rows to reserve.
initializer: the initial row of a key: 'zeros', 'constant' [v], 'uniform' [low, high],
  'normal' [mean, stddev], 'truncated_normal' [mean, stddev], 'row' (init_table: dim values) or
  'quantile' (init_table: q rows of dim values, columns ascending). A function of (init_seed, key).
policy: metadata, admission and eviction, as text 'name=number;name=number'. row_policy.h lists the
  fields.
tier_path: a local folder for the rows that are not in memory. Empty: all rows are in memory.
tier_bytes: with `tier_path`, the memory for rows and their index.
slot_dtype: dtype of optimizer slots with `dim` elements. bfloat16 slots are rounded stochastically.
  Tables of float64 have float64 slots.
handle: the table.
)doc");

REGISTER_OP("DeTableLease")
    .Input("handle: resource")
    .Output("lease: resource")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleToScalars))
    .Doc(R"doc(
Frees a live table together with its owner, even if functions that captured its handle still exist.

lease: counts references. The table is freed with the last one. Later ops on the table fail.
)doc");

REGISTER_OP("DeTableSize")
    .Input("handle: resource")
    .Output("size: int64")
    .SetShapeFn(Guarded(HandleToScalars))
    .Doc("Number of rows in a live or frozen table.");

REGISTER_OP("DeTableStats")
    .Input("handle: resource")
    .Output("stats: string")
    .SetShapeFn(Guarded(HandleToScalars))
    .Doc(R"doc(
Describes a table. DeServingStats describes the files of a frozen table.

stats: scalar; JSON: rows, dim, dtypes, and the numbers of ops and gradients with their times and
  norms. For rows in memory also bytes by part, load factor, hits, misses and evicted rows.
)doc");

REGISTER_OP("DeProcessTables")
    .Output("tables: string")
    .SetIsStateful()
    .SetShapeFn(Guarded(ScalarShape))
    .Doc(R"doc(
Lists the live tables in the process that runs the op, whoever created them.

tables: scalar; JSON: for each table an object with table (its name) and stats (see DeTableStats).
)doc");

REGISTER_OP("DeTableReserve")
    .Input("handle: resource")
    .Input("rows: int64")
    .SetShapeFn(Guarded(HandleAndScalar))
    .Doc("Reserves memory for `rows` rows in total, so that inserts do not grow the table.");

REGISTER_OP("DeTableShrinkToFit")
    .Input("handle: resource")
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("Compacts the rows and returns the memory of erased rows to the system.");

REGISTER_OP("DeShardOf")
    .Input("keys: Tkeys")
    .Output("shards: int32")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("num_shards: int >= 1")
    .SetShapeFn(Guarded(tensorflow::shape_inference::UnchangedShape))
    .Doc("Returns the shard of each key in [0, num_shards): the same on every build and machine.");

}  // namespace de::ops
