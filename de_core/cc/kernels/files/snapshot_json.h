// JSON reports of snapshot ops.
#ifndef DE_CORE_KERNELS_SNAPSHOT_JSON_H_
#define DE_CORE_KERNELS_SNAPSHOT_JSON_H_

#include <string>
#include <string_view>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::kernels {

/// Returns a JSON string, or {"hex": "…"} for bytes that are not UTF-8.
std::string JsonText(std::string_view text);
/// Returns a JSON number, or null if JSON cannot represent it.
std::string JsonNumber(double number);
/// Returns the output of DeSnapshotInfo; see its attribute `own`.
std::string InfoJson(const engine::SnapshotReader& reader, bool own);

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SNAPSHOT_JSON_H_
