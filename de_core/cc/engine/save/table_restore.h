// Restores snapshot files into a table.
#ifndef DE_CORE_ENGINE_TABLE_RESTORE_H_
#define DE_CORE_ENGINE_TABLE_RESTORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "de_core/cc/engine/backend/table_backend.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::engine {

struct RestoreOptions {
  /// first remove all rows of the table, and use the initializer of the files
  bool replace = true;
  bool slots = true;  ///< read slots from the files; otherwise rows get the slots' initial values
  bool convert = false;        ///< accept values of another floating-point dtype
  uint32_t shard_index = 0;    ///< read only keys that ShardOfKey assigns to this shard
  uint32_t shard_count = 1;    ///< number of shards; 1 means read all keys
  const Keys* keys = nullptr;  ///< if set, read only these keys
  bool int32_keys = false;     ///< without `keys`: refuse files with a key outside int32
  std::string chain;  ///< later saves continue this chain after the last file; empty for none
};

struct RestoreReport {
  uint64_t read = 0;   ///< number of rows and tombstones applied
  uint64_t bytes = 0;  ///< total size of the files that were read
};

/// Reads chains of files, each a base and its deltas, into a table. Verifies all files before it
/// applies any row. Memory: two sections per thread; without `replace`, also the keys of the
/// deltas. No other verb should write to the table meanwhile, because it is undefined whether its
/// rows or the files' rows win.
Status RestoreTable(TableBackend* table, const std::vector<const SnapshotReader*>& files,
                    const RestoreOptions& options, Executor* executor, RestoreReport* report);

/// Reads and checks every section of a file, on several threads. With `int32_keys`, returns
/// InvalidArgument for a key outside int32.
Status VerifySections(const SnapshotReader& file, Executor* executor, bool int32_keys = false);

/// Returns InvalidArgument unless the keys of a section's rows and tombstones are in int32.
Status CheckInt32Keys(const SnapshotSection& section);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_RESTORE_H_
