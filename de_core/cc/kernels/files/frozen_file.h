// Snapshot files mapped into memory and served read-only: a base, perhaps with deltas. The mappings
// remain valid as long as this object exists, even if the files are renamed or deleted.
#ifndef DE_CORE_KERNELS_FROZEN_FILE_H_
#define DE_CORE_KERNELS_FROZEN_FILE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "de_core/cc/engine/memory/mapped_range.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/kernels/base/engine_bridge.h"
#include "de_core/cc/kernels/files/chain_file.h"
#include "de_core/cc/kernels/files/verified_memory.h"
#include "tensorflow/core/platform/env.h"

namespace de::kernels {

class FrozenFile {
 public:
  /// kUnchecked: the background check has not ended, and the files were not verified before.
  enum class Health { kUnchecked, kIntact, kDamaged };

  /// Maps the files (a base and its deltas in order, or the chain file that names them). Verifies
  /// all their bytes, on the executor's threads, except for files that this process has verified
  /// already. If the environment variable DE_VERIFY is "background", verifies only headers,
  /// directories and footers. Then starts the background check. Errors name the damaged file.
  static absl::Status Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                           engine::Executor* executor, std::shared_ptr<const FrozenFile>* file);
  ~FrozenFile();

  /// Looks up rows. out.data may be nullptr if only `found` is needed. Errors reach clients, so
  /// they name files without folders. Returns DataLoss once a damaged section was found, or a file
  /// was cut short.
  absl::Status Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                    engine::Executor* executor) const;

  /// Number of keys with a row.
  absl::Status Rows(int64_t* rows) const;
  /// base() returns the header of the first file, header() the header of the last.
  const engine::SnapshotHeader& base() const noexcept { return table_->base(); }
  const engine::SnapshotHeader& header() const noexcept { return table_->header(); }
  uint64_t file_bytes() const noexcept { return table_->file_bytes(); }
  size_t deltas() const noexcept { return table_->deltas(); }
  /// The names of all files, without folders.
  std::vector<std::string> names() const;

  Health health() const noexcept { return health_.load(std::memory_order_acquire); }
  uint64_t checked_bytes() const noexcept { return checked_bytes_.load(); }
  /// Bytes that Open read to verify the files.
  uint64_t read_bytes() const noexcept { return read_bytes_; }
  /// The error, if health is kDamaged.
  absl::Status damage() const;

  /// For the thread that checks the files. File 0 is the base, file i > 0 is a delta.
  const engine::SnapshotReader& reader(size_t file) const noexcept { return table_->reader(file); }
  const std::string& path(size_t file) const noexcept { return paths_[RegionOf(file)]; }
  /// Reads a page of each huge page of a part of a file that is about to be read in sequence,
  /// unless the files are too large for memory. A read through the mapping fills the page cache
  /// with huge pages, a read of the file with small ones.
  void ReadAhead(size_t file, uint64_t begin, uint64_t end) const;
  void Checked(uint64_t bytes) noexcept;
  void FoundIntact() noexcept;
  /// Refuses all later lookups. Logs the path of the file.
  void FoundDamaged(const std::string& path, const engine::Status& why) const noexcept;

 private:
  size_t RegionOf(size_t file) const noexcept {
    return paths_.size() - 1 - table_->deltas() + file;
  }
  /// Converts the status of a lookup, which clients read. The error for a missing key names no
  /// file. Other errors name files without folders.
  absl::Status Answer(engine::Status status) const;
  absl::Status Map(tensorflow::Env* env, const std::vector<ServedFile>& served);
  absl::Status OpenTable(const std::vector<ServedFile>& served);
  absl::Status Verify(engine::Executor* executor);
  // In served_file_check.cc.
  /// Compares the checksums of file `number`, on all threads of the executor, which may be nullptr.
  engine::Status CheckNow(size_t number, engine::Executor* executor) const;
  /// Checks every section of the file and reports the result to it. One low-priority thread checks
  /// the process's files one after another, at a bounded rate. If nobody else uses the file any
  /// more, the check stops within one section.
  static void CheckInBackground(std::weak_ptr<FrozenFile> file);
  absl::Status CheckLength() const;
  void Advise();
  absl::Status FindInParts(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                           engine::Executor* executor) const;
  engine::Status FindRange(const engine::Keys& keys, size_t begin, size_t end,
                           engine::ValuesOut out, bool* found) const;
  engine::Status FindRangeOnDisk(const engine::Keys& keys, size_t begin, size_t end,
                                 engine::ValuesOut out, bool* found) const;

  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<tensorflow::ReadOnlyMemoryRegion>> regions_;
  std::vector<std::unique_ptr<engine::MappedRange>> ranges_;  ///< regions_, watched
  /// the mapped files' identities; std::nullopt for a file that was replaced meanwhile
  std::vector<std::optional<FileIdentity>> identities_;
  VerifiedFiles verified_;
  std::unique_ptr<engine::FrozenChain> table_;
  mutable std::mutex damage_mutex_;  ///< held while health becomes kDamaged
  mutable std::atomic<Health> health_{Health::kUnchecked};
  std::atomic<uint64_t> checked_bytes_{0};
  uint64_t read_bytes_ = 0;
  mutable std::string damage_;  ///< constant once health is kDamaged
  uint64_t mapped_bytes_ = 0;
  bool exceeds_memory_ = false;  ///< the served files may not stay in memory
  /// with exceeds_memory_: true if the last lookup read the disk, so the next one reads ahead
  mutable std::atomic<bool> reads_disk_{true};
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_FROZEN_FILE_H_
