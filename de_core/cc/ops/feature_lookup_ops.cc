// Ops that look up the ids of many features in many tables at once.
#include <string>
#include <vector>

#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

// The features' attributes and inputs after the tables, which all these ops have.
#define DE_FEATURE_INPUTS \
  .Input("ids: Tids").Input("structure: structures * int64").Input("weights: Tweights")
#define DE_FEATURE_ATTRS                                     \
  .Attr("Tids: list({int64, int32, string}) >= 0")           \
      .Attr("structures: int >= 0")                          \
      .Attr("Tweights: list({float, double}) >= 0")          \
      .Attr("table_of: list(int)")                           \
      .Attr("dims: list(int)")                               \
      .Attr("Tvalues: list(" DE_FLOAT_TYPES ")")             \
      .Attr("kinds: list({'dense', 'ragged', 'sparse'})")    \
      .Attr("combiners: list({'', 'sum', 'mean', 'sqrtn'})") \
      .Attr("lengths: list(int)")                            \
      .Attr("weighted: list(bool)")                          \
      .Attr("padded: list(bool)")                            \
      .Attr("padding: list(string)")                         \
      .Attr("joined: bool")

namespace de::ops {
namespace {

using tensorflow::shape_inference::DimensionHandle;

absl::Status WrongAttributes() {
  return absl::InvalidArgumentError(
      "the attributes of an op over features must have one valid element per feature or table. "
      "Received: lists of other lengths");
}

/// Returns the shape of one feature's rows. `structure` is the number of its first structure input.
absl::Status RowsOfFeature(InferenceContext* c, const std::string& kind, bool pools, int64_t length,
                           int64_t dim, int ids, int structure, ShapeHandle* rows) {
  const ShapeHandle given = c->input(ids);
  ShapeHandle outer;
  if (kind == "ragged") {
    ShapeHandle splits;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(structure), 1, &splits));
    DimensionHandle examples;
    TF_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &examples));
    outer = pools || length >= 0 ? c->Vector(examples) : given;
  } else if (kind == "sparse") {
    outer = c->Vector(InferenceContext::kUnknownDim);
  } else if (!c->RankKnown(given)) {
    *rows = c->UnknownShape();
    return absl::OkStatus();
  } else if (c->Rank(given) == 1) {
    return c->Concatenate(given, c->Vector(dim), rows);
  } else {
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(given, 1, &outer));
    if (pools || length >= 0) TF_RETURN_IF_ERROR(c->Subshape(given, 0, -1, &outer));
  }
  if (!pools && length >= 0) {
    TF_RETURN_IF_ERROR(c->Concatenate(outer, c->Vector(length), &outer));
  }
  return c->Concatenate(outer, c->Vector(dim), rows);
}

