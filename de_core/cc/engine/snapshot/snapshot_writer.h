// Writes a snapshot file from start to end, section by section, in bounded memory.
#ifndef DE_CORE_ENGINE_SNAPSHOT_WRITER_H_
#define DE_CORE_ENGINE_SNAPSHOT_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/byte_stream.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/snapshot/snapshot_format.h"

namespace de::engine {

/// An encoded section. Reuse an object to reuse its memory.
struct EncodedSection {
  SectionRecord record{};
  std::vector<char> bytes;  ///< the block, without its number and its checksum, which Append adds
  ConversionError error;    ///< conversion error of the values, if they are stored as another dtype
};

/// Use: Create, Append for every section, Finish. The file is complete only after Finish has
/// returned OK and the sink was flushed. The caller then moves the file to its name. Memory: one
/// encoded section, and 64 bytes per section. Only Encode is thread-safe. After an error, every
/// later call returns the same error.
class SnapshotWriter {
 public:
  /// Writes the header. `header.layout` is the layout of the rows that the caller will append. With
  /// `header.values_only`, the file contains their keys and values without slots. `store_as`, a
  /// floating-point dtype or int8, converts floating-point values. `sink` must outlive the writer.
  static Status Create(ByteSink* sink, const SnapshotHeader& header, std::optional<DType> store_as,
                       std::unique_ptr<SnapshotWriter>* writer) noexcept;
  static Status Create(ByteSink* sink, const SnapshotHeader& header,
                       std::unique_ptr<SnapshotWriter>* writer) noexcept {
    return Create(sink, header, std::nullopt, writer);
  }

  /// Writes one section. An empty section writes nothing. Its range of hashes must come after the
  /// previous section's range, and must contain the hash of each of its words. Sections of 64 KiB
  /// to 16 MiB of rows work best, because a reader holds one at a time.
  Status Append(const SnapshotSection& section) noexcept;

  /// The two halves of Append: several threads can encode sections while one thread appends them in
  /// order. Encode is thread-safe.
  Status Encode(const SnapshotSection& section, EncodedSection* encoded) const noexcept;
  Status Append(EncodedSection* encoded) noexcept;

  /// Writes the directory and the footer.
  Status Finish() noexcept;

  uint64_t rows() const noexcept { return footer_.row_count; }
  uint64_t tombstones() const noexcept { return footer_.tombstone_count; }
  uint64_t bytes() const noexcept { return offset_; }
  const ConversionError& error() const noexcept { return error_; }

 private:
  SnapshotWriter(ByteSink* sink, const SnapshotHeader& header);

  Status Start(std::optional<DType> store_as);
  Status CheckSection(const SnapshotSection& section) const;
  void EncodeIndex(const SnapshotSection& section, uint32_t lines, char* out) const;
  void EncodeRows(const SnapshotSection& section, const BlockShape& shape,
                  EncodedSection* encoded) const;
  Status Emit(const void* data, size_t size);
  Status Remember(Status status);
  uint64_t StringBytes(const SnapshotSection& section) const;

  ByteSink* sink_;
  SnapshotHeader header_;  ///< the file's header: its layout is the layout in the file
  RowLayout source_;       ///< layout of the rows that the caller appends
  RowConverter converter_;
  std::vector<SectionRecord> sections_;
  FooterRecord footer_{};
  EncodedSection encoded_;
  ConversionError error_;
  uint64_t offset_ = 0;  ///< bytes written so far
  bool finished_ = false;
  Status status_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_WRITER_H_
