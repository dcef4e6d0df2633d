// JSON that snapshot ops report.
#ifndef DE_CORE_KERNELS_SNAPSHOT_JSON_H_
#define DE_CORE_KERNELS_SNAPSHOT_JSON_H_

#include <string>
#include <string_view>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::kernels {

/// A JSON string; bytes that are not UTF-8 as {"hex": "…"}.
std::string JsonText(std::string_view text);
/// A JSON number, or null for what JSON has no number for.
std::string JsonNumber(double number);
/// What DeSnapshotInfo outputs.
std::string InfoJson(const engine::SnapshotReader& reader);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SNAPSHOT_JSON_H_
