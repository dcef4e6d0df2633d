// A snapshot file mapped into memory and served read-only. The mapping lives as long as somebody
// reads it, whatever happens to the file's name meanwhile.
#ifndef DE_CORE_KERNELS_FROZEN_FILE_H_
#define DE_CORE_KERNELS_FROZEN_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "de_core/cc/engine/frozen_table.h"
#include "de_core/cc/kernels/engine_bridge.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

class FrozenFile {
 public:
  /// Maps the file and checks its header, directory and index, or every byte of it where the
  /// environment variable DE_VERIFY is "full".
  static absl::Status Open(tensorflow::Env* env, const std::string& path,
                           std::shared_ptr<const FrozenFile>* file);

  absl::Status Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                    engine::Executor* executor) const;

  int64_t rows() const noexcept { return static_cast<int64_t>(table_->size()); }
  const engine::SnapshotHeader& header() const noexcept { return table_->header(); }
  /// Fields of a JSON object, without its braces.
  std::string StatsJsonFields() const;

 private:
  std::string path_;
  std::unique_ptr<tensorflow::ReadOnlyMemoryRegion> region_;
  std::unique_ptr<engine::FrozenTable> table_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_FROZEN_FILE_H_
