// Kernels that convert strings to numbers and back.
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/table/table_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kWord = sizeof(int64_t);

int64_t Words(int64_t length) { return length / kWord + (length % kWord != 0); }

class StringsToWords final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

  absl::Status Execute(OpKernelContext* context) override {
    const auto strings = context->input(0).flat<tensorflow::tstring>();
    int64_t total = 0;
    for (int64_t i = 0; i < strings.size(); ++i) total += Words(strings(i).size());
    Tensor *words = nullptr, *lengths = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({total}), &words));
    TF_RETURN_IF_ERROR(context->allocate_output(1, context->input(0).shape(), &lengths));
    auto length_of = lengths->flat<int64_t>();
    int64_t* next = words->flat<int64_t>().data();
    for (int64_t i = 0; i < strings.size(); ++i) {
      const int64_t length = strings(i).size(), count = Words(length);
      length_of(i) = length;
      if (count == 0) continue;
      next[count - 1] = 0;
      std::memcpy(next, strings(i).data(), length);
      next += count;
    }
    return absl::OkStatus();
  }
};

class WordsToStrings final : public GuardedOp {
 public:
  using GuardedOp::GuardedOp;

  absl::Status Execute(OpKernelContext* context) override {
    const auto words = context->input(0).flat<int64_t>();
    const auto lengths = context->input(1).flat<int64_t>();
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, context->input(1).shape(), &output));
    auto strings = output->flat<tensorflow::tstring>();
    int64_t used = 0;
    for (int64_t i = 0; i < lengths.size(); ++i) {
      const int64_t length = lengths(i);
      if (length < 0 || Words(length) > words.size() - used) {
        return absl::InvalidArgumentError(
            absl::StrCat("lengths must add up to the given words. Received: length ", length,
                         " of string ", i, " with ", words.size() - used, " words left."));
      }
      strings(i).assign(reinterpret_cast<const char*>(words.data() + used), length);
      used += Words(length);
    }
    if (used != words.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("lengths must add up to the given words. Received: ", lengths.size(),
                       " lengths, and ", words.size() - used, " words too many."));
    }
    return absl::OkStatus();
  }
};

DE_REGISTER_KERNEL("DeStringsToWords", StringsToWords);
DE_REGISTER_KERNEL("DeWordsToStrings", WordsToStrings);

}  // namespace
}  // namespace de::kernels
