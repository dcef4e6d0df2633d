// The bytes of a snapshot file, as docs/reference/snapshot-format.md specifies them:
//
//   header | section … section | directory | footer
//
// Checkpoint shards, serving assets and deltas all use this format. A section holds the keys of one
// range of hashes: an index that is probed in place, the rows, their strings. This header has the
// records and their checks, which SnapshotWriter, SnapshotReader and FrozenTable use.
#ifndef DE_CORE_ENGINE_SNAPSHOT_FORMAT_H_
#define DE_CORE_ENGINE_SNAPSHOT_FORMAT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/index/line_index.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"

namespace de::engine {

/// Rows whose hashes are in one range. The writer takes sections and the reader returns them.
/// Sections of a file are in ascending order of hashes and do not overlap. A delta's sections also
/// have tombstones: the keys that were removed.
struct SnapshotSection {
  uint64_t hash_begin = 0;  ///< first hash of the range
  uint64_t hash_last = 0;   ///< last hash of the range, included
  size_t count = 0;
  const uint64_t* words = nullptr;           // (count) int64 key, or HashBytes of the string key
  const char* rows = nullptr;                // (count, layout.stride())
  const std::string_view* keys = nullptr;    // (count), for string keys
  const std::string_view* values = nullptr;  // (count, dim), for string values
  size_t tombstones = 0;
  const uint64_t* tombstone_words = nullptr;         // (tombstones)
  const std::string_view* tombstone_keys = nullptr;  // (tombstones), for string keys
};

/// Returns a section of these rows, without tombstones. `rows` must outlive it.
inline SnapshotSection SectionOf(const RowBatch& rows, uint64_t hash_begin, uint64_t hash_last) {
  SnapshotSection section;
  section.hash_begin = hash_begin;
  section.hash_last = hash_last;
  section.count = rows.size();
  section.words = rows.words.data();
  section.rows = rows.rows.data();
  if (rows.layout.key_type() == KeyType::kString) section.keys = rows.keys.data();
  if (rows.layout.value_dtype() == DType::kString) section.values = rows.values.data();
  return section;
}

// ---------------------------------------------------------------------------------- the records
// The file contains these records as they are in memory: little-endian, naturally aligned.

/// The record at the beginning of each section's block. It repeats the section's SectionRecord, so
/// that the blocks of a damaged file can still be read.
struct BlockRecord {
  uint32_t magic;
  uint32_t number;
  uint64_t hash_begin;
  uint64_t hash_last;
  uint32_t count;
  uint32_t lines;
  uint64_t string_bytes;
  uint32_t tombstones;
  uint32_t row_stride;
  uint8_t reserved[16];
};
static_assert(sizeof(BlockRecord) == 64, "part of the format");

/// A section in the directory.
struct SectionRecord {
  uint64_t hash_begin;
  uint64_t hash_last;
  uint64_t offset;  ///< offset of the section's BlockRecord in the file, in bytes
  uint32_t count;
  uint32_t lines;
  uint64_t string_bytes;
  uint32_t tombstones;
  uint32_t crc;  ///< checksum of the block, equal to the checksum at the block's end
  uint8_t reserved[16];
};
static_assert(sizeof(SectionRecord) == 64, "part of the format");

struct FooterRecord {
  uint64_t file_bytes;
  uint64_t directory_offset;
  uint64_t section_count;
  uint64_t row_count;
  uint64_t tombstone_count;
  uint64_t string_bytes;
  uint8_t id[16];         ///< the id in the header
  uint32_t contents_crc;  ///< checksum of all checksums before the footer, in file order
  uint8_t reserved[48];
  uint32_t crc;  ///< checksum of the preceding bytes of this record
  uint8_t magic[8];
};
static_assert(sizeof(FooterRecord) == 128, "part of the format");

/// A reference from a row to a string: offset and size in bytes, in the section's string area.
struct SnapshotStringRef {
  uint32_t offset;
  uint32_t size;
};
static_assert(sizeof(SnapshotStringRef) == 8, "part of the format");

// ------------------------------------------------------------------------------------- geometry

inline constexpr uint32_t kMaxSectionRows = 1U << 30;
inline constexpr uint64_t kMaxSectionStrings = 0xffffffffULL;

/// Offsets of the parts of a block, in bytes from its start.
struct BlockShape {
  uint64_t lines;       ///< index, 64-byte aligned
  uint64_t rows;        ///< rows, 64-byte aligned
  uint64_t tombstones;  ///< references to the string keys of tombstones, after the rows
  uint64_t strings;     ///< string area
  uint64_t crc;         ///< checksum of the block's bytes before it; the last four bytes
  uint64_t bytes;       ///< size of the whole block, a multiple of 64
};

/// Returns where the parts of a section's block are. Cannot overflow for counts that
/// DecodeDirectory has checked.
inline BlockShape ShapeOf(const SectionRecord& section, size_t stride, KeyType key_type) noexcept {
  BlockShape shape{};
  shape.lines = sizeof(BlockRecord);
  shape.rows = shape.lines + section.lines * uint64_t{sizeof(IndexLine)};
  shape.tombstones = shape.rows + section.count * uint64_t{stride};
  shape.strings = shape.tombstones;
  if (key_type == KeyType::kString) {
    shape.strings += section.tombstones * uint64_t{sizeof(SnapshotStringRef)};
  }
  shape.bytes = RoundUpTo(shape.strings + section.string_bytes + sizeof(uint32_t), 64);
  shape.crc = shape.bytes - sizeof(uint32_t);
  return shape;
}

/// Bytes of the directory: the section records, padding, a checksum.
constexpr uint64_t DirectoryBytes(uint64_t sections) noexcept {
  return RoundUpTo(sections * sizeof(SectionRecord) + sizeof(uint32_t), 64);
}

// ---------------------------------------------------------------------- encoding and decoding
// Decoders trust no input. They return an error, or a value whose sizes and offsets are all inside
// the file.

/// Returns the size of a file without sections, the smallest file with a header of this size.
constexpr uint64_t LeastFileBytes(uint64_t header_bytes) noexcept {
  return header_bytes + DirectoryBytes(0) + sizeof(FooterRecord);
}

/// Decodes and checks the footer. `tail` holds the last sizeof(FooterRecord) bytes of the file. It
/// is not read if the file is too short for a footer.
Status DecodeFooter(const char* tail, uint64_t file_bytes, const HeaderRecord& header,
                    FooterRecord* footer);

/// Decodes the DirectoryBytes(footer.section_count) bytes of the directory. Checks that the
/// sections, in ascending order, fill the file from header to directory without gaps or overlaps.
Status DecodeDirectory(const char* bytes, uint64_t header_bytes, const FooterRecord& footer,
                       const SnapshotHeader& header,
                       const std::array<uint32_t, 2>& header_checksums,
                       std::vector<SectionRecord>* sections);

/// Returns a name for errors, such as "section 3 at offset 8192".
std::string SectionName(uint64_t number, uint64_t offset);

/// Returns the record at the beginning of a section's block.
BlockRecord MakeBlockRecord(uint64_t number, const SectionRecord& section, size_t stride);
/// Fills in the footer's magic bytes and checksum.
void SealFooter(FooterRecord* footer);

/// True if these first bytes of a block match the section in the directory.
bool IsBlockOf(const char* bytes, uint64_t number, const SectionRecord& section, size_t stride);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_FORMAT_H_
