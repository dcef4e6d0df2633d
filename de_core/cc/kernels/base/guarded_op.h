// A kernel whose constructor and Compute turn exceptions of the standard library into errors.
#ifndef DE_CORE_KERNELS_GUARDED_OP_H_
#define DE_CORE_KERNELS_GUARDED_OP_H_

#include "de_core/cc/kernels/base/status_bridge.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// A kernel that returns a Status. Exceptions of the standard library become errors.
class GuardedOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) final {
    const absl::Status status = GuardedKernel([&] { return Execute(context); });
    // Not OP_REQUIRES_OK: it writes a line of the log, which allocates memory.
    if (!status.ok()) context->SetStatus(status);
  }

 protected:
  virtual absl::Status Execute(tensorflow::OpKernelContext* context) = 0;
};

/// Creates a kernel. If its constructor throws, returns nullptr and an error in `context`.
/// CreateOpKernel (TensorFlow 2.21) deletes the kernel of a failed construction, or nullptr.
template <typename Kernel>
tensorflow::OpKernel* GuardedNew(tensorflow::OpKernelConstruction* context) {
  tensorflow::OpKernel* kernel = nullptr;
  const absl::Status status = GuardedKernel([&] {
    kernel = new Kernel(context);
    return absl::OkStatus();
  });
  if (!status.ok()) context->SetStatus(status);
  return kernel;
}

}  // namespace de::kernels

#define DE_REGISTER_KERNEL_AS(id, op, ...)                                              \
  static const ::tensorflow::kernel_factory::OpKernelRegistrar register_kernel_##id(    \
      ::tensorflow::register_kernel::Name(op).Device(::tensorflow::DEVICE_CPU).Build(), \
      #__VA_ARGS__, ::de::kernels::GuardedNew<__VA_ARGS__>)

/// Registers a class as the kernel of `op`. Use it instead of REGISTER_KERNEL_BUILDER, whose
/// factory throws if the class's constructor does.
#define DE_REGISTER_KERNEL(op, ...) TF_NEW_ID_FOR_INIT(DE_REGISTER_KERNEL_AS, op, __VA_ARGS__)

#endif  // DE_CORE_KERNELS_GUARDED_OP_H_
