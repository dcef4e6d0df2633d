#include "de_core/cc/kernels/base/engine_bridge.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"

namespace de::kernels {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::tstring;

namespace {

struct ValueType {
  engine::DType engine;
  DataType tensorflow;
};
constexpr ValueType kValueTypes[] = {
    {engine::DType::kFloat32, tensorflow::DT_FLOAT},
    {engine::DType::kFloat64, tensorflow::DT_DOUBLE},
    {engine::DType::kHalf, tensorflow::DT_HALF},
    {engine::DType::kBFloat16, tensorflow::DT_BFLOAT16},
    {engine::DType::kInt8, tensorflow::DT_INT8},
    {engine::DType::kInt32, tensorflow::DT_INT32},
    {engine::DType::kInt64, tensorflow::DT_INT64},
    {engine::DType::kBool, tensorflow::DT_BOOL},
    {engine::DType::kString, tensorflow::DT_STRING},
};

}  // namespace

absl::Status ToEngine(DataType dtype, engine::DType* out) {
  std::string names;
  for (const ValueType& each : kValueTypes) {
    if (each.tensorflow == dtype) {
      *out = each.engine;
      return absl::OkStatus();
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", engine::NameOf(each.engine));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a table's values must be one of ", names,
                   ". Received: ", tensorflow::DataTypeString(dtype)));
}

DataType ToTensorFlow(engine::DType dtype) {
  for (const ValueType& each : kValueTypes) {
    if (each.engine == dtype) return each.tensorflow;
  }
  return tensorflow::DT_INVALID;
}

engine::KeyType KeyTypeOf(DataType dtype) {
  return dtype == tensorflow::DT_STRING ? engine::KeyType::kString : engine::KeyType::kInt64;
}

namespace {

// The caller polls this often before it sleeps: a few tens of microseconds.
constexpr int kSpins = 1000;

/// Yields to the core's other hardware thread for a moment.
void Pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

PoolExecutor::PoolExecutor(tensorflow::OpKernelContext* context)
    : pool_(context->device()->tensorflow_cpu_worker_threads()->workers),
      runner_(context->runner()) {}

size_t PoolExecutor::threads() const { return static_cast<size_t>(pool_->NumThreads()); }

void PoolExecutor::Run(size_t count, const std::function<void(size_t)>& task) {
  // Each thread that becomes free takes the next task, and so does the caller. The caller waits
  // until all tasks are finished, but not for helpers that were scheduled and did not start. So a
  // busy pool delays nothing.
  struct Shared {
    std::atomic<size_t> next{0};
    std::atomic<size_t> done{0};      ///< changed under the mutex
    std::atomic<bool> joined{false};  ///< the last helper has started
    /// the runner ran the helper on the caller's thread, so it has no other thread; only the
    /// caller's thread accesses this
    bool declined = false;
    std::mutex mutex;
    std::condition_variable all_done;
  };
  const auto shared = std::make_shared<Shared>();
  const auto take_tasks = [shared, count, &task](const auto& after_task) {
    size_t finished = 0;
    for (size_t at; (at = shared->next.fetch_add(1)) < count; ++finished) {
      task(at);
      after_task();
    }
    if (finished == 0) return;
    const std::lock_guard<std::mutex> guard(shared->mutex);
    shared->done += finished;
    if (shared->done == count) shared->all_done.notify_all();
  };
  const auto help = [take_tasks] { take_tasks([] {}); };
  const size_t helpers = std::min(threads(), count) - 1;
  // If there is no memory to schedule a helper, continue with fewer helpers. Do not throw:
  // scheduled helpers refer to the caller's task.
  const auto ask = [](const auto& schedule) noexcept {
    try {
      schedule();
    } catch (const std::bad_alloc&) {
    }
  };
  for (size_t i = 1; i < helpers; ++i) ask([&] { pool_->Schedule(help); });
  // Run the last helper in the inter-op pool. An idle thread of that pool polls for work for a
  // while before it sleeps, so the helper starts at once. Without a helper to run, this polling
  // would take a core from the threads that were woken.
  if (helpers > 0 && runner_ != nullptr) {
    ask([&] {
      (*runner_)([help, shared, caller = std::this_thread::get_id()] {
        if (std::this_thread::get_id() == caller) {
          shared->declined = true;
          return;
        }
        shared->joined = true;
        help();
      });
    });
  }
  bool wanted = helpers > 0;
  const auto wake_helper = [&] {
    if (wanted && !shared->joined) ask([&] { pool_->Schedule(help); });
    wanted = false;
  };
  if (runner_ == nullptr || shared->declined) wake_helper();
  take_tasks(wake_helper);
  // Poll first: the last tasks usually end sooner than a sleeping thread would wake.
  for (int i = 0; i < kSpins && shared->done.load(std::memory_order_acquire) != count; ++i) Pause();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == count; });
}

KeyBatch::KeyBatch(const Tensor& keys) {
  keys_.size = static_cast<size_t>(keys.NumElements());
  if (keys.dtype() == tensorflow::DT_INT64) {
    keys_.ints = keys.flat<int64_t>().data();
  } else if (keys.dtype() == tensorflow::DT_INT32) {
    const auto flat = keys.flat<int32_t>();
    widened_.assign(flat.data(), flat.data() + keys_.size);
    keys_.ints = widened_.data();
  } else {
    const auto flat = keys.flat<tstring>();
    views_.reserve(keys_.size);
    for (size_t i = 0; i < keys_.size; ++i) {
      const tstring& key = flat.data()[i];
      views_.emplace_back(key.data(), key.size());
    }
    keys_.strings = views_.data();
  }
}

ValueBatch::ValueBatch(const Tensor& values) {
  if (values.dtype() != tensorflow::DT_STRING) {
    values_.data = values.tensor_data().data();
    return;
  }
  const auto flat = values.flat<tstring>();
  views_.reserve(static_cast<size_t>(flat.size()));
  for (int64_t i = 0; i < flat.size(); ++i) views_.emplace_back(flat(i).data(), flat(i).size());
  values_.strings = views_.data();
}

ValueTarget::ValueTarget(Tensor* values) : values_(values) {}

engine::ValuesOut ValueTarget::out() noexcept {
  if (values_->dtype() == tensorflow::DT_STRING) return {nullptr, this};
  return {const_cast<char*>(values_->tensor_data().data()), nullptr};
}

void ValueTarget::Set(size_t element, std::string_view bytes) {
  values_->flat<tstring>()(static_cast<int64_t>(element)).assign(bytes.data(), bytes.size());
}

absl::Status RowsShape(const Tensor& keys, int64_t width, tensorflow::TensorShape* shape) {
  *shape = keys.shape();
  return shape->AddDimWithStatus(width);
}

absl::Status AllocateOutput(tensorflow::OpKernelContext* context, int index,
                            std::initializer_list<int64_t> dims, Tensor** output) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(dims, &shape));
  return context->allocate_output(index, shape, output);
}

absl::Status CheckKeyCount(const Tensor& keys) {
  return ToAbsl(engine::CheckBatch(static_cast<size_t>(keys.NumElements())));
}

}  // namespace de::kernels
