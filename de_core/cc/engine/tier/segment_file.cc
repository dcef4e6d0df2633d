#include "de_core/cc/engine/tier/segment_file.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/snapshot/snapshot_header.h"

namespace de::engine {
namespace {

Status FileError(const std::string& what, const std::string& path, int error) {
  const std::string text = what + ". Received: " + path + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) {
    return Status::ResourceExhausted(text + ". Free space on the disk, or bound the table's size");
  }
  if (error == ENOENT) return Status::NotFound(text + ". Create the folder again");
  return Status::Internal(text);
}

/// Returns the checksum of a record at the place with this mark.
uint32_t ChecksumOf(const char* record, size_t bytes, uint64_t mark) noexcept {
  const size_t skipped = sizeof(RowRecord::crc);
  return Crc32cExtend(static_cast<uint32_t>(Mix64(mark)), record + skipped, bytes - skipped);
}

/// Writes a row as a record, with zeros up to RecordBytes. Returns the record's end.
char* EncodeRow(const RowBatch& rows, size_t row, uint64_t mark, char* out) noexcept {
  const size_t stride = rows.layout.stride();
  const std::string_view key = rows.keys.empty() ? std::string_view() : rows.keys[row];
  RowRecord record{0, static_cast<uint32_t>(sizeof(record) + stride + key.size()), rows.words[row]};
  std::memcpy(out, &record, sizeof(record));
  std::memcpy(out + sizeof(record), rows.rows.data() + row * stride, stride);
  if (!key.empty()) std::memcpy(out + sizeof(record) + stride, key.data(), key.size());
  record.crc = ChecksumOf(out, record.bytes, mark);
  std::memcpy(out, &record.crc, sizeof(record.crc));
  char* const end = out + RoundUpTo(record.bytes, 8);
  std::memset(out + record.bytes, 0, static_cast<size_t>(end - out) - record.bytes);
  return end;
}

}  // namespace

void BlockBuffer::Reserve(size_t bytes) {
  if (bytes <= size_) return;
  bytes = RoundUpTo(bytes, kBlockBytes);
  data_.reset(static_cast<char*>(std::aligned_alloc(kBlockBytes, bytes)));
  size_ = data_ == nullptr ? 0 : bytes;
  if (data_ == nullptr) throw std::bad_alloc();
}

size_t RecordBytes(const RowBatch& rows, size_t row) noexcept {
  const size_t key = rows.keys.empty() ? 0 : rows.keys[row].size();
  return RoundUpTo(sizeof(RowRecord) + rows.layout.stride() + key, 8);
}

size_t EncodeRows(const RowBatch& rows, size_t first, size_t most, uint64_t mark, BlockBuffer* out,
                  size_t* bytes) {
  size_t last = first, records = 0;
  for (; last < rows.size(); ++last) {
    const size_t size = RecordBytes(rows, last);
    if (last > first && records + size > most) break;
    records += size;
  }
  *bytes = RoundUpTo(records, kBlockBytes);
  out->Reserve(*bytes);
  char* to = out->data();
  for (size_t row = first; row < last; ++row) {
    to = EncodeRow(rows, row, mark + static_cast<size_t>(to - out->data()), to);
  }
  std::memset(to, 0, *bytes - records);
  return last - first;
}

bool DecodeRow(const char* at, size_t available, const RowLayout& layout, uint64_t mark,
               DecodedRow* row) noexcept {
  RowRecord record;
  const size_t least = sizeof(record) + layout.stride();
  if (available < least) return false;
  std::memcpy(&record, at, sizeof(record));
  if (record.bytes < least || record.bytes > available) return false;
  if (ChecksumOf(at, record.bytes, mark) != record.crc) return false;
  row->word = record.word;
  row->row = at + sizeof(record);
  row->key = {at + least, record.bytes - least};
  row->bytes = RoundUpTo(record.bytes, 8);
  return true;
}

Status SegmentFile::Create(std::shared_ptr<Disk> disk, std::string path,
                           std::shared_ptr<const RowLayout> layout,
                           std::unique_ptr<SegmentFile>* file) {
  // Allocate before the file exists, which nothing would remove after a failed allocation.
  std::unique_ptr<SegmentFile> made(
      new SegmentFile(std::move(disk), std::move(path), std::move(layout)));
  const int error = made->disk_->Create(made->path_, &made->descriptor_);
  if (error != 0) return FileError("a file for rows must be created", made->path_, error);
  *file = std::move(made);
  return Status::Ok();
}

std::unique_ptr<SegmentFile> SegmentFile::Reuse(SegmentFile* old,
                                                std::shared_ptr<const RowLayout> layout) {
  std::unique_ptr<SegmentFile> made(new SegmentFile(old->disk_, old->path_, std::move(layout)));
  made->descriptor_ = std::exchange(old->descriptor_, -1);
  return made;
}

SegmentFile::~SegmentFile() {
  if (descriptor_ >= 0) disk_->Remove(descriptor_, path_);
}

Status SegmentFile::Append(const BlockBuffer& blocks, size_t bytes) {
  const uint64_t begin = end();
  const int error = disk_->Write(descriptor_, blocks.data(), bytes, begin);
  if (error != 0) return FileError("rows must be written to the disk", path_, error);
  end_.store(begin + bytes, std::memory_order_relaxed);
  return Status::Ok();
}

}  // namespace de::engine
