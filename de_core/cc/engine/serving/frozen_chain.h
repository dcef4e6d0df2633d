// A read-only table over a base file and its delta files, so that a model is served minutes after
// training. If several files have a key, the newest file decides. A lookup first reads all keys
// from the base. A filter (a Bloom filter of the deltas' keys) then selects the few keys to look up
// in the deltas too.
#ifndef DE_CORE_ENGINE_FROZEN_CHAIN_H_
#define DE_CORE_ENGINE_FROZEN_CHAIN_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/serving/frozen_table.h"

namespace de::engine {

/// Immutable once opened, and thread-safe.
class FrozenChain {
 public:
  /// Opens a base and its deltas, in their order; at least one file, each in memory, which must
  /// outlive the chain. FailedPrecondition if a file does not follow the file before it. The policy
  /// for unknown keys is the last file's. Memory: two to four bytes per key of the deltas.
  static Status Open(std::vector<std::unique_ptr<SnapshotReader>> files,
                     std::unique_ptr<FrozenChain>* chain) noexcept;

  /// The arguments and errors are the same as in FrozenTable::Find.
  Status Find(const Keys& keys, FrozenOut out, bool* found) const noexcept;

  /// Requests the pages of the mapped files that a lookup of the keys reads, all together, so that
  /// Find does not wait for the disk once for each row. Takes about 2 us per key even if all pages
  /// are in memory.
  Status ReadAhead(const Keys& keys) const noexcept;

  /// Returns the number of keys that have a row in the chain. The first call reads the deltas'
  /// keys.
  Status Size(uint64_t* rows) const noexcept;

  size_t dim() const noexcept { return base_->dim(); }
  size_t value_bytes() const noexcept { return base_->value_bytes(); }
  DType value_dtype() const noexcept { return base_->value_dtype(); }
  const OovPolicy& oov() const noexcept { return base_->oov(); }
  size_t deltas() const noexcept { return deltas_.size(); }
  /// The base (file 0) or a delta.
  const SnapshotReader& reader(size_t file) const noexcept {
    return file == 0 ? base_->reader() : deltas_[file - 1]->reader();
  }
  const SnapshotHeader& base() const noexcept { return base_->header(); }
  /// The last file's header.
  const SnapshotHeader& header() const noexcept {
    return deltas_.empty() ? base_->header() : deltas_.back()->header();
  }
  /// The sizes of all files together.
  uint64_t file_bytes() const noexcept;
  /// Heap bytes of the filter of the deltas' keys.
  uint64_t filter_bytes() const noexcept { return filter_.capacity() * sizeof(uint64_t); }

 private:
  FrozenChain() = default;
  void BuildFilter();
  Status CountRows(uint64_t* rows) const;
  bool MayOverride(uint64_t hash) const noexcept;

  std::unique_ptr<FrozenTable> base_;
  std::vector<std::unique_ptr<FrozenTable>> deltas_;  ///< oldest first
  /// Bloom filter: two bits in one 64-bit word for each key of the deltas
  std::vector<uint64_t> filter_;
  uint32_t filter_shift_ = 63;
  mutable std::mutex mutex_;
  mutable std::optional<uint64_t> rows_;  ///< result of Size, once counted
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FROZEN_CHAIN_H_
