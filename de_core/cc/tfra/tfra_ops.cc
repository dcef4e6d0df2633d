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

REGISTER_OP("TFRA>CuckooHashTableFind")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("default_value: Tout")
    .Output("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(ops::RowsLikeDefaults))
    .Doc("See DeTableFindWithDefaults.");

REGISTER_OP("TFRA>CuckooHashTableFindWithExists")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("default_value: Tout")
    .Output("values: Tout")
    .Output("exists: bool")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(1, c->input(1));
      return ops::RowsLikeDefaults(c);
    }))
    .Doc("See DeTableFindWithDefaults.");

REGISTER_OP("TFRA>CuckooHashTableInsert")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("See DeTableInsertOrAssign.");

REGISTER_OP("TFRA>CuckooHashTableImport")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Input("values: Tout")
    .Attr("Tin: type")
    .Attr("Tout: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("Replaces all rows: DeTableClear, then DeTableInsertOrAssign.");

REGISTER_OP("TFRA>CuckooHashTableRemove")
    .Input("table_handle: resource")
    .Input("keys: Tin")
    .Attr("Tin: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("See DeTableErase.");

REGISTER_OP("TFRA>CuckooHashTableClear")
    .Input("table_handle: resource")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly))
    .Doc("See DeTableClear.");

REGISTER_OP("TFRA>CuckooHashTableSize")
    .Input("table_handle: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn(Guarded(ScalarShape))
    .Doc("See DeTableSize.");

REGISTER_OP("TFRA>CuckooHashTableExport")
    .Input("table_handle: resource")
    .Output("keys: Tkeys")
    .Output("values: Tvalues")
    .Attr("Tkeys: type")
    .Attr("Tvalues: type")
    .SetIsStateful()
    .SetShapeFn(Guarded([](InferenceContext* c) {
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, InferenceContext::kUnknownDim));
      return HandleOnly(c);
    }))
    .Doc("See DeTableExport.");

// A graph may hold the following ops beside its signatures, in parts that train and save. They have
// no kernel: a model server never runs them.
REGISTER_OP("TFRA>CuckooHashTableAccum")
    .Input("table_handle: resource")
    .Input("keys: key_dtype")
    .Input("values_or_deltas: value_dtype")
    .Input("exists: bool")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly));

REGISTER_OP("TFRA>CuckooHashTableSaveToFileSystem")
    .Input("table_handle: resource")
    .Input("dirpath: string")
    .Input("file_name: string")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Attr("dirpath_env: string")
    .Attr("append_to_file: bool")
    .Attr("buffer_size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly));

REGISTER_OP("TFRA>CuckooHashTableLoadFromFileSystem")
    .Input("table_handle: resource")
    .Input("dirpath: string")
    .Input("file_name: string")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Attr("dirpath_env: string")
    .Attr("load_entire_dir: bool")
    .Attr("buffer_size: int >= 1")
    .SetIsStateful()
    .SetShapeFn(Guarded(HandleOnly));

REGISTER_OP("TFRA>DynamicPartition")
    .Input("data: T")
    .Input("partitions: int32")
    .Output("outputs: num_partitions * T")
    .Attr("num_partitions: int >= 1")
    .Attr("T: type")
    .SetShapeFn(Guarded(UnknownShape))
    .Doc("TensorFlow's DynamicPartition.");

REGISTER_OP("TFRA>DynamicStitch")
    .Input("indices: N * int32")
    .Input("data: N * T")
    .Output("merged: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .SetShapeFn(Guarded(UnknownShape))
    .Doc("TensorFlow's DynamicStitch.");

REGISTER_OP("TFRA>DynamicStitchFast")
    .Input("indices: N * int32")
    .Input("data: N * T")
    .Output("merged: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .SetShapeFn(Guarded(UnknownShape))
    .Doc("TensorFlow's DynamicStitch.");

}  // namespace de::tfra
