// One batch of keys that is looked up in the runs of a store.
#ifndef DE_CORE_ENGINE_RUN_LOOKUP_H_
#define DE_CORE_ENGINE_RUN_LOOKUP_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/runs/run_reader.h"
#include "de_core/cc/engine/runs/run_version.h"

namespace de::engine {

/// For each key, reads the block of the newest run whose filter passes it. If the key is not in the
/// block, goes on with the next older run.
class RunLookup final : public RunReads {
 public:
  /// Looks up keys [begin, begin + count) of `keys`. `rows` (keys.size, layout.stride()) may be
  /// nullptr. All arguments must outlive the lookup.
  RunLookup(const RunVersion& version, const Keys& keys, size_t begin, size_t count,
            const RowLayout& layout, char* rows, bool* found);

  /// Prepares the conversion of rows.
  Status Start();

  bool Next(RunRead* read) override;
  Status Done(const RunRead& read, const char* bytes) override;

  uint64_t reads() const noexcept { return reads_; }
  uint64_t read_bytes() const noexcept { return read_bytes_; }
  uint64_t false_positives() const noexcept { return false_positives_; }

 private:
  /// A key, and the number of the run that is looked at next.
  struct State {
    uint64_t word;
    uint64_t filter_hash;
    uint32_t run;
  };
  static constexpr size_t kAhead = 16;  // keys whose filters are prefetched

  void Hash(size_t number);
  bool NextRun(uint32_t number, RunRead* read);

  const RunVersion& version_;
  const Keys keys_;
  const RowLayout& layout_;
  char* const rows_;
  bool* const found_;
  std::vector<State> states_;             // (count)
  std::vector<RowConverter> converters_;  // (runs): upper, then last
  std::vector<uint32_t> again_;           ///< keys that go on with an older run
  size_t next_ = 0;                       ///< the first key that was not looked at
  size_t hashed_ = 0;                     ///< number of keys whose states are set
  BlockView view_;
  uint64_t reads_ = 0, read_bytes_ = 0, false_positives_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_LOOKUP_H_
