// Which rows of one shard changed since some moments in the past: what a delta has to hold.
//
// Time is cut into generations. Within one, a bit a row says whether it changed, and a log names
// the changed keys, so that few changes among many rows are found without looking at the others. A
// log that would take more than four bits a row is given up; the rows are then found by their bits.
// Erased keys are always logged. A save notes the generation that begins with it; its next delta
// holds what the generations since then name. So any number of series of saves share one bit a row.
#ifndef DE_CORE_ENGINE_DIRTY_ROWS_H_
#define DE_CORE_ENGINE_DIRTY_ROWS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"

namespace de::engine {

/// The keys that changed since a generation began.
struct DirtyKeys {
  bool everything = false;  ///< the rows of back then are gone: all rows count as changed
  bool by_bits = false;     ///< `words` is not complete; ask DirtyRows::IsDirty
  /// Keys whose rows changed, some of them several times; some may be erased since.
  std::vector<uint64_t> words;
  std::vector<uint64_t> erased;  ///< words of int64 keys that were erased; some may be back
  std::vector<std::string> erased_texts;  ///< string keys that were erased; some may be back
};

/// Not thread-safe: the shard's lock guards it.
class DirtyRows {
 public:
  explicit DirtyRows(uint64_t generation) { generations_.emplace_back(generation); }

  /// Notes that the row of the key `word` is about to change or was inserted.
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

  /// Asks for what Mark reads.
  void Prefetch(uint32_t row) const noexcept {
    const Generation& now = generations_.back();
    if (row / 64 < now.bits.size()) PrefetchFar(&now.bits[row / 64]);
  }

  /// Notes that a key is gone, and its row free for another; `text` are the bytes of a string key,
  /// else nullptr.
  void MarkErased(uint64_t word, uint32_t row, const std::string_view* text) noexcept;

  /// Notes that all rows are gone; row numbers begin anew.
  void MarkCleared() noexcept;

  /// Rows have moved: moves[i] = (old number, new number), all rows that are there.
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept;

  /// Begins a generation, whose number is greater than those before.
  void Cut(uint64_t generation);

  /// What changed in the generations from `since` on.
  DirtyKeys Since(uint64_t since) const;

  /// Whether a row may have changed in them; never false for one that did.
  bool IsDirty(uint32_t row, uint64_t since) const noexcept;

  /// Forgets what nobody asks for any more: all there is to ask for are these generations, in
  /// ascending order. Throws std::bad_alloc and then forgets nothing.
  void Keep(const std::vector<uint64_t>& marks);

  uint64_t bytes() const noexcept;

 private:
  struct Generation {
    explicit Generation(uint64_t first) : number(first) {}

    uint64_t number;
    bool everything = false;
    bool overflow = false;        ///< the log was given up
    std::vector<uint64_t> bits;   ///< by row number
    std::vector<uint64_t> words;  ///< in the order of their first change
    std::vector<uint64_t> erased;
    std::vector<std::string> erased_texts;
    size_t erased_limit = kLeastLog;

    void GiveUp() noexcept;
    void Absorb(Generation* later) noexcept;
    void Merge(Generation* later);
  };

  static constexpr size_t kLeastLog = 4096;

  void MarkFirst(uint64_t word, uint32_t row) noexcept;
  static void Shrink(Generation* generation);

  std::vector<Generation> generations_;  ///< ascending; the last is the current one
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DIRTY_ROWS_H_
