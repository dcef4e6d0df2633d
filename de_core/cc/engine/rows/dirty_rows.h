// Records which rows of one shard changed since earlier saves: the rows that a delta must contain.
//
// A generation is the time from one save to the next. In each generation, a bit per row tells
// whether the row changed, and a log lists the changed keys. So a few changes among many rows are
// found without a scan of all rows. A log that would take more than four bits per row is dropped;
// then a scan of all rows finds the changed ones by their bits. Erased keys are always logged. A
// save remembers the number of the generation that it starts. The next delta of the same series of
// saves contains the changes of that generation and all later ones. So any number of series share
// these records.
#ifndef DE_CORE_ENGINE_DIRTY_ROWS_H_
#define DE_CORE_ENGINE_DIRTY_ROWS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"

namespace de::engine {

/// The keys that changed since the start of a generation.
struct DirtyKeys {
  bool everything = false;  ///< the changes are unknown: treat all rows as changed
  bool by_bits = false;     ///< `words` is not complete: ask IsDirty of each row
  /// Keys whose rows changed. Keys may be repeated, or erased since.
  std::vector<uint64_t> words;
  std::vector<uint64_t> erased;  ///< erased int64 keys; some may exist again
  /// erased string keys with their words; some may exist again
  std::vector<std::pair<uint64_t, std::string>> erased_texts;
};

/// Not thread-safe. Requires the shard's lock.
class DirtyRows {
 public:
  explicit DirtyRows(uint64_t generation) { generations_.emplace_back(generation); }

  /// Records that the row of key `word` is about to change or was inserted.
  void Mark(uint64_t word, uint32_t row) noexcept {
    Generation& now = generations_.back();
    const size_t at = row / 64;
    const uint64_t bit = uint64_t{1} << (row % 64);
    if (at < now.bits.size()) {
      if ((now.bits[at] & bit) != 0) return;
      now.bits[at] |= bit;
    }
    MarkFirst(word, row);
  }

  /// Prefetches the memory that Mark reads.
  void Prefetch(uint32_t row) const noexcept {
    const Generation& now = generations_.back();
    if (row / 64 < now.bits.size()) PrefetchFar(&now.bits[row / 64]);
  }

  /// Records that a key was erased and its row number is free. `text` is a string key's bytes,
  /// otherwise nullptr.
  void MarkErased(uint64_t word, uint32_t row, const std::string_view* text) noexcept;

  /// Records that a row left the table, which a tier keeps elsewhere with the same contents. If the
  /// row changed since an earlier save, its key is listed among the erased keys of the current
  /// generation, which each delta from now on contains, and a delta under way too.
  void MarkMoved(uint64_t word, uint32_t row, const std::string_view* text) noexcept;

  /// Records that all rows were removed. Row numbers start again at 0.
  void MarkCleared() noexcept;

  /// Records that rows moved: moves[i] = (old number, new number), for all existing rows.
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept;

  /// Starts a generation. Its number must be greater than all earlier ones.
  void Cut(uint64_t generation);

  /// Returns the changes in the generations from `since` on.
  DirtyKeys Since(uint64_t since) const;

  /// Calls visit(word, text) for each key that was erased in the generations from `since` on.
  /// `text` is a string key's bytes, otherwise nullptr. Keys may be repeated, or exist again.
  /// Returns false if not all of these keys are known.
  template <typename Visit>
  bool VisitErased(uint64_t since, const Visit& visit) const {
    const std::string* const no_text = nullptr;
    for (const Generation& generation : generations_) {
      if (generation.number < since) continue;
      if (generation.everything) return false;
      for (const uint64_t word : generation.erased) visit(word, no_text);
      for (const auto& [word, text] : generation.erased_texts) visit(word, &text);
    }
    return true;
  }

  /// True if the row may have changed in a generation from `since` on. Never false for a row that
  /// has.
  bool IsDirty(uint32_t row, uint64_t since) const noexcept;

  /// Discards changes that no delta needs any more. `marks`, ascending, are the generations from
  /// which the next deltas begin. Merges generations without a mark between them. If it throws
  /// std::bad_alloc, it has discarded nothing.
  void Keep(const std::vector<uint64_t>& marks);

  uint64_t bytes() const noexcept;

 private:
  struct Generation {
    explicit Generation(uint64_t first) : number(first) {}

    uint64_t number;
    bool everything = false;
    bool overflow = false;        ///< the log was dropped
    bool has_moved = false;       ///< `erased` has keys whose rows a tier keeps
    std::vector<uint64_t> bits;   ///< by row number
    std::vector<uint64_t> words;  ///< changed keys, in the order of their first change
    std::vector<uint64_t> erased;
    std::vector<std::pair<uint64_t, std::string>> erased_texts;  ///< with their words
    size_t erased_limit = kLeastLog;  ///< number of erased keys at which to deduplicate them

    void GiveUp() noexcept;
    void Absorb(Generation* later) noexcept;
    void Merge(Generation* later);
  };

  static constexpr size_t kLeastLog = 4096;

  void MarkFirst(uint64_t word, uint32_t row) noexcept;
  static void List(uint64_t word, const std::string_view* text, Generation* generation) noexcept;
  static void Shrink(Generation* generation);

  std::vector<Generation> generations_;  ///< ascending; the last is the current one
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DIRTY_ROWS_H_
