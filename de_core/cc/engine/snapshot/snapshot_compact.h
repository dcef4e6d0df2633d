// Merges a base and its deltas into a new base, from file to file, one section at a time.
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
  uint64_t bytes = 0;
};

/// Writes a base with the contents of a chain: `files` is a base and its deltas, in order. The
/// result has the id, sequence, slots and metadata of the last file, so the next delta can follow
/// it too. Memory: two sections per file. Verifies every section it reads.
Status CompactSnapshots(const std::vector<const SnapshotReader*>& files, ByteSink* sink,
                        CompactReport* report);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_COMPACT_H_
