// The fill level of a section's index. Its lines (line_index.h) are fuller than a live table's.
#ifndef DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
#define DE_CORE_ENGINE_SNAPSHOT_INDEX_H_

#include <cstdint>

namespace de::engine {

/// Returns the number of index lines for `count` rows. By default 17 of 20 entries are used: keys,
/// index and 16 floats per row then take 1.099 times the bytes of keys and floats. With `sparse`, 7
/// of 10 entries are used, which makes searches shorter. That suits files of wide rows, whose index
/// is relatively small, and files made for serving.
constexpr uint32_t LinesFor(uint32_t count, bool sparse) noexcept {
  const uint64_t entries = sparse ? 350 : 425;  // per hundred lines
  return static_cast<uint32_t>((uint64_t{count} * 100 + entries - 1) / entries);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
