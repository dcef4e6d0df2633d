// Cold rows in files of one directory.
//
// Rows are appended to segment files. An index in memory says where the newest row of each key is.
// So a key without a row needs no read, and a row needs one. A row that is replaced or erased
// leaves a gap. When gaps take more than 32 % of the files, writes also copy the rows of the
// segment with the most gaps, so fast that as many bytes become free as are written. Then the
// segment's file is used again (log cleaning: M. Rosenblum and J. Ousterhout, 1992). The
// README of the engine has the invariants.
//
//  - Memory: at most 32 bytes per row with an integer key, 40 with a string key of any length, and
//    up to 1 MiB.
//  - Disk: at most 1.47 times the bytes of the records, and three segments. A record has 16 bytes
//    more than its row, so that makes 1.5 times the rows with Adam's slots at dim 64.
//  - Writes: a segment that is removed has gaps for at least 32 % of its bytes on average, so
//    rows are written at most 3.2 times, usually less than twice.
//
// The files are working memory: they belong to one process and end with it. Checkpoints keep rows.
#ifndef DE_CORE_ENGINE_DISK_ROWS_H_
#define DE_CORE_ENGINE_DISK_ROWS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/object_pool.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/tier/disk.h"
#include "de_core/cc/engine/tier/disk_index.h"
#include "de_core/cc/engine/tier/segment_file.h"
#include "de_core/cc/engine/tier/segment_writer.h"

namespace de::engine {

struct DiskOptions {
  std::string directory;  ///< created if it does not exist; one object at a time may use it
  uint64_t segment_bytes = uint64_t{64} << 20;
  uint32_t depth = 128;    ///< reads in the disk's queue
  bool use_ring = true;    ///< io_uring, if the system has it
  bool own_thread = true;  ///< a thread of its own writes
};

/// Where some rows are. Keeps their files, so the rows can be read as they were when they were
/// located.
struct LocatedRows {
  struct File {
    std::shared_ptr<const SegmentFile> segment;
    std::shared_ptr<const RowLayout> layout;  ///< the segment's layout at that time
  };
  std::vector<uint32_t> positions;  ///< Locate: ascending positions of the keys that have a row
  uint64_t hash_begin = 0;          ///< LocateRange: the range of hashes that is covered
  uint64_t hash_last = 0;
  std::vector<uint64_t> words;               ///< LocateRange: words of the keys
  std::vector<int64_t> places;               ///< packed DiskRows::Place of each row
  std::unordered_map<uint32_t, File> files;  ///< by number of the segment
};

/// Keeps the newest row of each key. TieredTable locks: one thread at a time calls Stage; Locate,
/// LocateRange, AreNewest and Stats may run beside it. Commit, Erase, Clear and DropSlots exclude
/// all other calls, except Read and ReadRange. Only Stage, Read and ReadRange use the disk.
class DiskRows {
 public:
  /// Removes files that a killed process left in the directory. FailedPrecondition if another
  /// object uses the directory.
  static Status Create(const DiskOptions& options, KeyType key_type,
                       std::unique_ptr<DiskRows>* rows);
  /// Uses `disk` instead of the directory of `options`.
  static Status Create(const DiskOptions& options, std::shared_ptr<Disk> disk, KeyType key_type,
                       std::unique_ptr<DiskRows>* rows);
  ~DiskRows();

  /// Writes rows to the disk: ascending by hash, without repeated keys. Their keys keep their old
  /// rows until Commit. `rows` must live until then, or until Discard.
  Status Stage(const RowBatch& rows);

  /// Lets the staged rows replace older rows of their keys, those that were staged last at last. If
  /// it fails, some keys have their staged rows.
  Status Commit();

  /// Forgets the staged rows.
  void Discard() noexcept;

  /// Removes the rows of distinct keys.
  Status Erase(const Keys& keys);

  /// Finds where the rows of distinct keys are.
  Status Locate(const Keys& keys, Executor* executor, LocatedRows* located) const;

  /// Reads located rows and appends them to `rows`, converted to `layout`: slots that were added
  /// since get their initial values. `keys` are the located keys, and each must have its row.
  Status Read(const Keys& keys, const LocatedRows& located, const RowLayout& layout,
              Executor* executor, std::vector<char>* rows) const;

  /// newest[i] receives whether located row i is its key's newest row still. `keys` are the located
  /// keys. May say false if the row was only moved.
  Status AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const;

