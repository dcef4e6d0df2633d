// The op that computes the settings of an optimizer step.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeStepSettings")
    .Input("rate: Trate")
    .Input("step: int64")
    .Input("constants: double")
    .Output("settings: double")
    .Attr("Trate: {float, double}")
    .Attr("powers: list(int)")
    .Attr("Tpowers: {float, double}")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {0, 1}, 0));
      TF_RETURN_IF_ERROR(InputsOfRank(c, {2}, 1));
      c->set_output(0, c->input(2));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Returns the settings of one optimizer step: `constants` with the learning rate as element 0, and
with some elements raised to the power of the step.

rate: a scalar.
step: a scalar; the number of the step, counted from 1.
constants: [k].
settings: [k].
powers: positions in `constants`.
Tpowers: the dtype in which powers are computed.
)doc");

}  // namespace de::ops
