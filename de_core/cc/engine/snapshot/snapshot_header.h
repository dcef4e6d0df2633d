// The header of a snapshot file: what the file says about its table. docs/snapshot-format.md
// specifies the bytes.
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

/// The newest format this build reads and the one it writes.
inline constexpr uint32_t kSnapshotVersion = 1;

enum class SnapshotKind : uint8_t {
  kBase = 1,   ///< a whole table
  kDelta = 2,  ///< what changed since the parent
};

using SnapshotId = std::array<uint8_t, 16>;

/// What a file says about its table. Row counts are in the footer: writing is streaming.
struct SnapshotHeader {
  SnapshotHeader() : layout(KeyType::kInt64, DType::kFloat32, 1) {}
  explicit SnapshotHeader(RowLayout row_layout) : layout(std::move(row_layout)) {}

  SnapshotKind kind = SnapshotKind::kBase;
  bool values_only = false;        ///< the table may have had slots; they were left out
  bool replaces = false;           ///< a delta that begins from nothing: no row of the parent stays
  RowLayout layout;                ///< rows of the file
  std::optional<DType> converted;  ///< what values read as, where they are stored as another dtype
  InitializerOptions initializer;  ///< what a key that is not in the file reads as
  SnapshotId id{};                 ///< random, from the caller
  SnapshotId parent{};             ///< id of the file a delta belongs on, else zeros
  uint64_t sequence = 0;           ///< generation in a chain of deltas, 0 for a base
  int64_t created_micros = 0;      ///< time of creation since 1970-01-01 UTC, from the caller
  std::map<std::string, std::string> metadata;  ///< free-form, e.g. "table", "oov"

  /// The dtype that a lookup gives.
  DType reads_as() const noexcept { return converted.value_or(layout.value_dtype()); }
};

/// "0123…", 32 hexadecimal digits.
std::string HexOf(const SnapshotId& id);
/// False where `text` is not what HexOf gives.
bool IdOf(std::string_view text, SnapshotId* id);

/// The first bytes of a file; little-endian, naturally aligned, copied as they are.
struct HeaderRecord {
  uint8_t magic[8];
  uint32_t version;
  uint32_t endian_mark;
  uint64_t header_bytes;  ///< this record, the fields, padding and their checksum
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
  uint32_t crc;  ///< of the bytes of this record before it
};
static_assert(sizeof(HeaderRecord) == 128, "part of the format");

inline constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
inline constexpr size_t kMaxSlots = 64;

constexpr uint64_t RoundUpTo(uint64_t bytes, uint64_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

/// `value` as 0x and eight digits.
std::string Hex32(uint32_t value);

/// What every error about a checksum says.
Status CheckChecksum(const std::string& what, uint32_t computed, uint32_t stored);

/// An error where this machine cannot map the format (it is little-endian).
Status CheckHost();

/// Header bytes, padded and checksummed. `checksums` receives the header's two.
Status EncodeHeader(const SnapshotHeader& header, std::string* bytes,
                    std::array<uint32_t, 2>* checksums);

/// Checks the first bytes of a file of `file_bytes`; `prefix` holds (at least) the first
/// min(file_bytes, sizeof(HeaderRecord)) of them.
Status DecodeHeaderRecord(const char* prefix, uint64_t file_bytes, HeaderRecord* record);

/// Decodes bytes[0, record.header_bytes).
Status DecodeHeader(const char* bytes, const HeaderRecord& record, SnapshotHeader* header,
                    std::array<uint32_t, 2>* checksums);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_HEADER_H_
