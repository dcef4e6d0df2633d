// How full the index of a section is: the lines of line_index.h, filled higher than a live table's.
#ifndef DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
#define DE_CORE_ENGINE_SNAPSHOT_INDEX_H_

#include <cstdint>

namespace de::engine {

/// Index lines the writer makes for `count` rows. Filled to 17 of 20, so that keys, index and 16
/// floats a row take 1.099 times the bytes of keys and floats; `sparse`: to 7 of 10, which spares
/// searches, for files of wide rows, beside which an index takes little, and for those made to be
/// served.
constexpr uint32_t LinesFor(uint32_t count, bool sparse) noexcept {
  const uint64_t entries = sparse ? 350 : 425;  // of a hundred lines
  return static_cast<uint32_t>((uint64_t{count} * 100 + entries - 1) / entries);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
