// Lookups in a mapped snapshot. The pipeline is the same as for a table in memory: see
// table_find.cc.
#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/index/pipeline.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/engine/serving/frozen_table.h"

namespace de::engine {
namespace {

// Keys that are looked up together. Bounds the list of keys that are not in their home line.
constexpr size_t kKeysPerChunk = 2048;

// A search that visits this many lines has ended for 96 of 100 keys, as full as the writer makes
// the index.
constexpr uint32_t kLinesAhead = 4;
// Rows that are read together: the reader of small values handles several at once.
constexpr size_t kRowsPerRead = 4;
static_assert(kPipelineRing % kRowsPerRead == 0, "rows that are read together must be adjacent");
// Marks a search that has not ended. Greater than every row number of a section.
constexpr uint32_t kUnsettled = kNoRow - 1;

/// Searches for the word in the first kLinesAhead lines from its home line on. Returns its row
/// number, kNoRow if it is absent, or kUnsettled if it may be in a later line. If several string
/// keys have this word, the row may be another key's row; ResolveKey then finds the right one.
inline uint32_t FindNear(const IndexLine* lines, uint32_t size, uint64_t word,
                         uint64_t hash) noexcept {
  uint32_t at = ReduceLow32(hash, size);
  for (uint32_t visited = 0; visited < std::min(kLinesAhead, size); ++visited) {
    const IndexLine& line = lines[at];
    const uint32_t mask = MatchWord(line, word);
    if (mask != 0) return line.rows[LowestBit(mask)];
    if ((Passed(line) & PassBit(hash)) == 0) return kNoRow;
    if (++at == size) at = 0;
  }
  return kUnsettled;
}

template <bool kStringKeys>
inline uint64_t WordAt(const Keys& keys, size_t i) noexcept {
  return kStringKeys ? HashBytes(keys.strings[i]) : static_cast<uint64_t>(keys.ints[i]);
}

}  // namespace

/// Looks up the keys at position_of(j), for every j in [0, count), in all lines where they may be.
/// Calls deliver(position_of(j), answer) in order. Records a corrupt section in `failure`.
template <bool kStringKeys, typename PositionOf, typename Deliver>
void FrozenTable::Search(const Keys& keys, size_t count, const PositionOf& position_of,
                         Failure* failure, const Deliver& deliver) const {
  uint64_t words[kPipelineRing];
  uint64_t hashes[kPipelineRing];
  const Place* places[kPipelineRing];
  uint32_t rows[kPipelineRing];
  const auto row_at = [&](size_t at) DE_ALWAYS_INLINE {
    return places[at]->rows + uint64_t{rows[at]} * stride_;
  };
  RunPipeline(
      0, count,
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        words[at] = WordAt<kStringKeys>(keys, position_of(j));
        hashes[at] = Mix64(words[at]);
        places[at] = &PlaceOf(hashes[at]);
        const Place& place = *places[at];
        const IndexLine* const home = place.lines + ReduceLow32(hashes[at], place.line_count);
        // Prefetching past the last line is safe: the rows follow it in memory.
        for (size_t i = 0; i < kLinesAhead; ++i) PrefetchFar(home + i);
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        const Place& place = *places[at];
        rows[at] = FindNear(place.lines, place.line_count, words[at], hashes[at]);
        if (rows[at] == kUnsettled) {
          const uint32_t next = ReduceLow32(hashes[at], place.line_count) + kLinesAhead;
          for (size_t i = 0; i < 2 * kLinesAhead; ++i) PrefetchFar(place.lines + next + i);
        }
        if (rows[at] >= place.count) return;
        PrefetchBytes(row_at(at), prefetch_bytes_);
        if (kStringKeys) PrefetchFar(row_at(at) + key_offset_);
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        const Place& place = *places[at];
        if (rows[at] == kUnsettled) {
          rows[at] = FindRow(place.lines, place.line_count, words[at], hashes[at],
                             [](uint32_t) { return true; });
          if (rows[at] < place.count) PrefetchBytes(row_at(at), prefetch_bytes_);
        }
        std::string_view text;
        if (kStringKeys && RowKeyAt(*places[at], rows[at], &text)) PrefetchFar(text.data());
      },
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        const size_t i = position_of(j);
        const Place& place = *places[at];
        uint32_t& row = rows[at];
        bool intact = true;
        if constexpr (kStringKeys) {
          intact = row == kNoRow || ResolveKey(place, keys.strings[i], words[at], hashes[at], &row);
        }
        const bool gone = row != kNoRow && row >= place.count;
        intact = intact && (!gone || row - place.count < place.tombstone_count);
        const bool here = row != kNoRow && !gone;
        intact = intact && deliver(i, Answer{words[at], here ? row_at(at) : nullptr, gone});
        if (!intact && !failure->any()) failure->corrupt = &place;
      });
}

