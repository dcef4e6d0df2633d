// Shape functions and dtypes shared by the op registrations.
#ifndef DE_CORE_OPS_SHAPES_H_
#define DE_CORE_OPS_SHAPES_H_

#include <initializer_list>
#include <new>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"

// The dtypes that the attributes of ops allow.
#define DE_FLOATS "float, double, half, bfloat16"
#define DE_NUMBERS DE_FLOATS ", int8, int32, int64"

/// An anchor, the token of a DeLoopAnchor, or the value of an anchor.
#define DE_ANCHOR_TYPES "{resource, variant, " DE_FLOATS "}"
/// Value types of tables whose rows can be trained.
#define DE_FLOAT_TYPES "{" DE_FLOATS "}"
/// Value types of tables whose rows support addition.
#define DE_NUMBER_TYPES "{" DE_NUMBERS "}"
/// Value types of all tables.
#define DE_VALUE_TYPES "{" DE_NUMBERS ", bool, string}"

/// The first inputs of the ops that read or write the rows of some keys.
#define DE_TABLE_AND_KEYS \
  Input("handle: resource").Input("keys: Tkeys").Attr("Tkeys: {int64, int32, string}")

namespace de::ops {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

/// Makes a shape function that returns an error if `shape` runs out of memory. TensorFlow's callers
/// do not expect exceptions.
template <typename Shape>
auto Guarded(Shape shape) {
  return [shape](InferenceContext* c) -> absl::Status {
    try {
      return shape(c);
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");  // a message would need memory
    }
  };
}

/// Requires these inputs to have this rank.
inline absl::Status InputsOfRank(InferenceContext* c, std::initializer_list<int> inputs, int rank) {
  ShapeHandle unused;
  for (const int i : inputs) TF_RETURN_IF_ERROR(c->WithRank(c->input(i), rank, &unused));
  return absl::OkStatus();
}

/// Requires input 0, a table's handle, to be a scalar.
inline absl::Status HandleOnly(InferenceContext* c) { return InputsOfRank(c, {0}, 0); }

/// Requires input 0 to be a table's handle (a scalar), and input 1 one path or a vector of paths.
inline absl::Status HandleAndPaths(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(1), 1, &unused));
  return HandleOnly(c);
}

/// Requires input 0, a table's handle, to be a scalar. Outputs 0 and 1 are vectors.
inline absl::Status HandleToVectors(InferenceContext* c) {
  for (int i = 0; i < 2; ++i) c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
  return HandleOnly(c);
}

/// Makes all outputs scalars.
inline absl::Status ScalarOutputs(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  return absl::OkStatus();
}

/// Requires input 0, a table's handle, to be a scalar. All outputs are scalars.
inline absl::Status HandleToScalars(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleOnly(c));
  return ScalarOutputs(c);
}

/// Like HandleToScalars. Input 1 is a scalar too.
inline absl::Status HandleAndScalar(InferenceContext* c) {
  TF_RETURN_IF_ERROR(InputsOfRank(c, {1}, 0));
  return HandleToScalars(c);
}

/// Sets output 0 to keys.shape + [dim] and output 1 to keys.shape, with the table's handle in input
/// 0, the keys in input 1, and the attribute `dim`.
inline absl::Status RowsAndFound(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleOnly(c));
  int64_t dim = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->Concatenate(c->input(1), c->Vector(dim), &rows));
  c->set_output(0, rows);
  c->set_output(1, c->input(1));
  return absl::OkStatus();
}

/// Sets output 0 to keys.shape + [dim], with the keys in input 1 and rows of `dim` values in
/// input 2.
inline absl::Status RowsLikeDefaults(InferenceContext* c) {
  TF_RETURN_IF_ERROR(HandleOnly(c));
  const ShapeHandle defaults = c->input(2);
  ShapeHandle rows;
  const bool known = c->RankKnown(defaults) && c->Rank(defaults) > 0;
  TF_RETURN_IF_ERROR(c->Concatenate(
      c->input(1), known ? c->Vector(c->Dim(defaults, -1)) : c->Vector(c->UnknownDim()), &rows));
  c->set_output(0, rows);
  return absl::OkStatus();
}

/// Requires input `values` to be keys.shape + [anything].
inline absl::Status ValuesFollowKeys(InferenceContext* c, int keys, int values) {
  TF_RETURN_IF_ERROR(HandleOnly(c));
  ShapeHandle wanted, merged;
  TF_RETURN_IF_ERROR(
      c->Concatenate(c->input(keys), c->Vector(InferenceContext::kUnknownDim), &wanted));
  return c->Merge(c->input(values), wanted, &merged);
}

}  // namespace de::ops

#endif  // DE_CORE_OPS_SHAPES_H_
