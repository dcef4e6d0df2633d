// Stores of runs in temporary directories, and rows for them.
#ifndef DE_CORE_TESTING_RUN_STORE_FIXTURE_H_
#define DE_CORE_TESTING_RUN_STORE_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/runs/run_store.h"

namespace de::engine::testing {

/// A directory that exists as long as this object.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "runs-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> Files(const std::string& ending) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().extension() == ending) files.push_back(entry.path().string());
    }
    return files;
  }

 private:
  std::string path_;
};

/// Options for tests: small files, no background thread.
inline RunStoreOptions SmallOptions(const std::string& directory) {
  RunStoreOptions options;
  options.directory = directory;
  options.background = false;
  options.part_bytes = 64 << 10;
  return options;
}

inline std::unique_ptr<RunStore> OpenStore(const RunStoreOptions& options) {
  std::unique_ptr<RunStore> store;
  const Status status = RunStore::Open(options, &store);
  EXPECT_TRUE(status.ok()) << status.message;
  return store;
}

/// Rows by key. String keys have the text TextOf(key).
using Rows = std::map<int64_t, float>;

inline std::string TextOf(int64_t key) {
  return "key-" + std::to_string(key) + std::string(static_cast<size_t>(key & 15) * 7, '.');
}

/// Returns a layout with a value of `dim` floats and an Adagrad slot.
inline RowLayout LayoutOf(KeyType key_type, size_t dim, bool slots = true) {
  RowLayout layout(key_type, DType::kFloat32, dim);
  if (slots) layout.Append("adagrad", {{"accumulator", DType::kFloat32, dim, 0.5}});
  return layout;
}

/// Fills a row: the value is `value` in all elements, the slots are `value` + 1.
inline void FillRow(const RowLayout& layout, float value, char* row) {
  std::memset(row, 0, layout.stride());
  const size_t elements = layout.key_offset() / sizeof(float);
  const size_t floats =
      layout.key_type() == KeyType::kString ? elements : layout.stride() / sizeof(float);
  for (size_t i = 0; i < floats; ++i) {
    const float written = i < layout.dim() ? value : value + 1;
    std::memcpy(row + i * sizeof(float), &written, sizeof(written));
  }
}

inline float FloatAt(const char* row, size_t element) {
  float value;
  std::memcpy(&value, row + element * sizeof(float), sizeof(value));
  return value;
}

/// Keys with the memory of their texts.
struct KeyBatch {
  KeyBatch(KeyType key_type, std::vector<int64_t> of) : ints(std::move(of)) {
    for (const int64_t key : ints) texts.push_back(TextOf(key));
    for (const std::string& text : texts) views.emplace_back(text);
    strings = key_type == KeyType::kString;
  }
  Keys keys() const {
    return {strings ? nullptr : ints.data(), strings ? views.data() : nullptr, ints.size()};
  }
  std::vector<int64_t> ints;
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
  bool strings = false;
};

/// Returns the rows as a batch. `keys` must outlive it.
inline RowBatch BatchOf(const RowLayout& layout, const Rows& rows, KeyBatch* keys) {
  std::vector<int64_t> ints;
  for (const auto& row : rows) ints.push_back(row.first);
  *keys = KeyBatch(layout.key_type(), ints);
  RowBatch batch;
  batch.layout = layout;
  batch.rows.resize(rows.size() * layout.stride());
  size_t i = 0;
  for (const auto& [key, value] : rows) {
    FillRow(layout, value, batch.rows.data() + i * layout.stride());
    if (layout.key_type() == KeyType::kString) {
      batch.words.push_back(HashBytes(keys->views[i]));
      batch.keys.push_back(keys->views[i]);
    } else {
      batch.words.push_back(static_cast<uint64_t>(key));
    }
    ++i;
  }
  return batch;
}

inline Status AppendRows(RunStore* store, const RowLayout& layout, const Rows& rows) {
  KeyBatch keys(layout.key_type(), {});
  return store->Append(BatchOf(layout, rows, &keys));
}

inline Status EraseKeys(RunStore* store, KeyType key_type, const std::vector<int64_t>& keys) {
  return store->Erase(KeyBatch(key_type, keys).keys(), key_type);
}

/// Finds keys. Absent keys are not in the result.
inline Status FindRows(const RunStore& store, const RowLayout& layout,
                       const std::vector<int64_t>& of, Rows* rows, Executor* executor = nullptr) {
  const KeyBatch batch(layout.key_type(), of);
  std::vector<char> bytes(of.size() * layout.stride());
  const std::unique_ptr<bool[]> found = std::make_unique<bool[]>(of.size());
  DE_RETURN_IF_ERROR(store.Find(batch.keys(), layout, bytes.data(), found.get(), executor));
  for (size_t i = 0; i < of.size(); ++i) {
    if (!found[i]) continue;
    const char* const row = bytes.data() + i * layout.stride();
    EXPECT_EQ(FloatAt(row, layout.dim() - 1), FloatAt(row, 0));
    if (!layout.slots().empty()) {
      EXPECT_EQ(FloatAt(row, layout.dim()), FloatAt(row, 0) + 1);
    }
    (*rows)[of[i]] = FloatAt(row, 0);
  }
  return Status::Ok();
}

/// Enumerates all rows by scans of about `most` rows: the first element of each value by word.
inline Status ScanRows(const RunStore& store, const RowLayout& layout, size_t most,
                       std::map<uint64_t, float>* rows) {
  for (uint64_t begin = 0;;) {
    RowBatch batch;
    DE_RETURN_IF_ERROR(store.Scan(begin, ~uint64_t{0}, most, layout, &batch));
    for (size_t i = 0; i < batch.size(); ++i) {
      if (layout.key_type() == KeyType::kString) {
        EXPECT_EQ(HashBytes(batch.keys[i]), batch.words[i]);
      }
      if (i > 0) {
        EXPECT_LE(Mix64(batch.words[i - 1]), Mix64(batch.words[i]));
      }
      const bool added =
          rows->emplace(batch.words[i], FloatAt(batch.rows.data() + i * layout.stride(), 0)).second;
      EXPECT_TRUE(added) << "a row was scanned twice";
    }
    if (batch.hash_last == ~uint64_t{0}) return Status::Ok();
    begin = batch.hash_last + 1;
  }
}

/// Expects that the store has these rows and none of `absent`.
inline void ExpectRows(const RunStore& store, const RowLayout& layout, const Rows& rows,
                       const std::vector<int64_t>& absent = {}, Executor* executor = nullptr) {
  std::vector<int64_t> keys = absent;
  std::map<uint64_t, float> by_word;
  for (const auto& [key, value] : rows) {
    keys.push_back(key);
    by_word[layout.key_type() == KeyType::kString ? HashBytes(TextOf(key))
                                                  : static_cast<uint64_t>(key)] = value;
  }
  Rows found;
  const Status status = FindRows(store, layout, keys, &found, executor);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(found, rows);
  std::map<uint64_t, float> scanned;
  const Status scan = ScanRows(store, layout, 100, &scanned);
  ASSERT_TRUE(scan.ok()) << scan.message;
  EXPECT_EQ(scanned, by_word);
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_RUN_STORE_FIXTURE_H_
