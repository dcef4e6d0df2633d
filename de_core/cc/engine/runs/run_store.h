// Rows on a local disk, in immutable runs: a log-structured store of whole rows with slots and
// metadata. It knows no table.
//
// Append writes one new run. A newer run's row of a key wins. A lookup costs about one read of 4
// KiB per key that is there, and about 0.005 reads per run for a key that is not. A background
// thread merges runs (compaction):
//
//  - Upper runs have levels. kFanout runs of one level become one run of the next level.
//  - The upper runs are merged into the last level when they replace 0.35 of its rows, or have 0.8
//    of its bytes. The filters of the last level tell which rows are replaced. The merge goes range
//    by range, so that old files leave as new files come.
//
// Write amplification, with one or two levels of upper runs: 1 (append) + 1 to 2 (levels) + 2.3 to
// 2.9 (last level). Space amplification: 1.45, and one range of the last level during a merge.
//
// Memory: filter_bits per key, and 12 bytes per block of 4 KiB: 3.9 bytes per row of 776 bytes.
//
// Durability. A run is complete before the manifest names it. After a crash of the process, Open
// finds the state after the last Append. After a crash of the machine, it does so only with `sync`.
// Open reads all runs, to check them and to fill the filters.
//
// Threads. All verbs are thread-safe. Lookups and scans read one state of the store and run at the
// same time as all other verbs. Writers run one after another.
//
// Errors name the file. A full disk (ResourceExhausted), a failed read (Internal) or a corrupt file
// (DataLoss) changes no row, and the store stays usable.
#ifndef DE_CORE_ENGINE_RUN_STORE_H_
#define DE_CORE_ENGINE_RUN_STORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/runs/run_reader.h"
#include "de_core/cc/engine/runs/run_version.h"
#include "de_core/cc/engine/runs/run_writer.h"

namespace de::engine {

struct RunStoreOptions {
  std::string directory;      ///< exists; one store at a time uses it
  bool direct = true;         ///< bypass the page cache if the file system allows it
  bool sync = false;          ///< each Append waits until the disk has the rows
  bool io_uring = true;       ///< otherwise, read by threads
  uint32_t queue_depth = 64;  ///< reads at once of each thread of a lookup
  uint32_t filter_bits = 12;  ///< memory per key of the filters; 0.5 % false positives with 12
  bool background = true;     ///< a thread compacts; otherwise only Compact does
  uint64_t part_bytes = uint64_t{64} << 20;  ///< least bytes of a file of the last level
};

struct RunStoreStats {
  uint64_t runs = 0;
  uint64_t entries = 0;       ///< rows and tombstones in all runs, superseded ones too
  uint64_t disk_bytes = 0;    ///< bytes of the runs' files
  uint64_t memory_bytes = 0;  ///< filters, and the first hashes of blocks
  uint64_t reads = 0;         ///< blocks that lookups read
  uint64_t read_bytes = 0;
  uint64_t false_positives = 0;  ///< reads of blocks that did not have the key
  uint64_t appended_bytes = 0;   ///< bytes of the runs that Append and Erase wrote
  uint64_t compacted_bytes = 0;  ///< bytes of the runs that compaction wrote
  uint64_t compactions = 0;      ///< merges
  bool io_uring = false;         ///< true if the last lookup read by io_uring
  std::string error;             ///< the last compaction's error; empty if it had none
};

class RunStore {
 public:
  /// Opens the store in a directory, or creates it. Removes files that an interrupted process left.
  /// FailedPrecondition if another process uses the directory.
  static Status Open(RunStoreOptions options, std::unique_ptr<RunStore>* store) noexcept;
  ~RunStore();

  /// Stores rows, whose keys must not repeat. They replace older rows. If it fails, all keys have
  /// their old rows. InvalidArgument for string values, and for another key type or dim than
  /// before.
  Status Append(const RowBatch& rows) noexcept;

  /// Removes the rows of keys.
  Status Erase(const Keys& keys, KeyType key_type) noexcept;

  /// Reads rows: found[i] tells whether keys[i] has a row, and row i of `rows` (keys.size,
  /// layout.stride()) receives it, in the layout `layout`. Slots that a run lacks get their initial
  /// values. Rows of keys that are not found are unchanged. The caller sets the references of
  /// string keys. With `rows` nullptr, finds only whether keys have rows.
  Status Find(const Keys& keys, const RowLayout& layout, char* rows, bool* found,
              Executor* executor) const noexcept;

