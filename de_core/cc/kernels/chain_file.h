// What an asset of a model says a table is served from: a snapshot file, or a short text that names
// a base and its deltas beside it. docs/publishing.md specifies the text.
#ifndef DE_CORE_KERNELS_CHAIN_FILE_H_
#define DE_CORE_KERNELS_CHAIN_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

/// A snapshot file and, where a chain file names it, the id it must have.
struct ServedFile {
  std::string path;
  std::optional<engine::SnapshotId> id;
};

/// Appends what `path` stands for: itself, or the files that it names, in their order. DataLoss
/// for a chain file that is not as it was written.
absl::Status AppendServedFiles(tensorflow::Env* env, const std::string& path,
                               std::vector<ServedFile>* files);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_CHAIN_FILE_H_
