// Restores snapshot files into a live table.
#ifndef DE_CORE_ENGINE_TABLE_RESTORE_H_
#define DE_CORE_ENGINE_TABLE_RESTORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

struct RestoreOptions {
  bool replace = true;   ///< remove rows that are not in the files, and use the files' initializer
  bool slots = true;     ///< read slots; otherwise rows get their slots' initial values
  bool convert = false;  ///< accept values of another floating-point dtype
  uint32_t shard_index = 0;    ///< read only keys that ShardOfKey assigns to this shard
  uint32_t shard_count = 1;    ///< number of shards
  const Keys* keys = nullptr;  ///< if set, read only these keys
  std::string chain;           ///< continue this chain of saves after the last file
};

struct RestoreReport {
  uint64_t read = 0;   ///< number of rows and tombstones applied
  uint64_t bytes = 0;  ///< bytes of the files
};

/// Reads chains of files into a table. Verifies all files before it applies any row. Memory: two
/// sections per thread; without `replace`, also the keys of the deltas. No other verb should write
/// meanwhile, because the order of its writes and the files' rows is undefined.
Status RestoreTable(Table* table, const std::vector<const SnapshotReader*>& files,
                    const RestoreOptions& options, Executor* executor, RestoreReport* report);

/// The slots of one optimizer.
struct OwnedSlots {
  std::string owner;
  std::vector<SlotSpec> specs;
};

/// Returns the slots in `files` that a table of `layout` does not have, each owner once.
/// InvalidArgument if a slot has another width or dtype.
Status MissingSlots(RowLayout layout, const std::vector<const SnapshotReader*>& files,
                    std::vector<OwnedSlots>* missing);

/// Verifies every byte, using several threads.
Status VerifySections(const SnapshotReader& file, Executor* executor);

/// Applies selected rows and tombstones of one section. The mask has size section.count +
/// section.tombstones.
class SectionLoader {
 public:
  /// Checks that the file's rows fit the table, and adds slots that the table does not have.
  static Status Create(Table* table, const SnapshotHeader& header, bool slots, bool convert,
                       SectionLoader* loader);

  Status Load(const SnapshotSection& section, const std::vector<bool>* mask) const;

 private:
  Table* table_ = nullptr;
  RowLayout file_{KeyType::kInt64, DType::kFloat32, 1};
  RowLayout target_{KeyType::kInt64, DType::kFloat32, 1};
  RowConverter converter_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_RESTORE_H_