  /// Finds where about `most` rows with hashes from `begin` to `last` are.
  Status LocateRange(uint64_t begin, uint64_t last, size_t most, LocatedRows* located) const;

  /// Copies the rows of a located range into `batch`, ascending by hash, in the layout `layout`.
  Status ReadRange(const LocatedRows& located, const RowLayout& layout, RowBatch* batch) const;

  /// Removes all rows, if `others`, which removes rows elsewhere, succeeds. If it fails, no row is
  /// removed.
  Status Clear(const std::function<Status()>& others);

  /// Forgets an optimizer's slots: later reads return the initial values of slots of these names.
  void DropSlots(const std::string& owner);

  /// Returns bytes on disk, reads, and the memory of the index.
  TierStats Stats() const;

  bool empty() const noexcept { return index_->empty(); }

  // For tests and benchmarks.
  uint64_t written_bytes() const noexcept { return written_bytes_; }
  uint64_t live_bytes() const noexcept { return live_bytes_; }

 private:
  struct Place;
  class Converters;
  struct Unit;

  using Places = DiskIndex::Places;

  DiskRows(DiskOptions options, std::shared_ptr<Disk> disk, std::unique_ptr<DiskIndex> index);

  /// Rows in the files that the index does not know yet.
  struct StagedRows {
    const RowBatch* rows;         ///< only its keys are used
    RowBatch cleaned;             ///< rows of the cleaned segment, if `from` is not empty
    std::vector<int64_t> from;    ///< the places that cleaned rows had
    std::vector<int64_t> places;  // (rows)
  };

  /// How far the cleaning of one segment has come.
  struct Cleaning {
    bool is_active = false;
    uint32_t segment = 0;
    double pace = 0;      ///< bytes to clean per written byte
    uint64_t due = 0;     ///< bytes that should be cleaned soon
    uint64_t next = 0;    ///< offset in the segment, whose earlier rows have moved
    uint64_t staged = 0;  ///< the same, if the staged rows are committed
  };

  Status PrepareSegment(const RowLayout& layout);
  Status WriteRows(const RowBatch& rows, std::vector<int64_t>* places);
  Status CommitRows(const Keys& keys, const std::vector<int64_t>& places);
  Status CommitCleaned(const StagedRows& staged);
  bool ChooseCleaned() noexcept;
  Status StageCleaning(uint64_t written);
  Status CleanPart(uint64_t most);
  Status EndCleaning();
  /// Makes gaps of the records at `places`.
  void Forget(const Places& places) noexcept;
  std::unique_ptr<SegmentFile> TakeSpare();
  void DropSpares(size_t kept);
  Status FinishWrites(Status status);
  void Pin(LocatedRows* rows) const;
  /// Reads rows and calls visit(i, decoded row, its layout) for each, in any order. DataLoss if
  /// is_row_of(i, decoded row) is false: the record has another key.
  template <typename IsRowOf, typename Visit>
  Status ReadRows(const LocatedRows& rows, Executor* executor, const IsRowOf& is_row_of,
                  const Visit& visit) const;

  const DiskOptions options_;
  const std::shared_ptr<Disk> disk_;
  std::unique_ptr<DiskIndex> index_;
  /// By number; nullptr for a free number. Never reallocated, because Stage runs beside Locate.
  std::vector<std::shared_ptr<SegmentFile>> segments_;
  std::vector<std::shared_ptr<SegmentFile>> spare_;  ///< files without rows, to be written again
  std::deque<StagedRows> staged_;
  uint32_t active_ = 0;                      ///< the segment that is appended to
  std::shared_ptr<const RowLayout> layout_;  ///< of the rows that were appended last
  uint64_t next_name_ = 0;
  Cleaning cleaning_;
  uint64_t written_bytes_ = 0;
  uint64_t live_bytes_ = 0;               ///< sum over the segments
  std::atomic<uint64_t> disk_bytes_{0};   ///< of the segments
  std::atomic<uint64_t> spare_bytes_{0};  ///< of the spare files
  uint64_t reserved_ = 0;  ///< where the active segment ends once all appends are done
  const ForkMark fork_;
  std::unique_ptr<SegmentWriter> writer_;
  mutable std::atomic<uint64_t> reads_{0};
  mutable ObjectPool<BlockBuffer> buffers_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DISK_ROWS_H_
