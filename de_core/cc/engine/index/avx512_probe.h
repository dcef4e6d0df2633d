// The first pass of lookups and writes with AVX-512: it probes each key's home line, where the
// search for the key starts (line_index.h). It hashes eight keys at once, and separates found keys
// from others without branches. So a key without a row costs none of the work on rows.
#ifndef DE_CORE_ENGINE_AVX512_PROBE_H_
#define DE_CORE_ENGINE_AVX512_PROBE_H_

#include "de_core/cc/engine/base/simd_lanes.h"

#if defined(DE_SIMD_DRAWS)

#include <cstring>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/shard_number.h"
#include "de_core/cc/engine/index/line_index.h"
#include "de_core/cc/engine/index/shard_reader.h"
#include "de_core/cc/engine/memory/slab.h"

namespace de::engine {

template <size_t kBytes>
DE_SIXTEEN void CopyRow(char* to, const char* row) noexcept {
  if constexpr (kBytes % 64 == 0) {
    for (size_t i = 0; i < kBytes; i += 64) {
      _mm512_storeu_si512(to + i, _mm512_loadu_si512(row + i));
    }
  } else {
    std::memcpy(to, row, kBytes);
  }
}

// Sources of key words. For lanes past the last key, they return words and hashes whose index lines
// may be read: of shards that occur in the batch.

/// Contiguous keys.
class WordsInOrder {
 public:
  explicit WordsInOrder(const uint64_t* words) noexcept : words_(words) {}

  DE_SIXTEEN __m512i Words(size_t first, __mmask8 keys) const noexcept {
    return _mm512_mask_loadu_epi64(_mm512_set1_epi64(static_cast<long long>(words_[first])), keys,
                                   words_ + first);
  }
  /// Returns the hashes (Mix64) of the words that Words returned.
  DE_SIXTEEN __m512i Hashes(__m512i x, size_t, __mmask8) const noexcept {
    x = Times(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)), kMixFactors[0]);
    x = Times(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)), kMixFactors[1]);
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
  }

 private:
  DE_SIXTEEN static __m512i Times(__m512i a, uint64_t factor) noexcept {
    return _mm512_mullo_epi64(a, _mm512_set1_epi64(static_cast<long long>(factor)));
  }

  const uint64_t* words_;
};

/// Keys selected from a batch of integers, whose hashes are known.
class PickedWords {
 public:
  PickedWords(const int64_t* ints, const uint32_t* positions, const uint64_t* hashes) noexcept
      : ints_(ints), positions_(positions), hashes_(hashes) {}

  DE_SIXTEEN __m512i Words(size_t first, __mmask8 keys) const noexcept {
    const __m256i at = _mm256_maskz_loadu_epi32(keys, positions_ + first);
    return _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), keys, at, ints_, sizeof(*ints_));
  }
  DE_SIXTEEN __m512i Hashes(__m512i, size_t first, __mmask8 keys) const noexcept {
    return _mm512_mask_loadu_epi64(_mm512_set1_epi64(static_cast<long long>(hashes_[first])), keys,
                                   hashes_ + first);
  }

 private:
  const int64_t* ints_;
  const uint32_t* positions_;
  const uint64_t* hashes_;
};

/// Handles one batch of at most 2^16 keys. `Words` provides the keys. `Rows` handles the rows:
///   Ask(key)          called when the key's line is prefetched, also for keys past the last one;
///   Fetch(key, row)   prefetches memory for a key found in its home line, in the batch's order;
///   Use(key, row)     uses the row some keys later;
///   Misses(…)         handles absent keys of a group, and returns those it does not handle;
///   Between(), End()  called now and then, and after the last key.
template <typename Words, typename Rows>
class Avx512Probe {
 public:
  static constexpr size_t kTogether = 8;  ///< keys

  /// `readers` and `map` find the index lines and rows of every shard.
  Avx512Probe(const ShardReader* readers, const Slab::Map& map, const Words& words,
              Rows* rows) noexcept
      : readers_(readers), map_(map), words_(words), use_(*rows) {}

