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
  size_t from, to;  ///< the slot's offset in the rows
  size_t width;     ///< in elements
  ValueReader::Values read;

  void Run(const char* from_row, char* to_row) const noexcept {
    read(from_row + from, 1.0F, width, to_row + to);
  }
};

/// Returns the slots that two layouts share, in the order of `to`. Without `slots`, returns only
/// the scale of int8 values.
inline std::vector<SlotCopy> SharedSlots(const RowLayout& from, const RowLayout& to,
                                         bool slots = true) {
  std::vector<SlotCopy> shared;
  for (const RowSlot& slot : to.slots()) {
    if (!slots && slot.owner != kScaleOwner) continue;
    const RowSlot* const source = from.FindSlot(slot.owner, slot.spec.name);
    if (source == nullptr || source->spec.width != slot.spec.width) continue;
    const DType dtype = source->spec.dtype;
    if (dtype == slot.spec.dtype || (IsFloating(dtype) && IsFloating(slot.spec.dtype))) {
      shared.push_back(
          {source->offset, slot.offset, slot.spec.width, ReaderOf(dtype, slot.spec.dtype).values});
    }
  }
  return shared;
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLOT_COPY_H_
