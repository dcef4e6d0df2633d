// Converts the engine's errors and exceptions to TensorFlow's. Inline, so that an op library which
// links nothing of the engine can use it too.
#ifndef DE_CORE_KERNELS_STATUS_BRIDGE_H_
#define DE_CORE_KERNELS_STATUS_BRIDGE_H_

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/status.h"

namespace de::kernels {

inline absl::StatusCode CodeOf(engine::Code code) noexcept {
  switch (code) {
    case engine::Code::kOk:
      return absl::StatusCode::kOk;
    case engine::Code::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case engine::Code::kNotFound:
      return absl::StatusCode::kNotFound;
    case engine::Code::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case engine::Code::kDataLoss:
      return absl::StatusCode::kDataLoss;
    case engine::Code::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case engine::Code::kInternal:
      break;
  }
  return absl::StatusCode::kInternal;
}

/// Converts a status. Omits its text if there is no memory for the text.
inline absl::Status ToAbsl(engine::Status status) noexcept {
  const absl::StatusCode code = CodeOf(status.code);
  try {
    return absl::Status(code, status.message);
  } catch (const std::bad_alloc&) {
    return absl::Status(code, "");  // an empty text allocates nothing
  }
}

/// Runs `kernel`, which returns an absl::Status. Converts exceptions of the standard library to a
/// Status.
template <typename Kernel>
absl::Status GuardedKernel(const Kernel& kernel) noexcept {
  absl::Status status;
  engine::Status guarded = engine::Guarded([&] {
    status = kernel();
    return engine::Status::Ok();
  });
  return guarded.ok() ? status : ToAbsl(std::move(guarded));
}

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_STATUS_BRIDGE_H_