  /// Returns the number of keys found. Writes to `away` the indices of the keys that were neither
  /// used nor handled by Misses. `away` must have room for kTogether extra entries.
  DE_SIXTEEN_CALL size_t Run(size_t count, uint16_t* away, size_t* away_count) noexcept {
    const size_t groups = (count + kTogether - 1) / kTogether;
    for (size_t step = 0; step < groups + kLinesAhead + 1; ++step) {
      if (step < groups) Ask(step, count);
      if (step >= kLinesAhead && step < groups + kLinesAhead) Probe(step - kLinesAhead);
      if (step > kLinesAhead) Sort(step - kLinesAhead - 1, count, away, away_count);
      while (hits_ - asked_ >= kRowsTogether) {
        for (size_t i = 0; i < kRowsTogether; ++i) AskRow();
        if (asked_ - used_ <= kRowsAhead) continue;
        for (size_t i = 0; i < kRowsTogether; ++i) UseRow();
      }
      use_.Between();
    }
    while (asked_ < hits_) AskRow();
    while (used_ < hits_) UseRow();
    use_.End();
    return hits_;
  }

 private:
  // A group's lines are read this many groups after they are prefetched.
  static constexpr size_t kLinesAhead = 4;
  // Number of rows to prefetch before the next group's lines. The misses of eight rows of four
  // cache lines exceed a core's line fill buffers.
  static constexpr size_t kRowsTogether = 4;
  // A row is used after this many later rows are prefetched.
  static constexpr size_t kRowsAhead = 20;
  static constexpr size_t kGroups = 8;  // size of the ring of groups
  static constexpr size_t kHits = 64;   // size of the ring of hits
  static_assert(kGroups > kLinesAhead + 1, "a group must be sorted before it is overwritten");
  static_assert(kHits >= kRowsAhead + 2 * kRowsTogether + kTogether,
                "a hit must be used before it is overwritten");

  /// A hit packs: bits 0-31 row number, 32-47 key index in the batch, 48-63 shard.
  static constexpr unsigned kKeyShift = 32, kShardShift = 48;

  DE_SIXTEEN static __m512i Set(uint64_t x) noexcept {
    return _mm512_set1_epi64(static_cast<long long>(x));
  }

  /// Mask of the group's keys that are in the batch. Only the last group may be partial.
  DE_SIXTEEN static __mmask8 KeysOf(size_t group, size_t count) noexcept {
    const size_t left = count - group * kTogether;
    return static_cast<__mmask8>(left >= kTogether ? 0xffU : (1U << left) - 1);
  }

  DE_SIXTEEN void Ask(size_t group, size_t count) noexcept {
    Group& at = groups_[group % kGroups];
    const size_t first = group * kTogether;
    const __mmask8 keys = KeysOf(group, count);
    const __m512i words = words_.Words(first, keys);
    _mm512_store_si512(at.words, words);
    _mm512_store_si512(at.hashes, words_.Hashes(words, first, keys));
    for (size_t i = 0; i < kTogether; ++i) {
      const uint64_t hash = at.hashes[i];
      at.lines[i] = readers_[ShardOfHash(hash)].HomeLine(hash);
      PrefetchFar(at.lines[i]);
      use_.Ask(first + i);
    }
  }

  DE_SIXTEEN void Probe(size_t group) noexcept {
    Group& at = groups_[group % kGroups];
    for (size_t i = 0; i < kTogether; ++i) {
      const IndexLine& line = *at.lines[i];
      // The last three of the line's eight 64-bit lanes hold no words. `used` has no bits for them.
      const __m512i all = _mm512_load_si512(&line);
      const uint32_t equal = _mm512_cmpeq_epi64_mask(all, Set(at.words[i]));
      uint32_t end;
      std::memcpy(&end, &line.used, sizeof(end));
      end &= equal | ~0xffU;
      at.probes[i][0] = line.rows[LowestBit(end | 1U << (kEntriesPerLine - 1))];
      at.probes[i][1] = end;
    }
  }

