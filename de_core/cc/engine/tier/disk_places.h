// Shared by the files of DiskRows: places of records, converters of rows.
#ifndef DE_CORE_ENGINE_DISK_PLACES_H_
#define DE_CORE_ENGINE_DISK_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"
#include "de_core/cc/engine/tier/disk_rows.h"

namespace de::engine {

constexpr uint64_t RoundDown(uint64_t bytes, uint64_t to) noexcept { return bytes / to * to; }

/// Where a record is, in 64 bits: the value of a key in the index.
struct DiskRows::Place {
  static constexpr uint32_t kMostSegments = 1U << 17;
  static constexpr uint64_t kMostOffset = uint64_t{8} << 28;

  uint32_t segment;
  uint64_t offset;
  size_t bytes;  ///< size of the record in the file

  static Place Of(int64_t packed) noexcept {
    const auto bits = static_cast<uint64_t>(packed);
    return {static_cast<uint32_t>(bits >> 47), (bits >> 19 & ((1U << 28) - 1)) * 8,
            (bits & ((1U << 19) - 1)) * 8 + 8};
  }
  int64_t Packed() const noexcept {
    return static_cast<int64_t>(uint64_t{segment} << 47 | offset / 8 << 19 | (bytes / 8 - 1));
  }
};

/// Converters from the layouts of segments to one layout.
class DiskRows::Converters {
 public:
  explicit Converters(const RowLayout& to) : to_(to) {}
  Status Convert(const RowLayout& from, const char* row, char* out) {
    auto found = made_.find(&from);
    if (found == made_.end()) {
      RowConverter converter;
      DE_RETURN_IF_ERROR(RowConverter::Create(from, to_, /*slots=*/true, &converter));
      found = made_.emplace(&from, std::move(converter)).first;
    }
    found->second.Convert(row, out);
    return Status::Ok();
  }

 private:
  const RowLayout& to_;
  std::map<const RowLayout*, RowConverter> made_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DISK_PLACES_H_
