// Checks served files behind the lookups, so that damage is found before somebody asks for its row.
#ifndef DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
#define DE_CORE_KERNELS_SERVED_FILE_CHECK_H_

#include <memory>

#include "de_core/cc/kernels/frozen_file.h"

namespace de::kernels {

/// Checks every section of the file and tells it how that went. One thread of low priority checks
/// the files of the process one after the other, at a bounded rate. It gives a file up within one
/// section once nobody else holds it.
void CheckInBackground(std::weak_ptr<FrozenFile> file);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SERVED_FILE_CHECK_H_
