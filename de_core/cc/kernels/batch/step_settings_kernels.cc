// The kernel that computes the settings of an optimizer step.
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "de_core/cc/kernels/base/guarded_op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename Float>
double Power(double base, int64_t exponent) {
  return std::pow(static_cast<Float>(base), static_cast<Float>(exponent));
}

class StepSettings final : public GuardedOp {
 public:
  explicit StepSettings(OpKernelConstruction* context) : GuardedOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("powers", &powers_));
    OP_REQUIRES_OK(context, context->GetAttr("Tpowers", &power_type_));
  }

  absl::Status Execute(OpKernelContext* context) override {
    const Tensor &rate = context->input(0), &step = context->input(1);
    const auto constants = context->input(2).flat<double>();
    if (rate.NumElements() != 1 || step.NumElements() != 1 || constants.size() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("rate and step must be scalars, and constants must not be empty. Received: ",
                       rate.NumElements(), " rates, ", step.NumElements(), " steps and ",
                       constants.size(), " constants."));
    }
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, context->input(2).shape(), &output));
    auto settings = output->flat<double>();
    settings = constants;
    settings(0) =
        rate.dtype() == tensorflow::DT_DOUBLE ? rate.flat<double>()(0) : rate.flat<float>()(0);
    const int64_t exponent = step.flat<int64_t>()(0);
    for (const int64_t i : powers_) {
      if (i < 0 || i >= constants.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("powers must be positions in constants. Received: ", i, " of ",
                         constants.size(), " constants."));
      }
      settings(i) = power_type_ == tensorflow::DT_DOUBLE ? Power<double>(constants(i), exponent)
                                                         : Power<float>(constants(i), exponent);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> powers_;
  tensorflow::DataType power_type_;
};

DE_REGISTER_KERNEL("DeStepSettings", StepSettings);

}  // namespace
}  // namespace de::kernels
