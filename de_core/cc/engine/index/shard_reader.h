// Finds a key's home line and row without the shard object.
#ifndef DE_CORE_ENGINE_SHARD_READER_H_
#define DE_CORE_ENGINE_SHARD_READER_H_

#include <cstdint>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/index/line_index.h"

namespace de::engine {

/// The location of the index lines for a range of hashes.
struct LinePlace {
  IndexLine* lines;
  uint32_t size;     ///< number of lines
  uint32_t segment;  ///< number of the shard's segment that owns the lines
};

/// The data of a shard that a reader needs while it holds the shard's lock. `hash >> shift` is an
/// index into the shard's directory, with the shard's number in the bits above. `directory` is the
/// directory's address minus the offset that the shard's number adds, so that HomeLine need not
/// remove these bits.
struct ShardReader {
  uintptr_t directory;
  uint32_t shift;
  char* const* extents;
  uint64_t seed;  ///< of SeededHash

  const IndexLine* HomeLine(uint64_t hash) const noexcept {
    const LinePlace& place =
        *reinterpret_cast<const LinePlace*>(directory + (hash >> shift) * sizeof(LinePlace));
    return place.lines + ReduceLow32(SeededHash(hash, seed), place.size);
  }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_READER_H_
