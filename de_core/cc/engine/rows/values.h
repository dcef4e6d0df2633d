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
  char* data = nullptr;          // (keys, dim), one row every `stride` bytes
  ValueSink* strings = nullptr;  // set for string values
  size_t stride = 0;             ///< bytes from one row in `data` to the next; 0 if they are packed

  /// Bytes from one row in `data` to the next, for rows of `bytes`.
  size_t StrideOf(size_t bytes) const noexcept { return stride == 0 ? bytes : stride; }
};

/// Copies `kBlock` bytes from the start and as many from the end.
template <size_t kBlock>
inline void CopyEnds(char* to, const char* from, size_t bytes) noexcept {
  std::memcpy(to, from, kBlock);
  std::memcpy(to + bytes - kBlock, from + bytes - kBlock, kBlock);
}

/// memcpy for rows: inline, and with few instructions for every width. The last block may overlap
/// the block before it.
inline void CopyBytes(char* to, const char* from, size_t bytes) noexcept {
  if (bytes > 64) {
    size_t at = 0;
    for (; at + 64 < bytes; at += 64) std::memcpy(to + at, from + at, 64);
    if (bytes - at > 32) {
      std::memcpy(to + bytes - 64, from + bytes - 64, 64);
    } else {
      std::memcpy(to + bytes - 32, from + bytes - 32, 32);
    }
  } else if (bytes > 32) {
    CopyEnds<32>(to, from, bytes);
  } else if (bytes > 16) {
    CopyEnds<16>(to, from, bytes);
  } else if (bytes > 8) {
    CopyEnds<8>(to, from, bytes);
  } else if (bytes >= 4) {
    CopyEnds<4>(to, from, bytes);
  } else {
    for (size_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_VALUES_H_
