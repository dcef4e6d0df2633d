// Checks served files in the background, so that damage is found before a lookup reads it.
#ifndef DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
#define DE_CORE_KERNELS_SERVED_FILE_CHECK_H_

#include <memory>

#include "de_core/cc/kernels/files/frozen_file.h"

namespace de::kernels {

/// Checks every section of the file and reports the result to it. One low-priority thread checks
/// the process's files one after another, at a bounded rate. If nobody else uses the file any more,
/// the check stops within one section.
void CheckInBackground(std::weak_ptr<FrozenFile> file);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
