// The runs of a store at one moment, and the manifest that names them.
#ifndef DE_CORE_ENGINE_RUN_VERSION_H_
#define DE_CORE_ENGINE_RUN_VERSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/runs/run_file.h"

namespace de::engine {

/// A run with its place in the store.
struct RunRef {
  std::shared_ptr<RunFile> file;
  uint32_t level = 0;  ///< number of merges that its rows went through
  size_t drops = 0;    ///< number of dropped owners when it was written
  /// an upper run's keys that have a row in the last level; all keys, if that is unknown
  uint64_t replaced = 0;
  /// The layout of its rows. A slot that was dropped later has an owner that no table has.
  RowLayout layout{KeyType::kInt64, DType::kFloat32, 1};
};

/// Immutable. A row in an earlier run of `upper` wins over later ones, and over `last`.
struct RunVersion {
  std::vector<RunRef> upper;       ///< newest first; their ranges overlap
  std::vector<RunRef> last;        ///< ascending, disjoint ranges; no tombstones
  std::vector<std::string> drops;  ///< owners whose slots were dropped, in order

  uint64_t upper_bytes() const noexcept { return BytesOf(upper); }
  uint64_t last_bytes() const noexcept { return BytesOf(last); }
  size_t runs() const noexcept { return upper.size() + last.size(); }

  /// Returns the run of `last` whose range has the hash, or nullptr.
  const RunRef* LastOf(uint64_t hash) const noexcept;

  /// Adds a reference to a run with its layout.
  RunRef Ref(std::shared_ptr<RunFile> file, uint32_t level, size_t drops, uint64_t replaced) const;

 private:
  static uint64_t BytesOf(const std::vector<RunRef>& runs) noexcept {
    uint64_t bytes = 0;
    for (const RunRef& run : runs) bytes += run.file->file_bytes();
    return bytes;
  }
};

/// The manifest's text: names the runs, and the number of the next run.
std::string EncodeManifest(const RunVersion& version, uint64_t next_number);

/// A run in a manifest.
struct ManifestRun {
  bool is_last = false;
  uint64_t number = 0;
  uint32_t level = 0;
  size_t drops = 0;
};
struct Manifest {
  uint64_t next_number = 1;
  std::vector<std::string> drops;
  std::vector<ManifestRun> runs;
};
/// DataLoss if the text is not a manifest.
Status DecodeManifest(const std::string& text, Manifest* manifest);

/// Returns the name of a run's file.
std::string RunFileName(uint64_t number);

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_VERSION_H_
