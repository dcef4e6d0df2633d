// Writes a snapshot file from first byte to last, section by section, in bounded memory.
#ifndef DE_CORE_ENGINE_SNAPSHOT_WRITER_H_
#define DE_CORE_ENGINE_SNAPSHOT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/byte_stream.h"
#include "de_core/cc/engine/snapshot_format.h"

namespace de::engine {

/// Use: Create, Append for every section, Finish. The file is whole only when Finish returned Ok
/// and the sink was flushed; making it appear under its name is the caller's part. Memory: the
/// index of one section, 1 MiB and 64 bytes a section. One thread at a time; after an error every
/// later call returns the same error.
class SnapshotWriter {
 public:
  /// Writes the header. `header.layout` is the layout of the rows the caller will append; with
  /// `header.values_only` the file keeps their values (and keys) and leaves the slots out. `sink`
  /// outlives the writer.
  static Status Create(ByteSink* sink, const SnapshotHeader& header,
                       std::unique_ptr<SnapshotWriter>* writer) noexcept;

  /// Writes one section; an empty one leaves nothing in the file. Its range of hashes must follow
  /// that of the section before and hold the hash of each of its words. Sections of 64 KiB to
  /// 16 MiB of rows serve best: a reader holds one at a time.
  Status Append(const SnapshotSection& section) noexcept;

  /// Writes the directory and the footer.
  Status Finish() noexcept;

  uint64_t rows() const noexcept { return footer_.row_count; }
  uint64_t sections() const noexcept { return sections_.size(); }
  uint64_t bytes() const noexcept { return offset_; }

 private:
  SnapshotWriter(ByteSink* sink, const SnapshotHeader& header);

  Status Start();
  Status CheckSection(const SnapshotSection& section) const;
  Status AppendSection(const SnapshotSection& section);
  void BuildIndex(const SnapshotSection& section, uint32_t lines);
  Status EmitRows(const SnapshotSection& section);
  Status EmitStrings(const SnapshotSection& section);
  Status EmitDirectory();
  Status Emit(const void* data, size_t size);
  Status EmitChecksum(uint64_t padding);
  Status Remember(Status status);
  uint64_t StringBytes(const SnapshotSection& section) const;
  SnapshotStringRef TakeRef(std::string_view text);

  ByteSink* sink_;
  SnapshotHeader header_;  ///< its layout is that of the file
  RowLayout source_;       ///< of the rows the caller appends
  std::vector<SectionRecord> sections_;
  FooterRecord footer_{};
  std::vector<IndexLine> lines_;
  std::vector<char> buffer_;
  uint64_t offset_ = 0;         ///< bytes written
  uint32_t crc_ = 0;            ///< of the block being written
  uint32_t string_offset_ = 0;  ///< of the next string in its area
  bool finished_ = false;
  Status status_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_WRITER_H_