absl::Status LookupShapes(InferenceContext* c) {
  std::vector<std::string> kinds, combiners;
  std::vector<int64_t> tables, dims, lengths;
  bool joined = false;
  TF_RETURN_IF_ERROR(c->GetAttr("kinds", &kinds));
  TF_RETURN_IF_ERROR(c->GetAttr("combiners", &combiners));
  TF_RETURN_IF_ERROR(c->GetAttr("table_of", &tables));
  TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
  TF_RETURN_IF_ERROR(c->GetAttr("lengths", &lengths));
  TF_RETURN_IF_ERROR(c->GetAttr("joined", &joined));
  const auto handles = static_cast<int>(dims.size()), count = static_cast<int>(kinds.size());
  const size_t size = kinds.size();
  if (combiners.size() != size || tables.size() != size || lengths.size() != size ||
      c->num_inputs() < handles + count || c->num_outputs() != (joined ? 1 : count)) {
    return WrongAttributes();
  }
  int structure = handles + count;
  int64_t width = 0;
  DimensionHandle examples;
  for (int f = 0; f < count; ++f) {
    const auto at = static_cast<size_t>(f);
    const int64_t table = tables[at];
    if (table < 0 || table >= handles || dims[static_cast<size_t>(table)] < 1) {
      return WrongAttributes();
    }
    const int64_t dim = dims[static_cast<size_t>(table)];
    const int parts = kinds[at] == "dense" ? 0 : kinds[at] == "ragged" ? 1 : 2;
    if (structure + parts > c->num_inputs()) return WrongAttributes();
    ShapeHandle rows;
    TF_RETURN_IF_ERROR(RowsOfFeature(c, kinds[at], !combiners[at].empty(), lengths[at], dim,
                                     handles + f, structure, &rows));
    structure += parts;
    width += dim;
    if (!joined) {
      c->set_output(f, rows);
    } else if (c->RankKnown(rows)) {
      // All have as many examples: take the number from a feature where it is known.
      if (f == 0 || !c->ValueKnown(examples)) examples = c->Dim(rows, 0);
      if (c->Rank(rows) != 2) return c->WithRank(rows, 2, &rows);
    }
  }
  if (joined) c->set_output(0, c->Matrix(examples, width));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("DeLookupFeatures")
    .Input("handles: tables * resource") DE_FEATURE_INPUTS.Input("anchors: Tanchors")
    .Output("rows: Trows")
    .Attr("tables: int >= 0") DE_FEATURE_ATTRS.Attr("Tanchors: list(" DE_ANCHOR_TYPES ") >= 0")
    .Attr("anchored: list(int)")
    .Attr("Tkeys: list({int64, int32, string}) >= 0")
    .Attr("Trows: list({float, double}) >= 0")
    .SetShapeFn(Guarded(LookupShapes))
    .Doc(R"doc(
Looks up the ids of many features in live or frozen tables, and pools the rows of each example.
Changes nothing. All tables are read at the same time.

handles: the tables.
ids: of each feature. Dense: [batch], which is one id per example, or [batch, ..., ids]. Ragged and
  sparse: the values, [n]. int32 ids of a table of int64 keys are widened.
structure: for each ragged feature its row splits, for each sparse feature its indices [n, 2] and its
  dense shape, in the order of the features.
weights: for each feature with weights, a number per id, in the shape of the ids. The type is double
  for double rows, and otherwise float.
anchors: the anchors of some tables, if gradients are needed.
anchored: the number of each anchor's table.
Tkeys: the type of the keys of each anchor's table.
rows: of each feature, double for double rows, and otherwise float. With a combiner ids.shape[:-1] +
  [dim]; zeros for an example without ids. Without a combiner ids.shape[:-1] + [length, dim], filled
  with zeros, or ids.shape + [dim] if the length is -1. If `joined`, one matrix of all features.
table_of: the number of each feature's table.
dims: the width of each table's rows.
Tvalues: the type of each table's rows.
kinds: of each feature's ids.
combiners: of each feature; '' for a row per id.
lengths: the most ids of an example that count; -1 for all.
weighted: whether each feature has weights.
padded: whether one id of each feature means padding, which counts like no id.
padding: that id, an integer as text.
joined: whether the rows of all features, one after the other, form one matrix.
)doc");

REGISTER_OP("DeLookupFeaturesGradient")
DE_FEATURE_INPUTS.Input("gradients: Tgradients")
    .Output("unique_keys: Tkeys")
    .Output("values: Ttrained") DE_FEATURE_ATTRS.Attr("Tgradients: list({float, double}) >= 0")
    .Attr("trained: list(int)")
    .Attr("Tkeys: list({int64, int32, string}) >= 0")
    .Attr("Ttrained: list(" DE_FLOAT_TYPES ") >= 0")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      std::vector<int64_t> trained, dims;
      TF_RETURN_IF_ERROR(c->GetAttr("trained", &trained));
      TF_RETURN_IF_ERROR(c->GetAttr("dims", &dims));
      const auto count = static_cast<int>(trained.size());
      if (c->num_outputs() != 2 * count) return WrongAttributes();
      for (int i = 0; i < count; ++i) {
        const auto table = static_cast<size_t>(trained[static_cast<size_t>(i)]);
        if (table >= dims.size() || dims[table] < 1) return WrongAttributes();
        const DimensionHandle keys = c->UnknownDim();
        c->set_output(i, c->Vector(keys));
        c->set_output(count + i, c->Matrix(keys, dims[table]));
      }
      return absl::OkStatus();
    }))
    .Doc(R"doc(
The gradient of DeLookupFeatures with respect to the rows of the tables.

gradients: of each output of DeLookupFeatures.
trained: the numbers of the tables whose gradient is wanted.
unique_keys: of each of these tables, the distinct ids of all its features, [m].
values: the gradient of each key's row, summed over all its occurrences, [m, dim].
)doc");

REGISTER_OP("DeLookupFeaturesWeightGradient")
    .Input("handles: tables * resource") DE_FEATURE_INPUTS.Input("gradients: Tgradients")
    .Input("anchors: Tanchors")
    .Output("weight_gradients: Tweights")
    .Attr("tables: int >= 0") DE_FEATURE_ATTRS.Attr("Tgradients: list({float, double}) >= 0")
    .Attr("Tanchors: list(" DE_ANCHOR_TYPES ") >= 0 = []")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      int tables = 0, structures = 0;
      std::vector<tensorflow::DataType> ids;
      TF_RETURN_IF_ERROR(c->GetAttr("tables", &tables));
      TF_RETURN_IF_ERROR(c->GetAttr("Tids", &ids));
      TF_RETURN_IF_ERROR(c->GetAttr("structures", &structures));
      const int weights = tables + static_cast<int>(ids.size()) + structures;
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(weights + i));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
The gradient of DeLookupFeatures with respect to the weights.

gradients: of each output of DeLookupFeatures.
anchors: as for DeLookupFeatures, for gradients of this gradient.
weight_gradients: of each input `weights`, in its shape; 0 for an id that does not count.
)doc");

}  // namespace de::ops
