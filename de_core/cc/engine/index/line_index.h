// The hash index of tables in memory and of snapshot files: an array of 64-byte lines. A line has
// five keys and their row numbers, so that a lookup touches one cache line before the row itself.
// `hash` below places a key: in a file Mix64(word), in memory SeededHash(Mix64(word), seed).
//
// Probing is linear over lines, starting at the key's home line. A line counts the entries that did
// not fit and went to a later line (`overflow`). A search stops at the first line with no overflow,
// and erasing leaves no tombstone (after F14, Facebook 2019). A 16-bit filter records the hash bits
// of the keys that went on, so most searches for absent keys end at the home line. `used` tells
// which entries are occupied, so that every key value is legal.
#ifndef DE_CORE_ENGINE_LINE_INDEX_H_
#define DE_CORE_ENGINE_LINE_INDEX_H_

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

inline constexpr uint32_t kEntriesPerLine = 5;

/// One cache line of the index; also the on-disk layout of a snapshot's index (little-endian).
struct alignas(64) IndexLine {
  uint64_t words[kEntriesPerLine];  ///< key words; valid only where `used` has the bit set
  uint32_t rows[kEntriesPerLine];   ///< row numbers
  uint8_t used;                     ///< bit i: entry i is occupied
  uint8_t overflow;  ///< entries that did not fit and went on; at 255 it never changes
  uint16_t filter;   ///< PassBit of each entry that went on; see Passed
};
static_assert(sizeof(IndexLine) == 64, "a line is a cache line");
static_assert(kEntriesPerLine == 5, "MatchWord compares four words at once and one");

/// Sets bit i if entry i of `line` is occupied and holds `word`.
inline uint32_t MatchWord(const IndexLine& line, uint64_t word) noexcept {
#if defined(__SSE2__)
  // SSE2 compares 32 bits at a time, so both halves of a word must match.
  const __m128i wanted = _mm_set1_epi64x(static_cast<long long>(word));
  const auto halves = [&](const uint64_t* at) {
    const __m128i pair = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm_castsi128_ps(_mm_cmpeq_epi32(pair, wanted));
  };
  const __m128 first = halves(line.words), second = halves(line.words + 2);
  const __m128 low = _mm_shuffle_ps(first, second, _MM_SHUFFLE(2, 0, 2, 0));
  const __m128 high = _mm_shuffle_ps(first, second, _MM_SHUFFLE(3, 1, 3, 1));
  const auto four = static_cast<uint32_t>(_mm_movemask_ps(_mm_and_ps(low, high)));
  return (four | static_cast<uint32_t>(line.words[4] == word) << 4) & line.used;
#elif defined(__aarch64__)
  const uint64x2_t wanted = vdupq_n_u64(word);
  const uint32x2_t first = vmovn_u64(vceqq_u64(vld1q_u64(line.words), wanted));
  const uint32x2_t second = vmovn_u64(vceqq_u64(vld1q_u64(line.words + 2), wanted));
  constexpr uint32_t kBits[4] = {1, 2, 4, 8};
  const uint32_t four = vaddvq_u32(vandq_u32(vcombine_u32(first, second), vld1q_u32(kBits)));
  return (four | static_cast<uint32_t>(line.words[4] == word) << 4) & line.used;
#else
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kEntriesPerLine; ++i) {
    mask |= static_cast<uint32_t>(line.words[i] == word) << i;
  }
  return mask & line.used;
#endif
}

/// Computes the hash that places a key in the lines of its segment. `seed` is odd and random, so
/// that nobody outside of the process can choose many keys of one line. The high bits of a product
/// depend on all bits of its factors.
constexpr uint64_t SeededHash(uint64_t hash, uint64_t seed) noexcept { return hash * seed >> 28; }

/// The filter bit of a key: set in each full line that the key passed on its way to a later one.
constexpr uint32_t PassBit(uint64_t hash) noexcept { return 1U << (hash >> 32 & 15); }

/// The filter bits of the keys that may be in later lines; 0 if no key went on.
inline uint32_t Passed(const IndexLine& line) noexcept {
  return line.overflow == 0 ? 0U : line.filter;
}

/// True if a key with this hash may be in a later line. Has no branch.
inline bool HasPassed(const IndexLine& line, uint64_t hash) noexcept {
  const uint32_t kind = static_cast<uint32_t>(hash >> 32) & 15;
  return ((line.filter >> kind & 1) & static_cast<uint32_t>(line.overflow != 0)) != 0;
}

