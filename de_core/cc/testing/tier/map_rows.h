// Cold rows in a std::map, for tests of tiered tables.
#ifndef DE_CORE_TESTING_MAP_ROWS_H_
#define DE_CORE_TESTING_MAP_ROWS_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/tier/cold_rows.h"

namespace de::engine::testing {

class MapRows final : public ColdRows {
 public:
  /// With `full`, Stage fails as on a full disk.
  bool full = false;
  mutable std::atomic<size_t> rows_read{0};  ///< rows that Read copied
  size_t rows_written = 0;                   ///< rows that were staged
  std::function<void()> on_stage = [] {};
  std::function<void()> on_read = [] {};

  Status Stage(const RowBatch& rows) override {
    if (full) return Status::ResourceExhausted("the disk must have space. Received: a full disk");
    on_stage();
    rows_written += rows.size();
    staged_.push_back(&rows);
    return Status::Ok();
  }

  Status Commit() override {
    for (const RowBatch* const rows : staged_) {
      for (size_t i = 0; i < rows->size(); ++i) {
        const char* const row = rows->rows.data() + i * rows->layout.stride();
        rows_.insert_or_assign(KeyOf(rows->words[i], rows->keys.empty() ? nullptr : &rows->keys[i]),
                               Row{rows->layout, std::string(row, rows->layout.stride())});
      }
    }
    staged_.clear();
    return Status::Ok();
  }

  void Discard() noexcept override { staged_.clear(); }

  Status Erase(const Keys& keys) override {
    for (size_t i = 0; i < keys.size; ++i) rows_.erase(KeyOf(keys, i));
    return Status::Ok();
  }

  Status Locate(const Keys& keys, Executor*, std::unique_ptr<LocatedRows>* located) const override {
    auto copies = std::make_unique<Copies>();
    for (size_t i = 0; i < keys.size; ++i) {
      const auto at = rows_.find(KeyOf(keys, i));
      if (at == rows_.end()) continue;
      copies->positions.push_back(static_cast<uint32_t>(i));
      copies->rows.push_back(at->second);
    }
    *located = std::move(copies);
    return Status::Ok();
  }

  Status Read(const Keys&, const LocatedRows& located, const RowLayout& layout, Executor*,
              std::vector<char>* rows) const override {
    on_read();
    for (const Row& row : static_cast<const Copies&>(located).rows) {
      ++rows_read;
      rows->resize(rows->size() + layout.stride());
      DE_RETURN_IF_ERROR(Convert(row, layout, rows->data() + rows->size() - layout.stride()));
    }
    return Status::Ok();
  }

  Status AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const override {
    for (size_t i = 0; i < keys.size; ++i) {
      const auto at = rows_.find(KeyOf(keys, i));
      newest[i] = at != rows_.end() &&
                  at->second.bytes == static_cast<const Copies&>(located).rows[i].bytes;
    }
    return Status::Ok();
  }

  Status LocateRange(uint64_t begin, uint64_t last, size_t most,
                     std::unique_ptr<LocatedRows>* located) const override {
    auto copies = std::make_unique<Copies>();
    copies->hash_begin = begin;
    copies->hash_last = last;
    for (auto at = rows_.lower_bound({begin, ""}); at != rows_.end(); ++at) {
      const uint64_t hash = at->first.first;
      if (hash > last) break;
      if (copies->rows.size() >= most && copies->keys.back().first != hash) {
        copies->hash_last = copies->keys.back().first;
        break;
      }
      copies->keys.push_back(at->first);
      copies->rows.push_back(at->second);
    }
    *located = std::move(copies);
    return Status::Ok();
  }

  Status ReadRange(const LocatedRows& located, const RowLayout& layout,
                   RowBatch* batch) const override {
    on_read();
    const auto& copies = static_cast<const Copies&>(located);
    RowBatchBuilder builder(layout, batch);
    batch->hash_begin = copies.hash_begin;
    batch->hash_last = copies.hash_last;
    for (size_t i = 0; i < copies.rows.size(); ++i) {
      const auto& [hash, text] = copies.keys[i];
      DE_RETURN_IF_ERROR(Convert(copies.rows[i], layout, builder.Add(UnMix64(hash))));
      if (layout.key_type() == KeyType::kString) builder.AddText(text);
    }
    builder.Finish();
    return Status::Ok();
  }

  Status Clear(const std::function<Status()>& others) override {
    DE_RETURN_IF_ERROR(others());
    rows_.clear();
    return Status::Ok();
  }

  void DropSlots(const std::string& owner) override {
    for (auto& [key, row] : rows_) {
      RowLayout narrower = row.layout;
      narrower.Remove(owner);
      std::string bytes(narrower.stride(), '\0');
      if (Convert(row, narrower, bytes.data()).ok()) row = {narrower, bytes};
    }
  }

  TierStats Stats() const override { return {}; }
  bool empty() const noexcept override { return rows_.empty(); }
  size_t size() const noexcept { return rows_.size(); }

 private:
  using Key = std::pair<uint64_t, std::string>;  // hash, and the bytes of a string key
  struct Row {
    RowLayout layout;
    std::string bytes;
  };

  struct Copies final : LocatedRows {
    std::vector<Key> keys;  ///< of a range
    std::vector<Row> rows;
  };

  static Key KeyOf(uint64_t word, const std::string_view* text) {
    return {Mix64(word), text == nullptr ? std::string() : std::string(*text)};
  }
  static Key KeyOf(const Keys& keys, size_t i) {
    return KeyOf(WordOf(keys, i), keys.strings == nullptr ? nullptr : keys.strings + i);
  }
  static Status Convert(const Row& row, const RowLayout& layout, char* to) {
    RowConverter converter;
    DE_RETURN_IF_ERROR(RowConverter::Create(row.layout, layout, /*slots=*/true, &converter));
    converter.Convert(row.bytes.data(), to);
    return Status::Ok();
  }

  std::map<Key, Row> rows_;
  std::vector<const RowBatch*> staged_;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_MAP_ROWS_H_
