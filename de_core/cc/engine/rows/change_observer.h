// Observes a shard's row changes: which rows changed (for deltas) and their previous contents (for
// consistent saves). A shard has no observer until a save needs one.
#ifndef DE_CORE_ENGINE_CHANGE_OBSERVER_H_
#define DE_CORE_ENGINE_CHANGE_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/rows/before_images.h"
#include "de_core/cc/engine/rows/dirty_rows.h"

namespace de::engine {

/// Not thread-safe. Requires the shard's lock.
struct ChangeObserver {
  std::unique_ptr<DirtyRows> dirty;    ///< changed rows; nullptr if no delta needs them
  std::unique_ptr<BeforeImages> held;  ///< previous contents; nullptr if no save needs them

  /// Call before row `number` is written. `inserted` means that the row is new.
  void BeforeWrite(uint64_t word, uint64_t hash, uint32_t number, const char* row,
                   bool inserted) noexcept {
    if (dirty != nullptr) dirty->Mark(word, number);
    if (held == nullptr) return;
    if (inserted) {
      held->Inserted(number);
    } else {
      held->BeforeChange(word, hash, number, row);
    }
  }

  /// Prefetches the memory that BeforeWrite reads.
  void Prefetch(uint32_t number) const noexcept {
    if (dirty != nullptr) dirty->Prefetch(number);
    if (held != nullptr) held->Prefetch(number);
  }

  /// Call before a row is erased. `text` is a string key's bytes, otherwise nullptr. With `moved`,
  /// a tier keeps the row.
  void BeforeErase(uint64_t word, uint64_t hash, uint32_t number, const char* row,
                   const std::string_view* text, bool moved) noexcept {
    if (dirty != nullptr && moved) dirty->MarkMoved(word, number, text);
    if (dirty != nullptr && !moved) dirty->MarkErased(word, number, text);
    if (held != nullptr) held->BeforeChange(word, hash, number, row);
  }

  void Cleared() noexcept {
    if (dirty != nullptr) dirty->MarkCleared();
    if (held != nullptr) held->Cleared();
  }

  /// moves[i] = (old number, new number), for all existing rows.
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept {
    if (dirty != nullptr) dirty->Renumber(moves);
    if (held != nullptr) held->Renumber(moves);
  }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CHANGE_OBSERVER_H_
