// A file of rows, which is only appended to.
#ifndef DE_CORE_ENGINE_SEGMENT_FILE_H_
#define DE_CORE_ENGINE_SEGMENT_FILE_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "de_core/cc/engine/base/random_word.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/tier/disk.h"

namespace de::engine {

/// Memory that begins at a multiple of kBlockBytes, as O_DIRECT needs.
class BlockBuffer {
 public:
  /// Makes room for `bytes`. Keeps none of the contents. Throws std::bad_alloc.
  void Reserve(size_t bytes);
  char* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(char* at) const noexcept { std::free(at); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
};

/// Begins each row in a file: the record, the row, the bytes of a string key.
struct RowRecord {
  uint32_t crc;    ///< of the record's place and all later bytes
  uint32_t bytes;  ///< size of this record, the row and its key
  uint64_t word;
};
static_assert(sizeof(RowRecord) == 16, "part of the format");

/// Greatest size of a row as a record.
inline constexpr size_t kMaxRecordBytes = size_t{1} << 22;

/// Size in a file of row `row` of a batch: records begin at multiples of 8.
size_t RecordBytes(const RowBatch& rows, size_t row) noexcept;

/// Encodes rows of a batch, from row `first` on, one behind the other, as whole blocks that are
/// filled up with zeros. Encodes one row, and further rows while the blocks have at most `most`
/// bytes. `mark` is the mark of the place where the blocks will begin. `bytes` receives the size of
/// the blocks. Returns the number of rows. Throws std::bad_alloc.
size_t EncodeRows(const RowBatch& rows, size_t first, size_t most, uint64_t mark, BlockBuffer* out,
                  size_t* bytes);

/// A decoded record, which refers to the memory that was decoded.
struct DecodedRow {
  uint64_t word = 0;
  const char* row = nullptr;  ///< the reference of its string key means nothing
  std::string_view key;       ///< for string keys
  size_t bytes = 0;           ///< size in the file
};

/// Decodes and checks the record at `at`. `available` bytes can be read there. `mark` is the mark
/// of the place where the record must have been written. Returns false if the record is damaged, or
/// was written elsewhere.
bool DecodeRow(const char* at, size_t available, const RowLayout& layout, uint64_t mark,
               DecodedRow* row) noexcept;

class SegmentFile {
 public:
  /// Creates a file for rows of `layout`.
  static Status Create(std::shared_ptr<Disk> disk, std::string path,
                       std::shared_ptr<const RowLayout> layout, std::unique_ptr<SegmentFile>* file);
  /// Makes an empty file of one that nobody reads any more, but keeps its blocks on the disk. This
  /// costs less than to remove a file and to create another.
  static std::unique_ptr<SegmentFile> Reuse(SegmentFile* old,
                                            std::shared_ptr<const RowLayout> layout);
  /// Closes the file. Removes it, unless this is a forked process.
  ~SegmentFile();
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;

  /// Appends whole blocks. If it fails, the file ends where it ended.
  Status Append(const BlockBuffer& blocks, size_t bytes);

  int descriptor() const noexcept { return descriptor_; }
  const std::string& path() const noexcept { return path_; }
  uint64_t end() const noexcept { return end_.load(std::memory_order_relaxed); }
  /// Identifies a place: no two files, and no two uses of one file, have the same mark. So a
  /// record of another place is recognized.
  uint64_t MarkOf(uint64_t offset) const noexcept { return mark_ + offset; }

  std::shared_ptr<const RowLayout> layout;
  uint64_t live_bytes = 0;  ///< bytes of records that are their keys' newest
  bool is_damaged = false;  ///< a row that is still needed cannot be read

 private:
  SegmentFile(std::shared_ptr<Disk> disk, std::string path,
              std::shared_ptr<const RowLayout> row_layout) noexcept
      : layout(std::move(row_layout)), disk_(std::move(disk)), path_(std::move(path)) {}

  const std::shared_ptr<Disk> disk_;
  const std::string path_;
  const uint64_t mark_ = RandomWord();
  int descriptor_ = -1;
  std::atomic<uint64_t> end_{0};
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SEGMENT_FILE_H_
