// Reads the sections of a snapshot file in any order. Checks every byte that it uses, because the
// file may be corrupt or crafted.
#ifndef DE_CORE_ENGINE_SNAPSHOT_READER_H_
#define DE_CORE_ENGINE_SNAPSHOT_READER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"

namespace de::engine {

/// A section read from a file, with its memory. Reuse a buffer to reuse its memory.
struct SectionBuffer {
  SnapshotSection section;               ///< valid until the buffer is used again
  std::vector<char> block;               // empty if the source is in memory
  std::vector<uint64_t> words;           // (count + tombstones)
  std::vector<std::string_view> keys;    // (count + tombstones)
  std::vector<std::string_view> values;  // (count, dim)
};

/// Const methods are thread-safe if each thread uses its own buffer.
class SnapshotReader {
 public:
  /// Checks header, directory and footer: the time does not depend on the number of rows. Errors:
  /// DataLoss (truncated or corrupt; names the part and its offset), InvalidArgument (not a
  /// snapshot), FailedPrecondition (a newer version or an unknown feature).
  static Status Open(std::unique_ptr<const ByteSource> source,
                     std::unique_ptr<SnapshotReader>* reader) noexcept;

  /// Like above, for a file in memory, such as a mapped file. The memory must outlive the reader.
  static Status Open(const char* data, size_t size,
                     std::unique_ptr<SnapshotReader>* reader) noexcept;

  const SnapshotHeader& header() const noexcept { return header_; }
  uint64_t rows() const noexcept { return footer_.row_count; }
  uint64_t tombstones() const noexcept { return footer_.tombstone_count; }
  uint32_t contents_crc() const noexcept { return footer_.contents_crc; }
  uint64_t string_bytes() const noexcept { return footer_.string_bytes; }
  uint64_t file_bytes() const noexcept { return footer_.file_bytes; }
  /// The bytes of a file in memory, otherwise nullptr.
  const char* data() const noexcept { return source_->data(); }

  /// The directory: sections in ascending order of their hashes, all inside the file.
  const std::vector<SectionRecord>& sections() const noexcept { return sections_; }

  /// Reads section `number` and checks all of it: that its checksum is right, that the index
  /// contains each row once and where a search finds it, and that every string is in the string
  /// area. Memory: the bytes of the section. The rows keep the file's string references.
  Status ReadSection(size_t number, SectionBuffer* buffer) const noexcept;

  /// Compares the checksum of section `number`, and so every byte of it. Several times as fast as
  /// ReadSection.
  Status CheckSection(size_t number, SectionBuffer* buffer) const noexcept;

 private:
  explicit SnapshotReader(std::unique_ptr<const ByteSource> source) : source_(std::move(source)) {}

  Status Start();
  /// Calls read(), which reads section `number`, and adds the section's name to its error.
  template <typename Reading>
  Status InSection(size_t number, const Reading& read) const noexcept;
  Status Check(size_t number, SectionBuffer* buffer, const char** block) const;
  Status ReadIndex(const SectionRecord& section, const char* lines, SectionBuffer* buffer) const;
  Status ReadStrings(const SectionRecord& section, const BlockShape& shape, const char* block,
                     SectionBuffer* buffer) const;
  Status CheckUnique(const SectionRecord& section, const char* lines,
                     const SectionBuffer& buffer) const;

  const std::unique_ptr<const ByteSource> source_;
  SnapshotHeader header_;
  FooterRecord footer_{};
  std::vector<SectionRecord> sections_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_READER_H_
