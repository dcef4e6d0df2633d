// The first pass of a lookup of plain rows where the processor has AVX-512: what the home lines of
// keys tell. Eight keys are hashed, and sorted by what was found, at once and without a branch, so
// that a key without a row costs nothing of what reading a row costs.
#ifndef DE_CORE_ENGINE_WIDE_FIND_H_
#define DE_CORE_ENGINE_WIDE_FIND_H_

#include "de_core/cc/engine/wide_lanes.h"

#if defined(DE_WIDE_DRAWS)

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/initializer.h"
#include "de_core/cc/engine/line_index.h"
#include "de_core/cc/engine/prefetch.h"
#include "de_core/cc/engine/shard.h"

namespace de::engine {

/// Of rows of kRowBytes, a multiple of 64 or 32. For one batch of at most 2^16 keys.
template <size_t kRowBytes>
class WideFind {
 public:
  static constexpr size_t kTogether = 8;  ///< keys

  /// The index lines and rows of every shard, and what is written: rows at `out`, and whether keys
  /// were found where `found` is not null.
  WideFind(const Shard::Reader* readers, const Slab::Map& map, const Initializer& initializer,
           char* out, bool* found) noexcept
      : readers_(readers), map_(map), initializer_(initializer), out_(out), found_(found) {}

  /// Reads the rows of the keys that are in their home line, and writes the initial rows of those
  /// that the home line shows to be nowhere. The numbers of all others are put into `away`, which
  /// has room for kTogether more. Returns how many keys it found.
  DE_SIXTEEN_CALL size_t Run(const uint64_t* words, size_t count, uint16_t* away,
                             size_t* away_count) noexcept {
    const size_t groups = (count + kTogether - 1) / kTogether;
    for (size_t step = 0; step < groups + kLinesAhead + 1; ++step) {
      if (step < groups) Ask(words, step, count);
      if (step >= kLinesAhead && step < groups + kLinesAhead) Probe(step - kLinesAhead);
      if (step > kLinesAhead) Sort(step - kLinesAhead - 1, count, away, away_count);
      while (hits_ - asked_ >= kRowsTogether) {
        for (size_t i = 0; i < kRowsTogether; ++i) AskRow();
        if (asked_ - read_ <= kRowsAhead) continue;
        for (size_t i = 0; i < kRowsTogether; ++i) ReadRow();
      }
      if (absent_ >= kAbsentTogether) WriteAbsent();
    }
    while (asked_ < hits_) AskRow();
    while (read_ < hits_) ReadRow();
    initializer_.FillRows(absent_words_, absent_rows_, absent_);
    return hits_;
  }

 private:
  // Groups of keys between asking for their lines and reading these.
  static constexpr size_t kLinesAhead = 4;
  // Rows asked for before the next group's lines are: eight of four lines are more than a core has
  // buffers for.
  static constexpr size_t kRowsTogether = 4;
  // Rows between asking for one and reading it.
  static constexpr size_t kRowsAhead = 20;
  // Initial rows that are drawn together.
  static constexpr size_t kAbsentTogether = 32;
  static constexpr size_t kGroups = 8;  // in the rings
  static constexpr size_t kHits = 64;
  static_assert(kGroups > kLinesAhead + 1, "a group must be sorted before it is overwritten");
  static_assert(kHits >= kRowsAhead + 2 * kRowsTogether + kTogether,
                "a hit must be read before it is overwritten");

  /// A hit: the row's number, above it the key's in the batch, above that the shard.
  static constexpr unsigned kKeyShift = 32, kShardShift = 48;

  DE_SIXTEEN static __m512i Set(uint64_t x) noexcept {
    return _mm512_set1_epi64(static_cast<long long>(x));
  }

