// The mark of frozen rows of a live table, which optimizer steps do not change: a slot that is not
// zero. (A frozen table is another thing: a served file.)
#ifndef DE_CORE_ENGINE_FROZEN_MARK_H_
#define DE_CORE_ENGINE_FROZEN_MARK_H_

#include <algorithm>
#include <string_view>

#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

inline constexpr std::string_view kFreezeOwner = "de/freeze";
inline constexpr std::string_view kFrozenName = "frozen";

/// `mark` is the slot of kFreezeOwner, or nullptr if no row of the table is frozen.
inline bool IsFrozen(const char* row, const RowSlot* mark) noexcept {
  if (mark == nullptr) return false;
  const char* const begin = row + mark->offset;
  return std::any_of(begin, begin + mark->bytes(), [](char byte) { return byte != 0; });
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FROZEN_MARK_H_
