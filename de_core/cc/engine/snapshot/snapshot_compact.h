// A base and its deltas written as one new base, file to file, a section at a time.
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

/// Writes what a chain of files says. The result is the table as the last of them left it, so it
/// carries that one's id, sequence, slots and metadata, and the next delta belongs on it as well.
/// Memory: two sections a file. Every section is verified as it is read.
Status CompactSnapshots(const std::vector<const SnapshotReader*>& files, ByteSink* sink,
                        CompactReport* report);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_COMPACT_H_
