// What a shard's writers tell about the rows they change, while somebody wants to know: which ones
// (for deltas) and what they were (for consistent saves). Nobody does at first, and then a shard
// has no watch.
#ifndef DE_CORE_ENGINE_CHANGE_OBSERVER_H_
#define DE_CORE_ENGINE_CHANGE_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/rows/dirty_rows.h"
#include "de_core/cc/engine/rows/pre_images.h"

namespace de::engine {

/// Not thread-safe: the shard's lock guards it.
struct ChangeObserver {
  std::unique_ptr<DirtyRows> dirty;
  std::unique_ptr<PreImages> held;

  /// Before a row is written; `inserted` says that it was not there before.
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

  /// Asks for what BeforeWrite reads.
  void Prefetch(uint32_t number) const noexcept {
    if (dirty != nullptr) dirty->Prefetch(number);
    if (held != nullptr) held->Prefetch(number);
  }

  /// Before a row is erased; `text` are the bytes of a string key, else nullptr.
  void BeforeErase(uint64_t word, uint64_t hash, uint32_t number, const char* row,
                   const std::string_view* text) noexcept {
    if (dirty != nullptr) dirty->MarkErased(word, number, text);
    if (held != nullptr) held->BeforeChange(word, hash, number, row);
  }

  void Cleared() noexcept {
    if (dirty != nullptr) dirty->MarkCleared();
    if (held != nullptr) held->Cleared();
  }

  /// moves[i] = (old number, new number), all rows that are there.
  void Renumber(const std::vector<std::pair<uint32_t, uint32_t>>& moves) noexcept {
    if (dirty != nullptr) dirty->Renumber(moves);
    if (held != nullptr) held->Renumber(moves);
  }
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CHANGE_OBSERVER_H_
