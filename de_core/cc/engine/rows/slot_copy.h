// Copies an optimizer slot from a row of one layout to a row of another.
#ifndef DE_CORE_ENGINE_SLOT_COPY_H_
#define DE_CORE_ENGINE_SLOT_COPY_H_

#include <cstddef>
#include <vector>

#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/rows/value_reader.h"

namespace de::engine {

/// A slot that two layouts share: same owner, name and width. Converts between floating-point
/// dtypes, and rounds to nearest even.
struct SlotCopy {
  const RowSlot* from;
  const RowSlot* to;
  ValueReader read;

  void Run(const char* from_row, char* to_row) const noexcept {
    read.values(from_row + from->offset, 1.0F, to->spec.width, to_row + to->offset);
  }
};

/// Returns the slots that two layouts share, in the order of `to`. The result refers to both.
inline std::vector<SlotCopy> SharedSlots(const RowLayout& from, const RowLayout& to) {
  std::vector<SlotCopy> shared;
  for (const RowSlot& slot : to.slots()) {
    const RowSlot* const source = from.FindSlot(slot.owner, slot.spec.name);
    if (source == nullptr || source->spec.width != slot.spec.width) continue;
    const DType dtype = source->spec.dtype;
    if (dtype == slot.spec.dtype || (IsFloating(dtype) && IsFloating(slot.spec.dtype))) {
      shared.push_back({source, &slot, ReaderOf(dtype, slot.spec.dtype)});
    }
  }
  return shared;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLOT_COPY_H_