  /// Copies rows with hashes from `begin` to `last` into `batch`, ascending by hash, in the layout
  /// `layout`. Stops after about `most` rows: batch->hash_last is the last hash that is covered.
  Status Scan(uint64_t begin, uint64_t last, size_t most, const RowLayout& layout,
              RowBatch* batch) const noexcept;

  /// Removes all rows.
  Status Clear() noexcept;

  /// Forgets an optimizer's slots in all rows that are stored now: Find and Scan return the initial
  /// values of slots of this owner.
  Status DropSlots(const std::string& owner) noexcept;

  /// Merges runs until the policy asks for no more merge. With `all`, merges everything into the
  /// last level.
  Status Compact(bool all = false) noexcept;
  /// Stops and starts background merges. PauseCompaction waits for the merge of one range.
  void PauseCompaction() noexcept;
  void ResumeCompaction() noexcept;

  RunStoreStats Stats() const;
  /// True if there is no row and no tombstone. The store does not count live rows: the caller does.
  bool empty() const noexcept { return State()->runs() == 0; }

 private:
  using Version = std::shared_ptr<const RunVersion>;

  /// A merge of upper runs into the last level, which goes through the ranges of hashes.
  struct Sweep {
    std::vector<RunRef> upper;  ///< the runs that are merged, newest first
    uint64_t next_hash = 0;     ///< ranges before this hash are done
  };

  static constexpr size_t kFanout = 8;
  static constexpr double kReplacedShare = 0.35;
  static constexpr double kUpperShare = 0.8;

  explicit RunStore(RunStoreOptions options)
      : options_(std::move(options)), version_(std::make_shared<const RunVersion>()) {}

  Status Load();
  Status LoadRuns(const Manifest& manifest);
  Status RemoveStrays();
  Version State() const noexcept {
    const std::lock_guard<std::mutex> hold(version_lock_);
    return version_;
  }
  std::string PathOf(const std::string& name) const { return options_.directory + "/" + name; }
  RunWriterOptions WriterOptions() const noexcept {
    return {options_.direct, options_.sync, options_.filter_bits};
  }

  Status CheckLayout(const RowLayout& layout) const;
  Status AddRun(std::shared_ptr<RunFile> run, size_t drops, uint64_t replaced);
  /// Makes `next` the state: writes the manifest, then swaps. Requires write_lock_.
  Status Install(RunVersion next);

  std::unique_ptr<RunReader> TakeReader() const;
  void GiveReader(std::unique_ptr<RunReader> reader) const noexcept;
  Status FindPart(const RunVersion& version, const Keys& keys, size_t begin, size_t count,
                  const RowLayout& layout, char* rows, bool* found) const;

  // Compaction, in run_store_compact.cc.
  void CompactInBackground() noexcept;
  static bool SweepIsDue(const RunVersion& version) noexcept;
  /// Does one merge if the policy asks for one. Requires compact_lock_.
  Status CompactStep(bool all, bool* worked);
  Status MergeLevel(const Version& version, size_t begin, size_t end);
  Status SweepRange(const Version& version);
  Status MergeInto(const std::vector<RunRef>& runs, const RowLayout& layout, uint64_t begin,
                   uint64_t last, bool tombstones, uint64_t part_bytes,
                   std::vector<std::shared_ptr<RunFile>>* parts);

  const RunStoreOptions options_;
  int directory_lock_ = -1;  ///< descriptor of the locked file LOCK

  mutable std::mutex version_lock_;
  Version version_;

  std::mutex write_lock_;     ///< held while the state changes. Taken before version_lock_.
  uint64_t next_number_ = 1;  ///< with write_lock_

  std::mutex compact_lock_;       ///< held while runs are merged. Taken before write_lock_.
  std::unique_ptr<Sweep> sweep_;  ///< with compact_lock_
  uint64_t seen_clears_ = 0;      ///< with compact_lock_; clears_ when the merge began
  uint64_t clears_ = 0;           ///< with write_lock_; number of Clear and DropSlots

  mutable std::mutex readers_lock_;
  mutable std::vector<std::unique_ptr<RunReader>> readers_;

  std::thread thread_;
  mutable std::mutex wake_lock_;
  std::condition_variable wake_;
  bool work_ = false;    ///< with wake_lock_: something was appended
  bool stop_ = false;    ///< with wake_lock_
  uint32_t paused_ = 0;  ///< with wake_lock_
  std::string error_;    ///< with wake_lock_

  mutable std::atomic<uint64_t> reads_{0}, read_bytes_{0}, false_positives_{0};
  std::atomic<uint64_t> appended_bytes_{0}, compacted_bytes_{0}, compactions_{0};
  mutable std::atomic<bool> used_io_uring_{false};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_STORE_H_
