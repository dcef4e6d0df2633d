// Shape functions shared by the op registrations.
#ifndef DE_CORE_OPS_SHAPES_H_
#define DE_CORE_OPS_SHAPES_H_

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace de::ops {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

/// Requires input 0, a table's handle, to be a scalar.
inline absl::Status HandleOnly(InferenceContext* c) {
  ShapeHandle unused;
  return c->WithRank(c->input(0), 0, &unused);
}

/// Sets output `index` to keys.shape + [dim], where `keys` is an input and `dim` an attribute.
inline absl::Status RowsOf(InferenceContext* c, int keys, int index) {
  int64_t dim = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->Concatenate(c->input(keys), c->Vector(dim), &rows));
  c->set_output(index, rows);
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
