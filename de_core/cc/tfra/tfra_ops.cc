// The ops of TensorFlow Recommenders Addons (tfra) 0.8 that its exported models hold, under their
// names and with their arguments.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::tfra {

using ops::Guarded;
using ops::HandleOnly;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ScalarShape;
using tensorflow::shape_inference::UnknownShape;

REGISTER_OP("TFRA>CuckooHashTableOfTensors")
    .Output("table_handle: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("use_node_name_sharing: bool = false")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Attr("value_shape: shape = {}")
    .Attr("init_size: int = 0")
    .SetIsStateful()
    .SetShapeFn(Guarded(ScalarShape))
    .Doc(R"doc(
A table of de_core. Attributes are those of tfra; `init_size` has no effect.

A session finds the table by its shared name, or else by its node's name. In eager mode, tables that
tfra made eagerly are anonymous: two versions of a model have equal names, and must not share rows.
)doc");

// tfra_kernels.cc names our op that each of them runs.
#define DE_OF_TABLE Input("table_handle: resource").SetIsStateful()
#define DE_OF_KEYS DE_OF_TABLE.Input("keys: Tin").Attr("Tin: type")
#define DE_OF_ROWS DE_OF_KEYS.Attr("Tout: type")
#define DE_OF_WHOLE DE_OF_TABLE.Attr("key_dtype: type").Attr("value_dtype: type")
#define DE_OF_FILES                    \
  DE_OF_WHOLE.Input("dirpath: string") \
      .Input("file_name: string")      \
      .Attr("dirpath_env: string")     \
      .Attr("buffer_size: int >= 1")
#define DE_OF_PARTS           \
  Input("indices: N * int32") \
      .Input("data: N * T")   \
      .Output("merged: T")    \
      .Attr("N: int >= 1")    \
      .Attr("T: type")

REGISTER_OP("TFRA>CuckooHashTableFind")
    .DE_OF_ROWS.Input("default_value: Tout")
    .Output("values: Tout")
    .SetShapeFn(Guarded(ops::RowsLikeDefaults));
REGISTER_OP("TFRA>CuckooHashTableFindWithExists")
    .DE_OF_ROWS.Input("default_value: Tout")
    .Output("values: Tout")
    .Output("exists: bool")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(1, c->input(1));
      return ops::RowsLikeDefaults(c);
    }));
REGISTER_OP("TFRA>CuckooHashTableInsert")
    .DE_OF_ROWS.Input("values: Tout")
    .SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableImport")
    .DE_OF_ROWS.Input("values: Tout")
    .SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableRemove").DE_OF_KEYS.SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableClear").DE_OF_WHOLE.SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableSize")
    .DE_OF_TABLE.Output("size: int64")
    .SetShapeFn(Guarded(ScalarShape));
REGISTER_OP("TFRA>CuckooHashTableExport")
    .DE_OF_TABLE.Output("keys: Tkeys")
    .Output("values: Tvalues")
    .Attr("Tkeys: type")
    .Attr("Tvalues: type")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
      return HandleOnly(c);
    }));

// A graph may hold the following ops beside its signatures, in parts that train and save. They have
// no kernel: a model server never runs them.
REGISTER_OP("TFRA>CuckooHashTableAccum")
    .DE_OF_WHOLE.Input("keys: key_dtype")
    .Input("values_or_deltas: value_dtype")
    .Input("exists: bool")
    .SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableSaveToFileSystem")
    .DE_OF_FILES.Attr("append_to_file: bool")
    .SetShapeFn(Guarded(HandleOnly));
REGISTER_OP("TFRA>CuckooHashTableLoadFromFileSystem")
    .DE_OF_FILES.Attr("load_entire_dir: bool")
    .SetShapeFn(Guarded(HandleOnly));

REGISTER_OP("TFRA>DynamicPartition")
    .Input("data: T")
    .Input("partitions: int32")
    .Output("outputs: num_partitions * T")
    .Attr("num_partitions: int >= 1")
    .Attr("T: type")
    .SetShapeFn(Guarded(UnknownShape));
REGISTER_OP("TFRA>DynamicStitch").DE_OF_PARTS.SetShapeFn(Guarded(UnknownShape));
REGISTER_OP("TFRA>DynamicStitchFast").DE_OF_PARTS.SetShapeFn(Guarded(UnknownShape));

}  // namespace de::tfra
