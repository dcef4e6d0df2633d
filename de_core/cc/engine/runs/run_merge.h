// Reads several runs in the order of the hashes of their keys. Returns each key once, from the
// newest run that has it.
#ifndef DE_CORE_ENGINE_RUN_MERGE_H_
#define DE_CORE_ENGINE_RUN_MERGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/runs/run_version.h"

namespace de::engine {

/// A key that RunMerge returns. Valid until the next call.
struct MergedKey {
  uint64_t word = 0;
  uint64_t hash = 0;
  const char* row = nullptr;                ///< in the layout of its run; nullptr: a tombstone
  const RowConverter* converter = nullptr;  ///< to the layout of the merge
  const std::string_view* text = nullptr;   ///< the string key
};

class RunMerge {
 public:
  /// `layout` is the layout that the caller converts rows to. Reads `window` bytes at once.
  RunMerge(RowLayout layout, size_t window) : layout_(std::move(layout)), window_(window) {}

  /// Adds a run, older than the runs that were added before. Begins at the first key with a hash of
  /// at least `hash_begin`. The run must outlive this object.
  Status Add(const RunRef& run, uint64_t hash_begin);

  /// Returns the next key whose hash is at most `hash_last`. Sets *done if there is none.
  Status Next(uint64_t hash_last, MergedKey* key, bool* done);

 private:
  struct Cursor {
    Cursor(const RunFile* file, size_t block, size_t window)
        : run(file), stream(file, block, window) {}
    const RunFile* run;
    BlockStream stream;
    BlockView view;
    RowConverter converter;
    std::vector<std::pair<uint64_t, uint32_t>> order;  ///< (hash, entry) of the block
    std::vector<uint64_t> words;                       // (entries)
    size_t at = 0;
  };
  using Head = std::pair<uint64_t, uint32_t>;  ///< hash and number of a cursor's next key

  Status Load(Cursor* cursor, bool* done);
  Status Advance(uint32_t number);
  void Push(uint32_t number);

  const RowLayout layout_;
  const size_t window_;
  std::vector<std::unique_ptr<Cursor>> cursors_;  ///< newest first
  std::vector<Head> heads_;                       ///< a heap, the smallest first
  bool advance_ = false;  ///< the cursor of the key that was returned last must advance
  uint32_t returned_ = 0;
  bool any_ = false;
  uint64_t hash_ = 0;               ///< hash of the key that was returned last
  std::vector<std::string> texts_;  ///< the string keys with this hash that were returned
  std::string_view text_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_MERGE_H_