  /// Divides a group into hits, absent keys, and keys that may be in a later line ("away"). The
  /// previous step has probed the group, so its stores have reached the cache by now.
  DE_SIXTEEN void Sort(size_t group, size_t count, uint16_t* away, size_t* away_count) noexcept {
    const Group& at = groups_[group % kGroups];
    const __mmask8 keys = KeysOf(group, count);
    const __m512i probes = _mm512_load_si512(at.probes);
    const __m512i hashes = _mm512_load_si512(at.hashes);
    const __m512i numbers =
        _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), Set(group * kTogether));
    // Like HasPassed. A probe packs: bits 0-31 row number, 32-39 `used`, 40-47 `overflow`, 48-63
    // `filter`.
    const __m512i kind = _mm512_and_si512(_mm512_srli_epi64(hashes, 32), Set(15));
    const __m512i filter = _mm512_srlv_epi64(probes, _mm512_add_epi64(kind, Set(48)));
    const __mmask8 hits = _mm512_mask_test_epi64_mask(keys, probes, Set(0xffULL << 32));
    const __mmask8 misses = keys & static_cast<__mmask8>(~hits);
    const __mmask8 passed = _mm512_mask_test_epi64_mask(
        _mm512_mask_test_epi64_mask(misses, probes, Set(0xffULL << 40)), filter, Set(1));

    const __m512i shards = _mm512_srli_epi64(hashes, 64 - kShardBits);
    const __m512i hit = _mm512_or_si512(_mm512_and_si512(probes, Set(0xffffffffU)),
                                        _mm512_or_si512(_mm512_slli_epi64(numbers, kKeyShift),
                                                        _mm512_slli_epi64(shards, kShardShift)));
    const __m512i listed = _mm512_maskz_compress_epi64(hits, hit);
    // Hits that run past the ring's end belong to its start. The second store writes them there.
    uint64_t* const place = ring_ + kHits + hits_ % kHits;
    _mm512_storeu_si512(place, listed);
    _mm512_storeu_si512(place - kHits, listed);
    hits_ += static_cast<uint32_t>(__builtin_popcount(hits));

    const __mmask8 left =
        use_.Misses(group * kTogether, keys, hits, passed, _mm512_load_si512(at.words), numbers);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(away + *away_count),
                     _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(left, numbers)));
    *away_count += static_cast<uint32_t>(__builtin_popcount(left));
  }

  DE_SIXTEEN void AskRow() noexcept {
    const uint64_t hit = ring_[kHits + asked_ % kHits];
    char* const row = map_.RowIn(readers_[hit >> kShardShift].extents, static_cast<uint32_t>(hit));
    rows_[asked_ % kHits] = row;
    use_.Fetch(hit >> kKeyShift & 0xffff, row);
    ++asked_;
  }

  DE_SIXTEEN void UseRow() noexcept {
    const size_t key = ring_[kHits + used_ % kHits] >> kKeyShift & 0xffff;
    use_.Use(key, rows_[used_ % kHits]);
    ++used_;
  }

  struct alignas(64) Group {
    uint64_t words[kTogether];
    uint64_t hashes[kTogether];
    /// Row number, and the line's last four bytes, where `used` keeps only the matching entries.
    uint32_t probes[kTogether][2];
    const IndexLine* lines[kTogether];
  };

  const ShardReader* const readers_;
  const Slab::Map map_;
  const Words words_;
  Rows& use_;
  size_t hits_ = 0, asked_ = 0, used_ = 0;
  Group groups_[kGroups];
  /// Hits, in a ring at [kHits, 2 kHits). Stores past the ring's ends go to the rest of the array.
  uint64_t ring_[2 * kHits + kTogether];
  char* rows_[kHits];
};

}  // namespace de::engine

#endif  // defined(DE_SIMD_DRAWS)
#endif  // DE_CORE_ENGINE_AVX512_PROBE_H_
