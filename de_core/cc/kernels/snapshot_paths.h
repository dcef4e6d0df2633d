// The inputs that ops on snapshot files share: paths, chosen keys, opened files.
#ifndef DE_CORE_KERNELS_SNAPSHOT_PATHS_H_
#define DE_CORE_KERNELS_SNAPSHOT_PATHS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/kernels/env_stream.h"
#include "de_core/cc/kernels/table_resource.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace de::kernels {

/// Input `index`, one path.
absl::Status PathOf(tensorflow::OpKernelContext* context, int index, std::string* path);

/// Input `index`, one path or a vector of at least one.
absl::Status PathsOf(tensorflow::OpKernelContext* context, int index,
                     std::vector<std::string>* paths);

/// Input 2, where the op has one: a vector of the table's keys.
absl::Status ChosenKeys(tensorflow::OpKernelContext* context, const TableResource& table,
                        std::optional<KeyBatch>* keys);

/// Inputs `index` and the next, the first of some sections and how many: sections [first, end).
absl::Status SectionsOf(tensorflow::OpKernelContext* context, int index,
                        const engine::SnapshotReader& reader, size_t* first, size_t* end);

/// Snapshot files that are open to be read.
class SnapshotFiles {
 public:
  /// Checks header, directory and footer of each.
  static absl::Status Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                           SnapshotFiles* files);

  const std::vector<const engine::SnapshotReader*>& readers() const noexcept { return readers_; }
  /// A status about all of them, with their names in it.
  absl::Status Named(engine::Status status) const;

 private:
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<FileSource>> sources_;
  std::vector<std::unique_ptr<engine::SnapshotReader>> owned_;
  std::vector<const engine::SnapshotReader*> readers_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SNAPSHOT_PATHS_H_
