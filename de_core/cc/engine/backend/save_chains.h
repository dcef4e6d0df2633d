// The chains of saves of one table. A chain is a base file and the deltas that follow it. Records
// for each chain its last file and the rows changed since that file.
#ifndef DE_CORE_ENGINE_SAVE_CHAINS_H_
#define DE_CORE_ENGINE_SAVE_CHAINS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"

namespace de::engine {

/// Records which rows of a table change, for deltas. A table implements this interface. SaveChains
/// calls it, one call at a time.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;

  /// Records changes from now on, as changes of `generation`. Changes of earlier generations stay
  /// recorded. Numbers of generations ascend.
  virtual Status Begin(uint64_t generation) = 0;

  /// Discards changes that no delta since one of the generations `marks` (ascending) needs. If
  /// there are no marks, records no changes any more.
  virtual void Keep(const std::vector<uint64_t>& marks) = 0;

  /// Memory of the recorded changes in bytes. Any thread may call it.
  virtual uint64_t bytes() const = 0;
};

/// One file of a chain.
struct SavePoint {
  SnapshotId id{};
  uint64_t sequence = 0;  ///< number of deltas from the base to this file
  /// first generation of changes that the file may lack. Generations number the times between two
  /// cuts (Cut)
  uint64_t generation = 0;
  /// the file may lack lookups from this time on (microseconds), if lookups count as uses
  int64_t micros = 0;
};

/// Thread-safe. While there is a chain, the table's log records changed rows. For a table in
/// memory, the records of a chain that is never saved again take one bit per row and eight bytes
/// per changed row, but at most half a byte per row.
class SaveChains {
 public:
  /// `log` is the log of the chains' table.
  explicit SaveChains(std::unique_ptr<ChangeLog> log) : log_(std::move(log)) {}

  /// Starts the next generation of changes, and records changes from now on. `generation` receives
  /// its number. A save that reads rows after this call contains the changes of all earlier
  /// generations.
  Status Cut(uint64_t* generation);

  /// Returns the last committed save of a chain, or FailedPrecondition if there is none.
  Status Last(const std::string& chain, SavePoint* point) const;

  /// Records a finished save, which began with Cut. With `commit` it becomes the chain's last save;
  /// otherwise it is pending until Commit.
  Status Add(const std::string& chain, const SavePoint& point, bool commit);

  /// Makes the pending save, which was added without `commit`, the chain's last save. NotFound if
  /// the pending save has another id.
  Status Commit(const std::string& chain, const SnapshotId& id);

  /// Ends a failed save that began with Cut. The changes recorded before it stay recorded.
  void Abandon();

  struct Entry {
    std::string chain;
    std::optional<SavePoint> last;
    std::optional<SavePoint> pending;
  };
  std::vector<Entry> entries() const;

  /// Memory of the recorded changes in bytes.
  uint64_t bytes() const { return log_->bytes(); }

 private:
  struct Chain {
    std::optional<SavePoint> last;
    std::optional<SavePoint> pending;
  };

  void Tidy() noexcept;
  void ForgetUnmarked();

  const std::unique_ptr<ChangeLog> log_;
  mutable std::mutex mutex_;
  std::map<std::string, Chain> chains_;
  uint64_t generation_ = 0;
  uint32_t saves_ = 0;  ///< number of saves that have called Cut, and not yet Add or Abandon
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_CHAINS_H_
