// Finds a key's home line and its row, without the shard itself.
#ifndef DE_CORE_ENGINE_SHARD_READER_H_
#define DE_CORE_ENGINE_SHARD_READER_H_

#include <cstdint>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/index/line_index.h"

namespace de::engine {

/// Where the index lines of a range of hashes lie.
struct LinePlace {
  IndexLine* lines;
  uint32_t size;
  uint32_t segment;
};

/// What a reader needs of a shard while it holds the shard's lock. The directory is addressed by
/// the shard's bits and its own bits at once, so it begins before its first place.
struct ShardReader {
  uintptr_t directory;
  uint32_t shift;
  char* const* extents;

  const IndexLine* HomeLine(uint64_t hash) const noexcept {
    const LinePlace& place =
        *reinterpret_cast<const LinePlace*>(directory + (hash >> shift) * sizeof(LinePlace));
    return place.lines + ReduceLow32(hash, place.size);
  }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_READER_H_
