// Connects TensorFlow and the engine: types, thread pool, batches of keys and values.
#ifndef DE_CORE_KERNELS_ENGINE_BRIDGE_H_
#define DE_CORE_KERNELS_ENGINE_BRIDGE_H_

#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/kernels/base/status_bridge.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace de::kernels {

/// Converts a TensorFlow type to the engine's type. Returns an error for types that no table
/// supports.
absl::Status ToEngine(tensorflow::DataType dtype, engine::DType* out);
tensorflow::DataType ToTensorFlow(engine::DType dtype);
/// Returns the engine's type of keys. It is the same for int32 and int64 keys.
engine::KeyType KeyTypeOf(tensorflow::DataType dtype);

/// Runs engine tasks on TensorFlow's thread pools and on the calling thread.
class PoolExecutor final : public engine::Executor {
 public:
  explicit PoolExecutor(tensorflow::OpKernelContext* context);
  size_t threads() const override;
  void Run(size_t count, const std::function<void(size_t)>& task) override;

 private:
  tensorflow::thread::ThreadPool* pool_;
  std::function<void(std::function<void()>)>*
      runner_;  ///< schedules in the inter-op pool; may be nullptr
};

/// The engine's view of a tensor of keys. The tensor must outlive it.
class KeyBatch {
 public:
  explicit KeyBatch(const tensorflow::Tensor& keys);
  const engine::Keys& keys() const noexcept { return keys_; }

 private:
  engine::Keys keys_;
  std::vector<int64_t> widened_;
  std::vector<std::string_view> views_;
};

/// The engine's view of a tensor of values. The tensor must outlive it.
class ValueBatch {
 public:
  explicit ValueBatch(const tensorflow::Tensor& values);
  const engine::Values& values() const noexcept { return values_; }

 private:
  engine::Values values_;
  std::vector<std::string_view> views_;
};

/// A tensor that receives values from the engine.
class ValueTarget final : public engine::ValueSink {
 public:
  explicit ValueTarget(tensorflow::Tensor* values);
  engine::ValuesOut out() noexcept;
  void Set(size_t element, std::string_view bytes) override;

 private:
  tensorflow::Tensor* values_;
};

/// Computes keys.shape + [width].
absl::Status RowsShape(const tensorflow::Tensor& keys, int64_t width,
                       tensorflow::TensorShape* shape);

/// Allocates output `index` with shape `dims`. Returns an error if the caller's numbers are too
/// large.
absl::Status AllocateOutput(tensorflow::OpKernelContext* context, int index,
                            std::initializer_list<int64_t> dims, tensorflow::Tensor** output);

/// Returns InvalidArgument if the tensor has more keys than a batch may have.
absl::Status CheckKeyCount(const tensorflow::Tensor& keys);

}  // namespace de::kernels

/// OP_REQUIRES_OK for an engine Status.
#define DE_OP_REQUIRES_OK(context, expression) \
  OP_REQUIRES_OK(context, ::de::kernels::ToAbsl(expression))

#endif  // DE_CORE_KERNELS_ENGINE_BRIDGE_H_
