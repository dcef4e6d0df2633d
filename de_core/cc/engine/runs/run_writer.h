// Writes a run: takes keys in the order of their hashes, cuts them into blocks of about 4 KiB.
#ifndef DE_CORE_ENGINE_RUN_WRITER_H_
#define DE_CORE_ENGINE_RUN_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/runs/local_file.h"
#include "de_core/cc/engine/runs/run_file.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

namespace de::engine {

struct RunWriterOptions {
  bool direct = true;
  bool sync = false;
  uint32_t filter_bits = 12;  ///< bits of the filter per key
};

/// Memory: 1 MiB, and 8 bytes per key and 76 bytes per block until the run is finished.
class RunWriter {
 public:
  /// Creates a file for keys with hashes from `hash_begin` on.
  static Status Create(const std::string& path, uint64_t number, const RowLayout& layout,
                       uint64_t hash_begin, const RunWriterOptions& options,
                       std::unique_ptr<RunWriter>* writer);

  /// Adds a row, or a tombstone if `row` is nullptr. `text` is the string key, or nullptr for an
  /// integer key.
  Status Add(uint64_t word, const char* row, const std::string_view* text);

  /// Finishes the file, whose range of hashes ends at `hash_last`. Requires that a key was added.
  Status Finish(uint64_t hash_last, std::shared_ptr<RunFile>* run);

  uint64_t entries() const noexcept { return filter_hashes_.size(); }
  uint64_t bytes() const noexcept { return sink_->bytes(); }
  /// Hash of the key that was added last.
  uint64_t last_hash() const noexcept { return last_hash_; }

 private:
  struct Text {
    size_t offset, size;
  };
  /// The keys of the next block that are rows, or that are tombstones.
  struct Group {
    std::vector<uint64_t> words;
    std::vector<Text> texts;
    std::vector<std::string_view> views;
  };

  RunWriter(std::string path, uint64_t number, RowLayout layout, uint64_t hash_begin,
            const RunWriterOptions& options)
      : path_(std::move(path)),
        number_(number),
        layout_(std::move(layout)),
        options_(options),
        begin_(hash_begin) {}

  uint64_t BlockBytes(size_t more_rows, size_t more_tombstones, size_t more_text) const;
  Status WriteBlock(uint64_t hash_last);
  const std::string_view* ViewsOf(Group* group) const;

  const std::string path_;
  const uint64_t number_;
  const RowLayout layout_;
  const RunWriterOptions options_;
  std::unique_ptr<LocalSink> sink_;
  std::unique_ptr<SnapshotWriter> writer_;
  RunIndex index_;
  std::vector<uint64_t> filter_hashes_;  // (entries)
  uint64_t begin_;                       ///< first hash of the next block's range
  uint64_t last_hash_ = 0;
  Group rows_, gone_;
  std::vector<char> bytes_;  ///< the bytes of rows_
  std::string texts_;        ///< the string keys of rows_ and gone_
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_WRITER_H_