/// Looks up keys [begin, begin + count), at most kKeysPerChunk, in two passes, and calls deliver(i,
/// answer) for each key, like Search. The first pass searches the home line; the second pass
/// searches all lines for the keys that the first pass did not find. If kTouched is not 0, it must
/// be from prefetch_bytes_ to prefetch_bytes_ + 63. Then the first pass has no branch, and calls
/// read(i, rows, n) for keys i to i + n - 1. Some of these rows are placeholders; the second pass
/// delivers their keys.
template <bool kStringKeys, size_t kTouched, typename Deliver, typename Read>
void FrozenTable::FindChunk(const Keys& keys, size_t begin, size_t count, Failure* failure,
                            const Deliver& deliver, const Read& read) const {
  uint64_t words[kPipelineRing];
  const Cell* cells[kPipelineRing];
  const IndexLine* lines[kPipelineRing];
  uint8_t pass_bits[kPipelineRing];
  const char* rows[kPipelineRing];
  const Place* places[kPipelineRing];  // places of string keys
  // Keys that are not in their home line are listed in `away` and resolved after all other keys. So
  // neither an unpredictable branch nor a line that was not prefetched stalls the pipeline.
  uint16_t away[kKeysPerChunk + 1];
  size_t away_count = 0;
  size_t next_away = 0;
  const auto blank = reinterpret_cast<uintptr_t>(blank_.data());
  const size_t stride = stride_;
  const bool aligned = stride % 64 == 0;
  const size_t touched = prefetch_bytes_;
  RunPipeline(
      0, count,
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        words[at] = WordAt<kStringKeys>(keys, begin + j);
        const uint64_t hash = Mix64(words[at]);
        const Cell* const cell = &cells_[hash >> cell_shift_];
        cells[at] = cell;
        lines[at] = cell->lines + ReduceLow32(hash, cell->line_count);
        pass_bits[at] = static_cast<uint8_t>(hash >> 32 & 15);
        if (kStringKeys) {
          places[at] = &places_[first_places_[hash >> cell_shift_]];
          PrefetchFar(places[at]);
        }
        PrefetchFar(lines[at]);
      },
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        // Avoid a branch on the line's contents: it would wait for the line before the next keys'
        // memory is prefetched. An invalid row number (of a tombstone or in a corrupt file) is
        // never used: the second pass handles that key again.
        const IndexLine& line = *lines[at];
        const uint32_t mask = MatchWord(line, words[at]);
        const uint32_t number = line.rows[LowestBit(mask | 1U << (kEntriesPerLine - 1))];
        const auto here =
            static_cast<size_t>(mask != 0) & static_cast<size_t>(number < cells[at]->count);
        const auto row =
            reinterpret_cast<uintptr_t>(cells[at]->lines + cells[at]->line_count) + number * stride;
        rows[at] = reinterpret_cast<const char*>(blank ^ ((row ^ blank) & (0U - here)));
        const uint32_t passed = line.filter >> pass_bits[at] & 1U;
        away[away_count] = static_cast<uint16_t>(j << 1 | (passed | (mask != 0 ? 1U : 0U)));
        away_count += 1 - here;
        if constexpr (kTouched != 0) {
          PrefetchFar(rows[at]);
        } else {
          PrefetchBytes(rows[at], prefetch_bytes_);
        }
        if (kStringKeys) PrefetchFar(rows[at] + key_offset_);
      },
      [&](size_t, size_t at) DE_ALWAYS_INLINE {
        // Prefetch the other cache lines of the row one step after its first line: by then the
        // processor knows the page's address translation. Otherwise these prefetches would delay
        // the lines of the next keys.
        if constexpr (kTouched != 0) PrefetchRest<kTouched>(rows[at], touched, aligned);
        std::string_view text;
        if (kStringKeys && StringAt(*places[at], rows[at] + key_offset_, &text)) {
          PrefetchFar(text.data());
        }
      },
      [&](size_t j, size_t at) DE_ALWAYS_INLINE {
        const size_t i = begin + j;
        if constexpr (kTouched != 0) {  // read several rows at once
          const size_t before = j % kRowsPerRead;
          if (before + 1 == kRowsPerRead || j + 1 == count) {
            read(i - before, rows + at - before, before + 1);
          }
          return;
        }
        if (next_away < away_count && away[next_away] >> 1 == j) {
          ++next_away;
          return;
        }
        bool intact = true;
        if constexpr (kStringKeys) {
          std::string_view text;
          if (!StringAt(*places[at], rows[at] + key_offset_, &text) || text != keys.strings[i]) {
            const auto nobody = [i](size_t) { return i; };
            Search<true>(keys, 1, nobody, failure, deliver);
            return;
          }
        }
        intact = deliver(i, Answer{words[at], rows[at], false});
        if (!intact && !failure->any()) failure->corrupt = &PlaceOf(Mix64(words[at]));
      });
  size_t elsewhere = 0;
  for (size_t k = 0; k < away_count; ++k) {
    const size_t j = away[k] >> 1;
    if ((away[k] & 1) != 0) {
      away[elsewhere++] = static_cast<uint16_t>(j);
      continue;
    }
    const size_t i = begin + j;
    deliver(i, Answer{WordAt<kStringKeys>(keys, i), nullptr, false});
  }
  const auto position_of = [&](size_t j) DE_ALWAYS_INLINE { return begin + away[j]; };
  Search<kStringKeys>(keys, elsewhere, position_of, failure, deliver);
}

