// Reads values of one dtype as another: by a copy, a floating-point conversion, or int8 times a
// scale.
#ifndef DE_CORE_ENGINE_VALUE_READER_H_
#define DE_CORE_ENGINE_VALUE_READER_H_

#include <cstddef>

#include "de_core/cc/engine/base/types.h"

namespace de::engine {

struct ValueReader {
  /// Reads `dim` values. `scale` is used only for int8.
  using Values = void (*)(const char* values, float scale, size_t dim, char* out) noexcept;
  /// Reads the values at the beginning of `count` rows into `out`, contiguously. The scale of int8
  /// values is a float at `scale_offset` of each row.
  using Rows = void (*)(const char* const* rows, size_t count, size_t scale_offset, size_t dim,
                        char* out) noexcept;

  Values values = nullptr;
  Rows rows = nullptr;

  explicit operator bool() const noexcept { return values != nullptr; }
};

/// Returns a reader of `stored` values as `wanted`. It is empty if there is no such conversion.
ValueReader ReaderOf(DType stored, DType wanted) noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_VALUE_READER_H_
