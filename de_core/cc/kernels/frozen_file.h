// Snapshot files mapped into memory and served read-only: a base, perhaps with deltas. The mappings
// live as long as somebody reads them, whatever happens to the files' names meanwhile.
#ifndef DE_CORE_KERNELS_FROZEN_FILE_H_
#define DE_CORE_KERNELS_FROZEN_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/frozen_chain.h"
#include "de_core/cc/kernels/engine_bridge.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

class FrozenFile {
 public:
  /// Maps the files, a base and its deltas in their order, or the chain file that names them, and
  /// checks their headers, directories and footers, or every byte of them where the environment
  /// variable DE_VERIFY is "full". Errors name the file that is to blame.
  static absl::Status Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                           std::shared_ptr<const FrozenFile>* file);

  /// out.data may be nullptr where only `found` is wanted.
  absl::Status Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                    engine::Executor* executor) const;

  /// Keys that have a row.
  absl::Status Rows(int64_t* rows) const;
  /// Of the first and of the last file.
  const engine::SnapshotHeader& base() const noexcept { return table_->base(); }
  const engine::SnapshotHeader& header() const noexcept { return table_->header(); }
  engine::FrozenStats stats() const noexcept { return table_->stats(); }
  size_t deltas() const noexcept { return table_->deltas(); }
  /// Names of all files, without their folders.
  std::vector<std::string> names() const;
  /// Fields of a JSON object, without its braces.
  std::string StatsJsonFields() const;

 private:
  /// Converts the status of a lookup, which clients read. A missing key is told without a file;
  /// other errors name the files but not their folders.
  absl::Status Answer(engine::Status status) const;

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<tensorflow::ReadOnlyMemoryRegion>> regions_;
  std::unique_ptr<engine::FrozenChain> table_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_FROZEN_FILE_H_