  /// Mix64 of eight words.
  DE_SIXTEEN static __m512i Mix(__m512i x) noexcept {
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 30));
    x = _mm512_mullo_epi64(x, Set(0xbf58476d1ce4e5b9ULL));
    x = _mm512_xor_si512(x, _mm512_srli_epi64(x, 27));
    x = _mm512_mullo_epi64(x, Set(0x94d049bb133111ebULL));
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
  }

  /// Which of a group's keys are in the batch: the last group may have less.
  DE_SIXTEEN static __mmask8 KeysOf(size_t group, size_t count) noexcept {
    const size_t left = count - group * kTogether;
    return static_cast<__mmask8>(left >= kTogether ? 0xffU : (1U << left) - 1);
  }

  DE_SIXTEEN void Ask(const uint64_t* words, size_t group, size_t count) noexcept {
    Group& at = groups_[group % kGroups];
    const __m512i keys = _mm512_maskz_loadu_epi64(KeysOf(group, count), words + group * kTogether);
    _mm512_store_si512(at.words, keys);
    _mm512_store_si512(at.hashes, Mix(keys));
    for (size_t i = 0; i < kTogether; ++i) {
      const uint64_t hash = at.hashes[i];
      at.lines[i] = readers_[ShardOfHash(hash)].HomeLine(hash);
      PrefetchFar(at.lines[i]);
      if (!mixed_) continue;
      // Behind the last key that is some memory that nobody writes, which does no harm.
      const char* const to = out_ + (group * kTogether + i) * kRowBytes;
      for (size_t byte = 0; byte < kRowBytes; byte += 64) PrefetchToWrite(to + byte);
    }
  }

  DE_SIXTEEN void Probe(size_t group) noexcept {
    Group& at = groups_[group % kGroups];
    for (size_t i = 0; i < kTogether; ++i) {
      const IndexLine& line = *at.lines[i];
      // Behind the five words lie three that are none; `used` has no bits for them.
      const __m512i all = _mm512_load_si512(&line);
      const uint32_t equal = _mm512_cmpeq_epi64_mask(all, Set(at.words[i]));
      uint32_t end;
      std::memcpy(&end, &line.used, sizeof(end));
      end &= equal | ~0xffU;
      at.probes[i][0] = line.rows[LowestBit(end | 1U << (kEntriesPerLine - 1))];
      at.probes[i][1] = end;
    }
  }

  /// What was probed a step before, when its last store is in the cache: hits, absent keys, and
  /// those that are away.
  DE_SIXTEEN void Sort(size_t group, size_t count, uint16_t* away, size_t* away_count) noexcept {
    const Group& at = groups_[group % kGroups];
    const __mmask8 keys = KeysOf(group, count);
    const __m512i probes = _mm512_load_si512(at.probes);
    const __m512i hashes = _mm512_load_si512(at.hashes);
    const __m512i numbers =
        _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), Set(group * kTogether));
    // HasPassed: the filter is above `used` and `overflow`, and those above the row.
    const __m512i kind = _mm512_and_si512(_mm512_srli_epi64(hashes, 32), Set(15));
    const __m512i filter = _mm512_srlv_epi64(probes, _mm512_add_epi64(kind, Set(48)));
    const __mmask8 hits = _mm512_mask_test_epi64_mask(keys, probes, Set(0xffULL << 32));
    const __mmask8 misses = keys & static_cast<__mmask8>(~hits);
    const __mmask8 passed = _mm512_mask_test_epi64_mask(
        _mm512_mask_test_epi64_mask(misses, probes, Set(0xffULL << 40)), filter, Set(1));
    const __mmask8 absent = misses & static_cast<__mmask8>(~passed);

    const __m512i shards = _mm512_srli_epi64(hashes, 64 - kShardBits);
    const __m512i hit = _mm512_or_si512(_mm512_and_si512(probes, Set(0xffffffffU)),
                                        _mm512_or_si512(_mm512_slli_epi64(numbers, kKeyShift),
                                                        _mm512_slli_epi64(shards, kShardShift)));
    const __m512i found = _mm512_maskz_compress_epi64(hits, hit);
    // The second store is for those that run over the ring's end.
    uint64_t* const place = ring_ + kHits + hits_ % kHits;
    _mm512_storeu_si512(place, found);
    _mm512_storeu_si512(place - kHits, found);
    hits_ += static_cast<uint32_t>(__builtin_popcount(hits));

    const __m512i to = _mm512_add_epi64(Set(reinterpret_cast<uintptr_t>(out_)),
                                        _mm512_mullo_epi64(numbers, Set(kRowBytes)));
    _mm512_storeu_si512(absent_words_ + absent_,
                        _mm512_maskz_compress_epi64(absent, _mm512_load_si512(at.words)));
    _mm512_storeu_si512(absent_rows_ + absent_, _mm512_maskz_compress_epi64(absent, to));
    absent_ += static_cast<uint32_t>(__builtin_popcount(absent));
    // Rows of hits alone are written one after the other, which the processor foresees.
    misses_ += static_cast<size_t>(__builtin_popcount(misses));
    mixed_ = misses_ > group + 1;

    _mm_storeu_si128(reinterpret_cast<__m128i*>(away + *away_count),
                     _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(passed, numbers)));
    *away_count += static_cast<uint32_t>(__builtin_popcount(passed));

    if (found_ != nullptr) {
      _mm_mask_storeu_epi8(found_ + group * kTogether, keys, _mm_maskz_set1_epi8(hits, 1));
    }
  }

  DE_SIXTEEN void AskRow() noexcept {
    const uint64_t hit = ring_[kHits + asked_ % kHits];
    const char* const row =
        map_.RowIn(readers_[hit >> kShardShift].extents, static_cast<uint32_t>(hit));
    rows_[asked_ % kHits] = row;
    PrefetchBytes<kRowBytes>(row);
    ++asked_;
  }

  DE_SIXTEEN void ReadRow() noexcept {
    const size_t key = ring_[kHits + read_ % kHits] >> kKeyShift & 0xffff;
    const char* const row = rows_[read_ % kHits];
    char* const to = out_ + key * kRowBytes;
    if constexpr (kRowBytes % 64 == 0) {
      for (size_t i = 0; i < kRowBytes; i += 64) {
        _mm512_storeu_si512(to + i, _mm512_loadu_si512(row + i));
      }
    } else {
      std::memcpy(to, row, kRowBytes);
    }
    ++read_;
  }

  DE_SIXTEEN void WriteAbsent() noexcept {
    initializer_.FillRows(absent_words_, absent_rows_, kAbsentTogether);
    absent_ -= kAbsentTogether;
    _mm512_storeu_si512(absent_words_, _mm512_loadu_si512(absent_words_ + kAbsentTogether));
    _mm512_storeu_si512(absent_rows_, _mm512_loadu_si512(absent_rows_ + kAbsentTogether));
  }

  struct alignas(64) Group {
    uint64_t words[kTogether];
    uint64_t hashes[kTogether];
    uint32_t probes[kTogether][2];  ///< a row, and the line's end: of `used` what matched
    const IndexLine* lines[kTogether];
  };

  const Shard::Reader* const readers_;
  const Slab::Map map_;
  const Initializer& initializer_;
  char* const out_;
  bool* const found_;
  size_t hits_ = 0, asked_ = 0, read_ = 0, absent_ = 0;
  size_t misses_ = 0;
  bool mixed_ = false;  ///< more than one key in eight was no hit
  Group groups_[kGroups];
  uint64_t ring_[2 * kHits + kTogether];  ///< hits, from kHits on
  const char* rows_[kHits];
  uint64_t absent_words_[kAbsentTogether + kTogether];
  void* absent_rows_[kAbsentTogether + kTogether];
};

}  // namespace de::engine

#endif  // defined(DE_WIDE_DRAWS)
#endif  // DE_CORE_ENGINE_WIDE_FIND_H_
