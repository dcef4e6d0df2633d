// Checks served files, so that damage is found before a lookup reads it.
#ifndef DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
#define DE_CORE_KERNELS_SERVED_FILE_CHECK_H_

#include <cstddef>
#include <memory>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/kernels/files/frozen_file.h"

namespace de::kernels {

/// Compares the checksums of file `number` (0: the base), on all threads of the executor, which may
/// be nullptr.
engine::Status CheckNow(const FrozenFile& file, size_t number, engine::Executor* executor);

/// Checks every section of the file and reports the result to it. One low-priority thread checks
/// the process's files one after another, at a bounded rate. If nobody else uses the file any more,
/// the check stops within one section.
void CheckInBackground(std::weak_ptr<FrozenFile> file);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
