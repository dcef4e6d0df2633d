// Common inputs of ops on snapshot files: paths, chosen keys, opened files.
#ifndef DE_CORE_KERNELS_SNAPSHOT_PATHS_H_
#define DE_CORE_KERNELS_SNAPSHOT_PATHS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/kernels/files/env_stream.h"
#include "de_core/cc/kernels/table/table_resource.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// Reads input `index`: one path.
absl::Status PathOf(tensorflow::OpKernelContext* context, int index, std::string* path);

/// Reads input `index`: one path, or a vector of at least one.
absl::Status PathsOf(tensorflow::OpKernelContext* context, int index,
                     std::vector<std::string>* paths);

/// Reads input 2, if the op has it: a vector of the table's keys.
absl::Status ChosenKeys(tensorflow::OpKernelContext* context, const TableResource& table,
                        std::optional<KeyBatch>* keys);

/// Snapshot files that are open for reading.
class SnapshotFiles {
 public:
  /// Checks each file's header, directory and footer.
  static absl::Status Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                           SnapshotFiles* files);

  const std::vector<const engine::SnapshotReader*>& readers() const noexcept { return readers_; }
  /// Adds the names of all files to the status's message.
  absl::Status Named(engine::Status status) const;

 private:
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<engine::SnapshotReader>> owned_;
  std::vector<const engine::SnapshotReader*> readers_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SNAPSHOT_PATHS_H_
