// How full the index of a section is: the lines of line_index.h, filled higher than a live table's.
#ifndef DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
#define DE_CORE_ENGINE_SNAPSHOT_INDEX_H_

#include <cstdint>

namespace de::engine {

/// Index lines the writer makes for `count` rows: filled to seven eighths. Keys, index and 16
/// floats a row then take 1.093 times the bytes of keys and floats, 83 of 100 keys are in their
/// home line.
constexpr uint32_t LinesFor(uint32_t count) noexcept {
  return static_cast<uint32_t>((uint64_t{count} * 8 + 34) / 35);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_INDEX_H_
