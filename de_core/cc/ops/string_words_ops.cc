// Ops that convert strings to numbers and back, for transports that carry only numbers.
#include "de_core/cc/ops/shapes.h"
#include "tensorflow/core/framework/op.h"

namespace de::ops {

REGISTER_OP("DeStringsToWords")
    .Input("strings: string")
    .Output("words: int64")
    .Output("lengths: int64")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {0}, 1));
      c->set_output(0, c->Vector(c->UnknownDim()));
      c->set_output(1, c->Vector(c->Dim(c->input(0), 0)));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Returns the bytes of strings, each padded with zeros to whole 8-byte words.

strings: [n].
words: [m]; a string of k bytes has (k + 7) / 8 words, in this machine's byte order.
lengths: [n], in bytes.
)doc");

REGISTER_OP("DeWordsToStrings")
    .Input("words: int64")
    .Input("lengths: int64")
    .Output("strings: string")
    .SetShapeFn(Guarded([](InferenceContext* c) {
      TF_RETURN_IF_ERROR(InputsOfRank(c, {0, 1}, 1));
      c->set_output(0, c->Vector(c->Dim(c->input(1), 0)));
      return absl::OkStatus();
    }))
    .Doc(R"doc(
Reverses DeStringsToWords.

words: [m].
lengths: [n], in bytes; together they have m words.
strings: [n].
)doc");

}  // namespace de::ops
