#include "de_core/cc/engine/snapshot_writer.h"

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/crc32c.h"
#include "de_core/cc/engine/guard.h"
#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/snapshot_index.h"

namespace de::engine {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

RowLayout FileLayout(const SnapshotHeader& header) {
  const RowLayout& layout = header.layout;
  if (!header.values_only) return layout;
  return RowLayout(layout.key_type(), layout.value_dtype(), layout.dim());
}

Status BadSection(const SnapshotSection& section, const std::string& why) {
  return Status::InvalidArgument(why + ". Received: a section of " + std::to_string(section.count) +
                                 " rows, hashes " + std::to_string(section.hash_begin) + " to " +
                                 std::to_string(section.hash_last));
}

}  // namespace

SnapshotWriter::SnapshotWriter(ByteSink* sink, const SnapshotHeader& header)
    : sink_(sink), header_(header), source_(header.layout) {
  header_.layout = FileLayout(header);
}

Status SnapshotWriter::Create(ByteSink* sink, const SnapshotHeader& header,
                              std::unique_ptr<SnapshotWriter>* writer) noexcept {
  return Guarded([&] {
    std::unique_ptr<SnapshotWriter> created(new SnapshotWriter(sink, header));
    DE_RETURN_IF_ERROR(created->Start());
    *writer = std::move(created);
    return Status::Ok();
  });
}

Status SnapshotWriter::Append(const SnapshotSection& section) noexcept {
  return Remember(Guarded([&] {
    DE_RETURN_IF_ERROR(status_);
    if (finished_) return Status::FailedPrecondition("the snapshot is already finished");
    return section.count == 0 ? Status::Ok() : AppendSection(section);
  }));
}

Status SnapshotWriter::Finish() noexcept {
  return Remember(Guarded([&] {
    DE_RETURN_IF_ERROR(status_);
    if (finished_) return Status::FailedPrecondition("the snapshot is already finished");
    finished_ = true;
    return EmitDirectory();
  }));
}

Status SnapshotWriter::Remember(Status status) {
  if (status_.ok()) status_ = status;
  return status;
}

Status SnapshotWriter::Start() {
  DE_RETURN_IF_ERROR(CheckHost());
  if (header_.kind != SnapshotKind::kBase) {
    return Status::FailedPrecondition("this build writes base snapshots only, not deltas");
  }
  if (header_.layout.dim() == 0 || header_.layout.dim() > kMaxDim) {
    return Status::InvalidArgument("dim must be from 1 to " + std::to_string(kMaxDim) +
                                   ". Received: dim=" + std::to_string(header_.layout.dim()));
  }
  std::string bytes;
  std::array<uint32_t, 2> checksums;
  DE_RETURN_IF_ERROR(EncodeHeader(header_, &bytes, &checksums));
  std::memcpy(footer_.id, header_.id.data(), sizeof(footer_.id));
  footer_.contents_crc = Crc32c(checksums.data(), sizeof(checksums));
  return Emit(bytes.data(), bytes.size());
}

Status SnapshotWriter::CheckSection(const SnapshotSection& section) const {
  if (section.hash_begin > section.hash_last) {
    return BadSection(section, "a section's range of hashes must not be empty");
  }
  if (!sections_.empty() && section.hash_begin <= sections_.back().hash_last) {
    return BadSection(section, "sections must come in ascending order of their hashes");
  }
  if (section.count > kMaxSectionRows) {
    return BadSection(section, "a section holds at most 2^30 rows; hand over smaller ones");
  }
  const bool string_keys = source_.key_type() == KeyType::kString;
  const bool string_values = source_.value_dtype() == DType::kString;
  if (section.words == nullptr || section.rows == nullptr ||
      (section.keys != nullptr) != string_keys || (section.values != nullptr) != string_values) {
    return BadSection(section, "a section must hold words, rows and what strings the table has");
  }
  for (size_t i = 0; i < section.count; ++i) {
    const uint64_t hash = Mix64(section.words[i]);
    if (hash < section.hash_begin || hash > section.hash_last) {
      return BadSection(section, "row " + std::to_string(i) + " hashes outside its section");
    }
    if (string_keys && HashBytes(section.keys[i]) != section.words[i]) {
      return BadSection(section, "row " + std::to_string(i) + " has not the word of its key");
    }
  }
  if (StringBytes(section) > kMaxSectionStrings) {
    return BadSection(section,
                      "a section holds less than 4 GiB of strings; hand over smaller ones");
  }
  return Status::Ok();
}

uint64_t SnapshotWriter::StringBytes(const SnapshotSection& section) const {
  uint64_t bytes = 0;
  for (size_t i = 0; section.keys != nullptr && i < section.count; ++i) {
    bytes += section.keys[i].size();
  }
  for (size_t i = 0; section.values != nullptr && i < section.count * source_.dim(); ++i) {
    bytes += section.values[i].size();
  }
  return bytes;
}

