// Resolves a model's asset to the files that a table is served from: the asset is a snapshot file,
// or a short text that names a base and its deltas beside it.
// docs/reference/publishing.md specifies the text.
#ifndef DE_CORE_KERNELS_CHAIN_FILE_H_
#define DE_CORE_KERNELS_CHAIN_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

/// A snapshot file. If a chain file names it, also the id that it must have.
struct ServedFile {
  std::string path;
  std::optional<engine::SnapshotId> id;
};

/// Appends the files for `path`: the path itself, or the files that a chain file names, in order.
/// DataLoss for a damaged chain file, or one that differs from the version's manifest.
absl::Status AppendServedFiles(tensorflow::Env* env, const std::string& path,
                               std::vector<ServedFile>* files);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_CHAIN_FILE_H_
