#include "de_core/cc/engine/tier/segment_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "de_core/cc/engine/base/crc32c.h"
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

/// Writes a row as a record, with zeros up to RecordBytes. Returns the record's end.
char* EncodeRow(const RowBatch& rows, size_t row, char* out) noexcept {
  const size_t stride = rows.layout.stride();
  const std::string_view key = rows.keys.empty() ? std::string_view() : rows.keys[row];
  RowRecord record{0, static_cast<uint32_t>(sizeof(record) + stride + key.size()), rows.words[row]};
  std::memcpy(out, &record, sizeof(record));
  std::memcpy(out + sizeof(record), rows.rows.data() + row * stride, stride);
  if (!key.empty()) std::memcpy(out + sizeof(record) + stride, key.data(), key.size());
  record.crc = Crc32c(out + sizeof(record.crc), record.bytes - sizeof(record.crc));
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

size_t EncodeRows(const RowBatch& rows, size_t first, size_t most, BlockBuffer* out,
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
  for (size_t row = first; row < last; ++row) to = EncodeRow(rows, row, to);
  std::memset(to, 0, *bytes - records);
  return last - first;
}

bool DecodeRow(const char* at, size_t available, const RowLayout& layout,
               DecodedRow* row) noexcept {
  RowRecord record;
  const size_t least = sizeof(record) + layout.stride();
  if (available < least) return false;
  std::memcpy(&record, at, sizeof(record));
  if (record.bytes < least || record.bytes > available) return false;
  if (Crc32c(at + sizeof(record.crc), record.bytes - sizeof(record.crc)) != record.crc) {
    return false;
  }
  row->word = record.word;
  row->row = at + sizeof(record);
  row->key = {at + least, record.bytes - least};
  row->bytes = RoundUpTo(record.bytes, 8);
  return true;
}

Status SegmentFile::Create(std::string path, std::shared_ptr<const RowLayout> layout,
                           std::unique_ptr<SegmentFile>* file) {
  // Allocate before the file exists, which nothing would remove after a failed allocation.
  std::unique_ptr<SegmentFile> made(new SegmentFile(std::move(path), std::move(layout)));
  const char* const name = made->path_.c_str();
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  int& descriptor = made->descriptor_;
#if defined(O_DIRECT)
  descriptor = open(name, flags | O_DIRECT, 0644);
  if (descriptor < 0 && errno == EINVAL) unlink(name);  // created, but not opened
#endif
  if (descriptor < 0) descriptor = open(name, flags, 0644);  // such as on tmpfs
  if (descriptor < 0) return FileError("a file for rows must be created", name, errno);
  *file = std::move(made);
  return Status::Ok();
}

std::unique_ptr<SegmentFile> SegmentFile::Reuse(SegmentFile* old,
                                                std::shared_ptr<const RowLayout> layout) {
  std::unique_ptr<SegmentFile> made(new SegmentFile(old->path_, std::move(layout)));
  made->descriptor_ = std::exchange(old->descriptor_, -1);
  return made;
}

SegmentFile::~SegmentFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(path_.c_str());
}

Status SegmentFile::Append(const BlockBuffer& blocks, size_t bytes) {
  const uint64_t begin = end();
  for (size_t done = 0; done < bytes;) {
    const ssize_t wrote =
        pwrite(descriptor_, blocks.data() + done, bytes - done, static_cast<off_t>(begin + done));
    if (wrote > 0) {
      done += static_cast<size_t>(wrote);
    } else if (wrote == 0 || errno != EINTR) {
      return FileError("rows must be written to the disk", path_, wrote == 0 ? ENOSPC : errno);
    }
  }
  end_.store(begin + bytes, std::memory_order_relaxed);
  return Status::Ok();
}

}  // namespace de::engine