/// Calls deliver(i, answer) for every key, except for those that FindChunk passes to read(i, rows,
/// n).
template <size_t kTouched, typename Deliver, typename Read>
Status FrozenTable::RunKeys(const Keys& keys, bool strict, const Deliver& deliver,
                            const Read& read) const {
  Failure failure;
  const bool named = strict && oov_.kind == OovPolicy::Kind::kError;
  const auto checked = [&](size_t i, const Answer& answer) DE_ALWAYS_INLINE {
    if (answer.gone) return false;  // a tombstone in a file without earlier files is corrupt
    if (named && answer.row == nullptr) failure.missing = std::min(failure.missing, i);
    return deliver(i, answer);
  };
  for (size_t begin = 0; begin < keys.size && !failure.any(); begin += kKeysPerChunk) {
    const size_t count = std::min(kKeysPerChunk, keys.size - begin);
    if (key_type() == KeyType::kString) {
      FindChunk<true, 0>(keys, begin, count, &failure, checked, read);
    } else {
      FindChunk<false, kTouched>(keys, begin, count, &failure, checked, read);
    }
  }
  return failure.any() ? Report(failure, keys) : Status::Ok();
}

/// Looks up rows. read(i, rows, n) writes values i to i + n - 1 of `values`.
template <size_t kTouched, typename Read>
Status FrozenTable::FindRows(const Keys& keys, char* values, bool* found, bool strict,
                             const Read& read) const {
  return RunKeys<kTouched>(
      keys, strict,
      [&](size_t i, const Answer& answer) DE_ALWAYS_INLINE {
        char* const value = values + i * value_bytes_;
        if (answer.row == nullptr) {
          FillMissing(answer.word, value);
        } else {
          ReadValue(answer.row, value);
        }
        if (found != nullptr) found[i] = answer.row != nullptr;
        return true;
      },
      [&](size_t i, const char* const* rows, size_t n) DE_ALWAYS_INLINE {
        read(i, rows, n);
        if (found != nullptr) std::memset(found + i, 1, n);
      });
}

