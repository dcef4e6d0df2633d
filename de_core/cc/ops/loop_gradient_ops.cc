// Ops that carry a table's gradient out of tf.cond and tf.while_loop.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeLoopAnchor")
    .Input("anchor: Tanchor")
    .Output("token: variant")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .Attr("dim: int >= 1")
    .Attr("Tanchor: {resource, " DE_FLOATS "} = DT_RESOURCE")
    .SetShapeFn(Guarded(ScalarOutputs))
    .Doc(R"doc(
Represents `anchor` inside a loop or a branch. TensorFlow sums gradients of a variant there by the
variant's own rule. The rule of this token is to keep all gradients in a list.

anchor: the table's anchor, or its value.
token: scalar; an empty set of gradients.
)doc");

REGISTER_OP("DeRowGradients")
    .Input("keys: Tkeys")
    .Input("values: Tvalues")
    .Output("gradients: variant")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {1}, 2));
      return ScalarOutputs(c);
    }))
    .Doc(R"doc(
Converts gradients of rows to a variant.

keys: [n].
values: [n, dim].
gradients: scalar.
)doc");

REGISTER_OP("DeRowGradientsConcat")
    .Input("gradients: variant")
    .Output("keys: Tkeys")
    .Output("values: Tvalues")
    .Attr("Tkeys: {int64, int32, string}")
    .Attr("Tvalues: " DE_FLOAT_TYPES)
    .Attr("dim: int >= 1")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      int64_t dim = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      const auto count = c->UnknownDim();
      c->set_output(0, c->Vector(count));
      c->set_output(1, c->Matrix(count, dim));
      return HandleOnly(c);
    }))
    .Doc(R"doc(
Reverses DeRowGradients: concatenates all gradients that were added.

gradients: scalar.
keys: [n].
values: [n, dim].
)doc");

}  // namespace de::ops
