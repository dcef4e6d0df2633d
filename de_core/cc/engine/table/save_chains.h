// The series of saves of one table: which file was the last, and which rows changed since.
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

/// One state of a table that was saved.
struct SavePoint {
  SnapshotId id{};
  uint64_t sequence = 0;    ///< deltas between the base and this file
  uint64_t generation = 0;  ///< of the changes that the file may lack
  int64_t micros = 0;  ///< time stamp since which lookups that count may be missing in the file
};

/// Thread-safe. While there is a chain, every shard notes what changes; a chain that is begun and
/// never saved again costs a bit a row and eight bytes a changed one, up to half a byte a row.
class SaveChains {
 public:
  explicit SaveChains(std::vector<std::unique_ptr<Shard>>* shards) : shards_(shards) {}

  /// Begins a generation in all shards and notes changes from now on. Changes before it are in what
  /// a save reads afterwards.
  Status Cut(uint64_t* generation);

  /// The last committed save of a chain. FailedPrecondition where there is none.
  Status Last(const std::string& chain, SavePoint* point) const;

  /// Notes a finished save; `commit` makes it the chain's last.
  Status Add(const std::string& chain, const SavePoint& point, bool commit);

  /// Makes the save that Add noted without commit the chain's last. NotFound for another id.
  Status Commit(const std::string& chain, const SnapshotId& id);

  /// Gives up a generation that Cut began for a save that failed; its marks stay.
  void Abandon();

  Status Drop(const std::string& chain);

  struct Entry {
    std::string chain;
    std::optional<SavePoint> last;
    std::optional<SavePoint> pending;
  };
  std::vector<Entry> entries() const;

  /// Memory that the notes take.
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
  uint32_t saves_ = 0;  ///< between Cut and Add or Abandon
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_CHAINS_H_
