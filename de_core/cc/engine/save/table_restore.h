// Reading snapshot files into a live table.
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
  bool replace = true;         ///< remove what is not in the files; take over their initializer
  bool slots = true;           ///< else rows get their slots' initial values
  bool convert = false;        ///< take values of another floating-point dtype
  uint32_t shard_index = 0;    ///< only keys that ShardOfKey gives to this shard
  uint32_t shard_count = 1;    ///< of so many
  const Keys* keys = nullptr;  ///< only these, where set
  std::string chain;           ///< go on with this chain of saves behind the last file
};

struct RestoreReport {
  uint64_t read = 0;   ///< rows and tombstones that were applied
  uint64_t bytes = 0;  ///< of the files
};

/// Reads chains of files into a table; none of their rows is applied before all of them are
/// verified. Memory: for each thread two sections; and with `replace` off, the keys of the deltas.
/// No other verb should write meanwhile: it may come before or behind the files' rows.
Status RestoreTable(Table* table, const std::vector<const SnapshotReader*>& files,
                    const RestoreOptions& options, Executor* executor, RestoreReport* report);

/// Slots of one optimizer.
struct OwnedSlots {
  std::string owner;
  std::vector<SlotSpec> specs;
};

/// The slots of `files` that a table of `layout` lacks, each owner once. InvalidArgument where a
/// slot has another width or dtype.
Status MissingSlots(RowLayout layout, const std::vector<const SnapshotReader*>& files,
                    std::vector<OwnedSlots>* missing);

/// Verifies every byte, on several threads.
Status VerifySections(const SnapshotReader& file, Executor* executor);

/// Applies chosen rows and tombstones of one section: mask (section.count + section.tombstones).
class SectionLoader {
 public:
  /// Checks that rows of the file fit the table, and adds the slots that the table lacks.
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
