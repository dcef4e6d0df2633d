// The fill level of a section's index. Its lines (line_index.h) are fuller than in a table in
// memory, which must grow.
#ifndef DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
#define DE_CORE_ENGINE_SNAPSHOT_INDEX_H_

#include <cstdint>

namespace de::engine {

/// Returns the number of index lines for `count` rows. By default 17 of 20 entries are used: then a
/// file with 16 floats per row takes 1.099 times the bytes of its keys and floats. With `sparse`, 7
/// of 10 entries are used, which makes searches shorter. `sparse` suits files of wide rows, whose
/// index is relatively small, and files made for serving.
constexpr uint32_t LinesFor(uint32_t count, bool sparse) noexcept {
  const uint64_t entries = sparse ? 350 : 425;  // entries used per hundred lines
  return static_cast<uint32_t>((uint64_t{count} * 100 + entries - 1) / entries);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
