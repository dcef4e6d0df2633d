// The index of a section: the lines of line_index.h, filled higher than a live table's, and with a
// filter in their spare bits that ends most searches for absent keys at the first line.
#ifndef DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
#define DE_CORE_ENGINE_SNAPSHOT_INDEX_H_

#include <cstdint>

#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/line_index.h"

namespace de::engine {

/// Index lines the writer makes for `count` rows: filled to seven eighths. Keys, index and 16
/// floats a row then take 1.093 times the bytes of keys and floats, 83 of 100 keys are in their
/// home line.
constexpr uint32_t LinesFor(uint32_t count) noexcept {
  return static_cast<uint32_t>((uint64_t{count} * 8 + 34) / 35);
}

/// The filter bit of a key: set in each line that the key passed because it was full.
constexpr uint32_t PassBit(uint64_t hash) noexcept { return 1U << (hash >> 32 & 15); }

/// Which filter bits a search may go on with behind this line.
inline uint32_t Passed(const IndexLine& line) noexcept {
  return line.overflow == 0 ? 0U : line.reserved;
}

/// Adds an absent key to lines[0, size), of which one has room.
inline void InsertIntoLines(IndexLine* lines, uint32_t size, uint64_t word, uint64_t hash,
                            uint32_t row) noexcept {
  LineIndex index(lines, size);
  const uint32_t end = index.Insert(word, hash, row).line;
  for (uint32_t at = index.Home(hash); at != end; at = at + 1 == size ? 0 : at + 1) {
    lines[at].reserved = static_cast<uint16_t>(lines[at].reserved | PassBit(hash));
  }
}

/// The row of the first entry of `word` for which `is_key(row)` holds, or kNoRow. Visits each line
/// at most once whatever the lines hold. The row number is unchecked.
template <typename IsKey>
uint32_t FindInLines(const IndexLine* lines, uint32_t size, uint64_t word, uint64_t hash,
                     const IsKey& is_key) noexcept {
  const uint32_t bit = PassBit(hash);
  uint32_t at = ReduceLow32(hash, size);
  for (uint32_t visited = 0; visited < size; ++visited) {
    const IndexLine& line = lines[at];
    for (uint32_t mask = MatchWord(line, word); mask != 0; mask &= mask - 1) {
      const uint32_t row = line.rows[LowestBit(mask)];
      if (is_key(row)) return row;
    }
    if ((Passed(line) & bit) == 0) break;
    if (++at == size) at = 0;
  }
  return kNoRow;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
