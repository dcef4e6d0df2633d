// Merges successive files of a chain into one file, one section at a time.
#ifndef DE_CORE_ENGINE_SNAPSHOT_COMPACT_H_
#define DE_CORE_ENGINE_SNAPSHOT_COMPACT_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::engine {

struct CompactReport {
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  uint64_t bytes = 0;
};

/// Merges `files`, a chain or a part of a chain, in order. A base and its deltas become a base.
/// Deltas become a delta that has the parent of the first one. The result has the id, sequence,
/// slots and metadata of the last file, so the next delta can follow it too. Memory: two sections
/// per file. Verifies every section it reads.
Status CompactSnapshots(const std::vector<const SnapshotReader*>& files, ByteSink* sink,
                        CompactReport* report);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_COMPACT_H_
