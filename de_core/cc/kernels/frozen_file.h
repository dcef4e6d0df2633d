// Snapshot files mapped into memory and served read-only: a base, perhaps with deltas. The mappings
// live as long as somebody reads them, whatever happens to the files' names meanwhile.
#ifndef DE_CORE_KERNELS_FROZEN_FILE_H_
#define DE_CORE_KERNELS_FROZEN_FILE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/kernels/engine_bridge.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

class FrozenFile {
 public:
  /// What is known of the rows, which are checked in the background.
  enum class Health { kUnchecked, kIntact, kDamaged };

  /// Maps the files, a base and its deltas in their order, or the chain file that names them, and
  /// checks their headers, directories and footers. Every byte of them is checked, too: before it
  /// returns where the environment variable DE_VERIFY is "full", else in the background. Errors
  /// name the file that is to blame.
  static absl::Status Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                           std::shared_ptr<const FrozenFile>* file);

  /// out.data may be nullptr where only `found` is wanted. Errors name files without their folders:
  /// they reach clients. DataLoss once a section was found damaged.
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

  Health health() const noexcept { return health_.load(std::memory_order_acquire); }
  uint64_t checked_bytes() const noexcept { return checked_bytes_.load(); }
  /// What is wrong, where the health is kDamaged.
  absl::Status damage() const;

  /// For the one thread that checks: file 0 is the base, file i > 0 a delta.
  const engine::SnapshotReader& reader(size_t file) const noexcept { return table_->reader(file); }
  const std::string& path(size_t file) const noexcept {
    return paths_[paths_.size() - 1 - table_->deltas() + file];
  }
  void Checked(uint64_t bytes) noexcept { checked_bytes_ += bytes; }
  void FoundIntact();
  void FoundDamaged(size_t file, const engine::Status& why);

  /// Fields of a JSON object, without its braces.
  std::string StatsJsonFields() const;

 private:
  /// Converts the status of a lookup, which clients read. A missing key is told without a file;
  /// other errors name the files but not their folders.
  absl::Status Answer(engine::Status status) const;

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<tensorflow::ReadOnlyMemoryRegion>> regions_;
  std::unique_ptr<engine::FrozenChain> table_;
  std::atomic<Health> health_{Health::kUnchecked};
  std::atomic<uint64_t> checked_bytes_{0};
  std::string damage_;  ///< written before the health says so
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_FROZEN_FILE_H_
