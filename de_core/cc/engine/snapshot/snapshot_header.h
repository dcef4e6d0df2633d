// The header of a snapshot file: the description of its table.
// docs/reference/snapshot-format.md specifies the bytes.
#ifndef DE_CORE_ENGINE_SNAPSHOT_HEADER_H_
#define DE_CORE_ENGINE_SNAPSHOT_HEADER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace de::engine {

/// The newest format version that this build reads, and the version that it writes.
inline constexpr uint32_t kSnapshotVersion = 1;

enum class SnapshotKind : uint8_t {
  kBase = 1,   ///< a whole table
  kDelta = 2,  ///< the changes since the parent, the file before
};

using SnapshotId = std::array<uint8_t, 16>;

/// Describes a file's table. The number of rows is in the footer, because it is known only when all
/// sections are written.
struct SnapshotHeader {
  SnapshotHeader() : layout(KeyType::kInt64, DType::kFloat32, 1) {}
  explicit SnapshotHeader(RowLayout row_layout) : layout(std::move(row_layout)) {}

  SnapshotKind kind = SnapshotKind::kBase;
  bool values_only = false;  ///< the slots of the table, if any, are not in the file
  bool replaces = false;     ///< a delta that has all rows: no row of earlier files remains
  RowLayout layout;          ///< layout of the file's rows
  /// set if values are stored as another dtype: the dtype of the table, which values are converted
  /// to when they are read
  std::optional<DType> converted;
  InitializerOptions initializer;  ///< computes the rows of keys that are not in the file
  SnapshotId id{};                 ///< random id, which the caller chooses
  SnapshotId parent{};             ///< id of the file that a delta follows, otherwise zeros
  uint64_t sequence = 0;           ///< number of deltas from the base to this file; 0 for a base
  /// time of creation in microseconds since 1970-01-01 UTC, from the caller
  int64_t created_micros = 0;
  std::map<std::string, std::string> metadata;  ///< free-form, e.g. "table", "oov"

  /// Returns the dtype of values after reading.
  DType reads_as() const noexcept { return converted.value_or(layout.value_dtype()); }
};

/// Returns 32 hexadecimal digits.
std::string HexOf(const SnapshotId& id);
/// Parses the result of HexOf. Returns false for other text.
bool IdOf(std::string_view text, SnapshotId* id);

/// The first bytes of a file, little-endian and naturally aligned.
struct HeaderRecord {
  uint8_t magic[8];
  uint32_t version;
  uint32_t endian_mark;
  uint64_t header_bytes;  ///< size of this record, the fields, padding and their checksum
  uint8_t kind;
  uint8_t key_type;
  uint8_t value_dtype;
  uint8_t hash_kind;
  uint32_t dim;
  uint32_t row_stride;
  uint32_t flags;
  uint64_t hash_seed;
  int64_t created_micros;
  uint64_t sequence;
  uint8_t id[16];
  uint8_t parent[16];
  uint32_t field_count;
  uint8_t reserved[24];
  uint32_t crc;  ///< checksum of the preceding bytes of this record
};
static_assert(sizeof(HeaderRecord) == 128, "part of the format");

inline constexpr uint64_t kMaxHeaderBytes = (uint64_t{4} << 30) - 64;  // sizes of fields are uint32

constexpr uint64_t RoundUpTo(uint64_t bytes, uint64_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

/// Formats `value` as 0x and eight digits.
std::string Hex32(uint32_t value);

/// Returns DataLoss with both checksums unless they are equal.
Status CheckChecksum(const std::string& what, uint32_t computed, uint32_t stored);

/// Encodes the header with padding and checksums. `checksums` receives the checksum of the
/// HeaderRecord and of the fields after it.
Status EncodeHeader(const SnapshotHeader& header, std::string* bytes,
                    std::array<uint32_t, 2>* checksums);

/// Decodes and checks the HeaderRecord of a file with `file_bytes` bytes. `prefix` holds at least
/// the first min(file_bytes, sizeof(HeaderRecord)) bytes.
Status DecodeHeaderRecord(const char* prefix, uint64_t file_bytes, HeaderRecord* record);

/// Decodes the whole header, which is bytes[0, record.header_bytes). `checksums` is as in
/// EncodeHeader.
Status DecodeHeader(const char* bytes, const HeaderRecord& record, SnapshotHeader* header,
                    std::array<uint32_t, 2>* checksums);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_HEADER_H_
