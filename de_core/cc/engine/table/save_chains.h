// The series of saves of one table: each series' last file, and the rows changed since that file.
#ifndef DE_CORE_ENGINE_SAVE_CHAINS_H_
#define DE_CORE_ENGINE_SAVE_CHAINS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"
#include "de_core/cc/engine/table/shard.h"

namespace de::engine {

/// A saved state of a table.
struct SavePoint {
  SnapshotId id{};
  uint64_t sequence = 0;    ///< number of deltas from the base to this file
  uint64_t generation = 0;  ///< first generation of changes that the file may not contain
  /// the file may lack uses by lookups from this time stamp on
  int64_t micros = 0;
};

/// Thread-safe. While there is a chain, every shard records its changes. If a chain is started and
/// never saved again, its records take one bit per row and eight bytes per changed row, at most
/// half a byte per row.
class SaveChains {
 public:
  explicit SaveChains(std::vector<std::unique_ptr<Shard>>* shards) : shards_(shards) {}

  /// Starts a generation in all shards, and records changes from now on. A save that reads rows
  /// after this call contains all earlier changes.
  Status Cut(uint64_t* generation);

  /// Returns the last committed save of a chain, or FailedPrecondition if there is none.
  Status Last(const std::string& chain, SavePoint* point) const;

  /// Records a finished save. `commit` makes it the chain's last save.
  Status Add(const std::string& chain, const SavePoint& point, bool commit);

  /// Makes a save that was added without commit the chain's last save. NotFound for another id.
  Status Commit(const std::string& chain, const SnapshotId& id);

  /// Drops a generation that Cut started for a failed save. Its marks remain.
  void Abandon();

  Status Drop(const std::string& chain);

  struct Entry {
    std::string chain;
    std::optional<SavePoint> last;
    std::optional<SavePoint> pending;
  };
  std::vector<Entry> entries() const;

  /// Memory used for recorded changes.
  uint64_t bytes() const;

 private:
  struct Chain {
    std::optional<SavePoint> last;
    std::optional<SavePoint> pending;
  };

  void Tidy() noexcept;
  void ForgetUnmarked();

  std::vector<std::unique_ptr<Shard>>* shards_;
  mutable std::mutex mutex_;
  std::map<std::string, Chain> chains_;
  uint64_t generation_ = 0;
  uint32_t saves_ = 0;  ///< saves between Cut and Add or Abandon
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_CHAINS_H_
