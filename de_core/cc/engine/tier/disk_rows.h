// Cold rows in files of one directory.
//
// Rows are appended to segment files. An index in memory, a table whose values are places on disk,
// says where the newest row of each key is. So a key without a row needs no read, and a row needs
// one. A row that is replaced or erased leaves a gap. When gaps take more than 32 % of the
// files, writes also copy the rows of the segment with the most gaps, so fast that as many bytes
// become free as are written. Then the segment's file is used again (log cleaning: M. Rosenblum and
// J. Ousterhout, 1992).
//
//  - Memory: about 26 bytes per row with an integer key. String keys take their bytes too.
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
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/engine/tier/block_reader.h"
#include "de_core/cc/engine/tier/cold_rows.h"
#include "de_core/cc/engine/tier/segment_file.h"
#include "de_core/cc/engine/tier/segment_writer.h"

namespace de::engine {

struct DiskOptions {
  std::string directory;  ///< created if it does not exist; one object at a time may use it
  uint64_t segment_bytes = uint64_t{64} << 20;
  uint32_t depth = 128;  ///< reads in the disk's queue
  bool use_ring = true;  ///< io_uring, if the system has it
};

class DiskRows final : public ColdRows {
 public:
  /// Removes files that a killed process left in the directory. FailedPrecondition if another
  /// object uses the directory.
  static Status Create(const DiskOptions& options, KeyType key_type,
                       std::unique_ptr<ColdRows>* rows);
  ~DiskRows() override;

  Status Stage(const RowBatch& rows) override;
  Status Commit() override;
  void Discard() noexcept override;
  Status Erase(const Keys& keys) override;
  Status Locate(const Keys& keys, Executor* executor,
                std::unique_ptr<LocatedRows>* located) const override;
  Status Read(const LocatedRows& located, const RowLayout& layout, Executor* executor,
              std::vector<char>* rows) const override;
  Status AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const override;
  Status Scan(uint64_t begin, uint64_t last, size_t most, const RowLayout& layout,
              RowBatch* batch) const override;
  Status Clear() override;
  void DropSlots(const std::string& owner) override;
  TierStats Stats() const override;
  bool empty() const noexcept override { return index_->size() == 0; }

  // For tests and benchmarks.
  uint64_t written_bytes() const noexcept { return written_bytes_; }
  uint64_t live_bytes() const noexcept { return live_bytes_; }
  bool has_ring() const noexcept { return reader_.has_ring(); }

 private:
  struct Place;
  class Converters;
  class BufferLease;
  struct Unit;
  struct PinnedRows;

  DiskRows(DiskOptions options, int lock_file, std::unique_ptr<Table> index);

  /// Rows in the files that the index does not know yet.
  struct StagedRows {
    const RowBatch* rows;         ///< only its keys are used
    RowBatch cleaned;             ///< rows of the cleaned segment, if `from` is not empty
    std::vector<int64_t> from;    ///< the places that cleaned rows had
    std::vector<int64_t> places;  // (rows)
  };

  Status PrepareSegment(const RowLayout& layout);
  Status WriteRows(const RowBatch& rows, std::vector<int64_t>* places);
  Status CommitRows(const Keys& keys, const std::vector<int64_t>& places);
  Status CommitCleaned(const StagedRows& staged);
  bool ChooseCleaned() noexcept;
  Status StageCleaning(uint64_t written);
  Status CleanPart(uint64_t most);
  /// Places of the newest rows of keys, where `found` is set.
  struct Places {
    std::vector<int64_t> packed;    // (keys)
    std::unique_ptr<bool[]> found;  // (keys)
  };
  Status FindPlaces(const Keys& keys, Executor* executor, Places* places) const;
  /// Makes gaps of the records at `places`.
  void Forget(const Places& places) noexcept;
  void RemoveSegment(uint32_t number);
  std::unique_ptr<SegmentFile> TakeSpare();
  void DropSpares(size_t kept);
  Status FinishWrites(Status status);
  void Pin(PinnedRows* rows) const;
  /// Reads rows and calls visit(i, decoded row, its layout) for each, in any order.
  template <typename Visit>
  Status ReadRows(const PinnedRows& rows, Executor* executor, const Visit& visit) const;

  const DiskOptions options_;
  const int lock_file_;
  const std::unique_ptr<Table> index_;
  mutable BlockReader reader_;
  /// By number; nullptr for a free number. Never reallocated, because Stage runs beside Locate.
  std::vector<std::shared_ptr<SegmentFile>> segments_;
  std::vector<std::shared_ptr<SegmentFile>> spare_;  ///< files without rows, to be written again
  std::deque<StagedRows> staged_;
  uint32_t active_ = 0;                      ///< the segment that is appended to
  std::shared_ptr<const RowLayout> layout_;  ///< of the rows that were appended last
  uint64_t next_name_ = 0;
  uint32_t cleaned_ = 0;  ///< the segment that is cleaned, if `is_cleaning_`
  bool is_cleaning_ = false;
  double clean_pace_ = 0;      ///< bytes to clean per written byte
  uint64_t clean_due_ = 0;     ///< bytes that should be cleaned soon
  uint64_t clean_next_ = 0;    ///< offset in the cleaned segment, whose earlier rows have moved
  uint64_t clean_staged_ = 0;  ///< the same, if the staged rows are committed
  uint64_t written_bytes_ = 0;
  uint64_t live_bytes_ = 0;               ///< sum over the segments
  std::atomic<uint64_t> disk_bytes_{0};   ///< of the segments
  std::atomic<uint64_t> spare_bytes_{0};  ///< of the spare files
  uint64_t reserved_ = 0;  ///< where the active segment ends once all appends are done
  SegmentWriter writer_;
  mutable std::atomic<uint64_t> reads_{0};
  mutable std::mutex buffers_mutex_;
  mutable std::vector<BlockBuffer> buffers_;  ///< that no call uses
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DISK_ROWS_H_