Status SnapshotWriter::AppendSection(const SnapshotSection& section) {
  DE_RETURN_IF_ERROR(CheckSection(section));
  SectionRecord record{};
  record.hash_begin = section.hash_begin;
  record.hash_last = section.hash_last;
  record.offset = offset_;
  record.count = static_cast<uint32_t>(section.count);
  record.lines = LinesFor(record.count);
  record.string_bytes = StringBytes(section);
  const size_t stride = header_.layout.stride();
  const BlockRecord block = MakeBlockRecord(sections_.size(), record, stride);
  const BlockShape shape = ShapeOf(record, stride);

  crc_ = 0;
  DE_RETURN_IF_ERROR(Emit(&block, sizeof(block)));
  BuildIndex(section, record.lines);
  DE_RETURN_IF_ERROR(Emit(lines_.data(), lines_.size() * sizeof(IndexLine)));
  DE_RETURN_IF_ERROR(EmitRows(section));
  DE_RETURN_IF_ERROR(EmitStrings(section));
  DE_RETURN_IF_ERROR(EmitChecksum(shape.crc - shape.strings - record.string_bytes));

  record.crc = crc_;
  footer_.contents_crc = Crc32cExtend(footer_.contents_crc, &crc_, sizeof(crc_));
  footer_.row_count += record.count;
  footer_.string_bytes += record.string_bytes;
  sections_.push_back(record);
  return Status::Ok();
}

void SnapshotWriter::BuildIndex(const SnapshotSection& section, uint32_t lines) {
  lines_.assign(lines, IndexLine{});
  for (uint32_t row = 0; row < section.count; ++row) {
    LineIndex(lines_.data(), lines).Insert(section.words[row], Mix64(section.words[row]), row);
  }
}

SnapshotStringRef SnapshotWriter::TakeRef(std::string_view text) {
  const SnapshotStringRef ref{string_offset_, static_cast<uint32_t>(text.size())};
  string_offset_ += ref.size;
  return ref;
}

Status SnapshotWriter::EmitRows(const SnapshotSection& section) {
  const RowLayout& layout = header_.layout;
  const size_t stride = layout.stride();
  if (stride == source_.stride() && section.keys == nullptr && section.values == nullptr) {
    return Emit(section.rows, section.count * stride);
  }

  const size_t copied = header_.values_only ? layout.value_bytes() : stride;
  const size_t batch = std::min(section.count, std::max<size_t>(1, kBufferBytes / stride));
  buffer_.assign(batch * stride, '\0');
  string_offset_ = 0;
  size_t filled = 0;
  for (size_t i = 0; i < section.count; ++i) {
    char* row = buffer_.data() + filled * stride;
    std::memcpy(row, section.rows + i * source_.stride(), copied);
    if (section.keys != nullptr) {
      const SnapshotStringRef ref = TakeRef(section.keys[i]);
      std::memcpy(row + layout.key_offset(), &ref, sizeof(ref));
    }
    for (size_t j = 0; section.values != nullptr && j < layout.dim(); ++j) {
      const SnapshotStringRef ref = TakeRef(section.values[i * layout.dim() + j]);
      std::memcpy(row + j * sizeof(ref), &ref, sizeof(ref));
    }
    if (++filled == batch || i + 1 == section.count) {
      DE_RETURN_IF_ERROR(Emit(buffer_.data(), filled * stride));
      filled = 0;
    }
  }
  return Status::Ok();
}

Status SnapshotWriter::EmitStrings(const SnapshotSection& section) {
  buffer_.clear();
  const auto emit = [&](std::string_view text) {  // in the order in which TakeRef numbered them
    if (buffer_.size() + text.size() > kBufferBytes) {
      DE_RETURN_IF_ERROR(Emit(buffer_.data(), buffer_.size()));
      buffer_.clear();
    }
    if (text.size() > kBufferBytes) return Emit(text.data(), text.size());
    buffer_.insert(buffer_.end(), text.begin(), text.end());
    return Status::Ok();
  };
  const size_t dim = source_.dim();
  for (size_t i = 0; i < section.count; ++i) {
    if (section.keys != nullptr) DE_RETURN_IF_ERROR(emit(section.keys[i]));
    for (size_t j = 0; section.values != nullptr && j < dim; ++j) {
      DE_RETURN_IF_ERROR(emit(section.values[i * dim + j]));
    }
  }
  return Emit(buffer_.data(), buffer_.size());
}

Status SnapshotWriter::EmitDirectory() {
  footer_.directory_offset = offset_;
  footer_.section_count = sections_.size();
  crc_ = 0;
  const uint64_t records = sections_.size() * sizeof(SectionRecord);
  DE_RETURN_IF_ERROR(Emit(sections_.data(), records));
  DE_RETURN_IF_ERROR(EmitChecksum(DirectoryBytes(sections_.size()) - sizeof(uint32_t) - records));
  footer_.contents_crc = Crc32cExtend(footer_.contents_crc, &crc_, sizeof(crc_));
  footer_.file_bytes = offset_ + sizeof(FooterRecord);
  SealFooter(&footer_);
  return Emit(&footer_, sizeof(footer_));
}

Status SnapshotWriter::Emit(const void* data, size_t size) {
  if (size == 0) return Status::Ok();
  crc_ = Crc32cExtend(crc_, data, size);
  offset_ += size;
  return sink_->Append(data, size);
}

/// Ends a block: zeros, then the checksum of all its bytes, which stays in crc_.
Status SnapshotWriter::EmitChecksum(uint64_t padding) {
  constexpr char kZeros[64] = {};
  DE_RETURN_IF_ERROR(Emit(kZeros, padding));
  const uint32_t crc = crc_;
  const Status status = Emit(&crc, sizeof(crc));
  crc_ = crc;
  return status;
}

}  // namespace de::engine
