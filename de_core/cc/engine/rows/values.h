// The values of a batch, as inputs and outputs of table operations.
#ifndef DE_CORE_ENGINE_VALUES_H_
#define DE_CORE_ENGINE_VALUES_H_

#include <cstdint>
#include <cstring>
#include <string_view>

#include "de_core/cc/engine/base/types.h"

namespace de::engine {

/// Receives the string values of a batch. `element` is the key's position in the batch * dim +
/// column. The bytes are valid only during the call. Different threads may call it for different
/// elements.
class ValueSink {
 public:
  virtual ~ValueSink() = default;
  virtual void Set(size_t element, std::string_view bytes) = 0;
};

/// Input values of a batch: `strings` for string values, `data` for all others.
struct Values {
  const char* data = nullptr;                 // (keys, dim) packed
  const std::string_view* strings = nullptr;  // (keys, dim)
};

/// Output values of a batch.
struct ValuesOut {
  char* data = nullptr;          // (keys, dim) packed
  ValueSink* strings = nullptr;  // set for string values
};

/// memcpy for typical row widths: copies 16-byte words inline, without a call for short rows.
inline void CopyBytes(char* to, const char* from, size_t bytes) noexcept {
  while (bytes >= 64) {
    std::memcpy(to, from, 64);
    to += 64;
    from += 64;
    bytes -= 64;
  }
  while (bytes >= 16) {
    std::memcpy(to, from, 16);
    to += 16;
    from += 16;
    bytes -= 16;
  }
  while (bytes >= 4) {
    std::memcpy(to, from, 4);
    to += 4;
    from += 4;
    bytes -= 4;
  }
  while (bytes > 0) {
    *to++ = *from++;
    --bytes;
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_VALUES_H_