inline uint32_t LowestBit(uint32_t mask) noexcept {
  return static_cast<uint32_t>(__builtin_ctz(mask));
}

inline constexpr uint32_t kFullLine = (1U << kEntriesPerLine) - 1;
inline constexpr uint32_t kNoRow = 0xffffffffU;

/// The position of an entry: its line, and its number in the line.
struct EntryPosition {
  uint32_t line = 0;
  uint32_t entry = kEntriesPerLine;  ///< kEntriesPerLine: not found
  bool found() const noexcept { return entry < kEntriesPerLine; }
};

/// Finds the entry of `word` in lines[0, size) for which `is_key(row)` holds. `is_key`
/// distinguishes string keys with equal words. Visits each line at most once, so a corrupt file
/// cannot make it loop.
template <typename IsKey>
EntryPosition FindEntry(const IndexLine* lines, uint32_t size, uint64_t word, uint64_t hash,
                        const IsKey& is_key) noexcept {
  const uint32_t bit = PassBit(hash);
  uint32_t at = ReduceLow32(hash, size);
  for (uint32_t visited = 0; visited < size; ++visited) {
    const IndexLine& line = lines[at];
    for (uint32_t mask = MatchWord(line, word); mask != 0; mask &= mask - 1) {
      const uint32_t entry = LowestBit(mask);
      if (is_key(line.rows[entry])) return {at, entry};
    }
    if ((Passed(line) & bit) == 0) break;
    if (++at == size) at = 0;
  }
  return {};
}

/// Returns the row number in the entry that FindEntry finds, or kNoRow.
template <typename IsKey>
uint32_t FindRow(const IndexLine* lines, uint32_t size, uint64_t word, uint64_t hash,
                 const IsKey& is_key) noexcept {
  const EntryPosition at = FindEntry(lines, size, word, hash, is_key);
  return at.found() ? lines[at.line].rows[at.entry] : kNoRow;
}

/// Calls visit(word, row) for every entry of lines[0, size).
template <typename Visit>
void ForEachEntry(const IndexLine* lines, uint32_t size, const Visit& visit) {
  for (uint32_t at = 0; at < size; ++at) {
    for (uint32_t mask = lines[at].used & kFullLine; mask != 0; mask &= mask - 1) {
      const uint32_t entry = LowestBit(mask);
      visit(lines[at].words[entry], lines[at].rows[entry]);
    }
  }
}

/// A view of `size` lines. Does not own them and has no other state.
class LineIndex {
 public:
  using Position = EntryPosition;

  LineIndex(IndexLine* lines, uint32_t size) noexcept : lines_(lines), size_(size) {}

  uint32_t Home(uint64_t hash) const noexcept { return ReduceLow32(hash, size_); }

  /// Calls FindEntry on these lines.
  template <typename IsKey>
  Position Find(uint64_t word, uint64_t hash, const IsKey& is_key) const noexcept {
    return FindEntry(lines_, size_, word, hash, is_key);
  }

  /// Inserts an entry, whose key must be absent. There must be a free entry somewhere.
  Position Insert(uint64_t word, uint64_t hash, uint32_t row) noexcept {
    uint32_t at = Home(hash);
    while (lines_[at].used == kFullLine) {
      IndexLine& full = lines_[at];
      full.filter = static_cast<uint16_t>(Passed(full) | PassBit(hash));
      if (full.overflow != 255) ++full.overflow;
      if (++at == size_) at = 0;
    }
    IndexLine& line = lines_[at];
    const uint32_t entry = LowestBit(~static_cast<uint32_t>(line.used));
    line.words[entry] = word;
    line.rows[entry] = row;
    line.used = static_cast<uint8_t>(line.used | (1U << entry));
    return {at, entry};
  }

  /// Removes the entry at `position`. `hash` is its key's hash.
  void Erase(Position position, uint64_t hash) noexcept {
    for (uint32_t at = Home(hash); at != position.line;) {
      IndexLine& passed = lines_[at];
      if (passed.overflow != 255 && --passed.overflow == 0) passed.filter = 0;
      if (++at == size_) at = 0;
    }
    IndexLine& line = lines_[position.line];
    line.used = static_cast<uint8_t>(line.used & ~(1U << position.entry));
  }

 private:
  IndexLine* lines_;  // (size)
  uint32_t size_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LINE_INDEX_H_
