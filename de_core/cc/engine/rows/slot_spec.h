// One optimizer slot: its name, dtype, width and initial value.
#ifndef DE_CORE_ENGINE_SLOT_SPEC_H_
#define DE_CORE_ENGINE_SLOT_SPEC_H_

#include <cstddef>
#include <string>

#include "de_core/cc/engine/base/types.h"

namespace de::engine {

/// A part of a row that belongs to an optimizer.
struct SlotSpec {
  std::string name;
  DType dtype;
  size_t width;    ///< in elements
  double initial;  ///< initial value of each element
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLOT_SPEC_H_