template <size_t kTouched>
Status FrozenTable::ReadRows(const Keys& keys, char* values, bool* found, bool strict) const {
  const size_t bytes = value_bytes_;
  if (read_) {
    return FindRows<kTouched>(keys, values, found, strict,
                              [&](size_t i, const char* const* rows, size_t n) DE_ALWAYS_INLINE {
                                read_.rows(rows, n, scale_offset_, dim(), values + i * bytes);
                              });
  }
  return FindRows<kTouched>(keys, values, found, strict,
                            [&](size_t i, const char* const* rows, size_t n) DE_ALWAYS_INLINE {
                              for (size_t k = 0; k < n; ++k) {
                                CopyBytes(values + (i + k) * bytes, rows[k], bytes);
                              }
                            });
}

Status FrozenTable::Find(const Keys& keys, FrozenOut out, bool* found, bool strict) const noexcept {
  return Guarded([&] {
    DE_RETURN_IF_ERROR(CheckArguments(keys, out));
    char* const data = static_cast<char*>(out.data);
    if (data == nullptr) {  // the caller wants strings or no values
      const bool wanted = out.strings != nullptr;
      return RunKeys<0>(
          keys, strict && wanted,
          [&](size_t i, const Answer& answer) DE_ALWAYS_INLINE {
            if (found != nullptr) found[i] = answer.row != nullptr;
            return !wanted || ReadStrings(answer, out.strings + i * dim());
          },
          nullptr);
    }
    // Narrow rows get code that knows their number of cache lines.
    switch ((prefetch_bytes_ + 63) / 64) {
      case 1:
        return ReadRows<64>(keys, data, found, strict);
      case 2:
        return ReadRows<128>(keys, data, found, strict);
      case 3:
        return ReadRows<192>(keys, data, found, strict);
      case 4:
        return ReadRows<256>(keys, data, found, strict);
      default:
        return ReadRows<0>(keys, data, found, strict);
    }
  });
}

Status FrozenTable::Override(const Keys& keys, uint32_t* positions, size_t* count, FrozenOut out,
                             bool* found) const noexcept {
  return Guarded([&] {
    Failure failure;
    size_t left = 0;
    const auto position_of = [&](size_t j) DE_ALWAYS_INLINE { return size_t{positions[j]}; };
    const auto deliver = [&](size_t i, const Answer& answer) DE_ALWAYS_INLINE {
      if (answer.row == nullptr && !answer.gone) {
        positions[left++] = static_cast<uint32_t>(i);  // overwrites only positions already read
        return true;
      }
      found[i] = !answer.gone;
      if (out.strings != nullptr) return ReadStrings(answer, out.strings + i * dim());
      if (out.data == nullptr) return true;
      char* const value = static_cast<char*>(out.data) + i * value_bytes_;
      if (answer.row != nullptr) {
        ReadValue(answer.row, value);
      } else {
        FillMissing(answer.word, value);
      }
      return true;
    };
    if (keys.strings != nullptr) {
      Search<true>(keys, *count, position_of, &failure, deliver);
    } else {
      Search<false>(keys, *count, position_of, &failure, deliver);
    }
    *count = left;
    return failure.any() ? Report(failure, keys) : Status::Ok();
  });
}

}  // namespace de::engine
