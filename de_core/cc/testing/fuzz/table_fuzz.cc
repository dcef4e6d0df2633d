// Fuzz target: a table and a std::unordered_map execute the same verbs, chosen by the input, and
// must agree after each. The input's first bytes choose the SIMD level, key type, dtype, dim and
// the keys' collisions.
//
// With libFuzzer: clang++ -std=c++17 -g -O1 -ffp-contract=off -fsanitize=fuzzer,address,undefined
// -DDE_LIBFUZZER -I. this file and all .cc of de_core/cc/engine. Without -DDE_LIBFUZZER and
// -fsanitize=fuzzer, the program runs the given files or generated inputs.
#include <iterator>
#include <unordered_set>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/forced_level.h"
#include "de_core/cc/testing/fuzz/fuzz_main.h"
#include "de_core/cc/testing/fuzz/table_fuzz_chain.h"
#include "de_core/cc/testing/fuzz/table_fuzz_input.h"
#include "de_core/cc/testing/table_oracle.h"
#include "de_core/cc/testing/tier/equal_hashes.h"

namespace de::engine {
namespace {

using testing::BytesOf;
using testing::Input;
using testing::Strings;
using testing::TableOracle;

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "table and map disagree: %s\n", what);
  std::abort();
}

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size),
        level_(static_cast<SimdLevel>(input_.Below(3))),
        options_(testing::OptionsFrom(&input_)),
        oracle_(options_) {
    pool_ = (const uint32_t[]){10, 400, 5000, 30000}[input_.Below(4)];
    collisions_ = input_.Below(6);
    const size_t threads = (const size_t[]){1, 1, 2, 3, 6}[input_.Below(5)];
    if (threads > 1) executor_ = std::make_unique<Backwards>(threads);
    table_ = Made();
  }

  void All() {
    for (int steps = 0; !input_.empty() && steps < 60; ++steps) {
      Step();
      Check(table_->size() == oracle_.rows().size(), "size");
    }
    ExpectAll();
  }

 private:
  std::unique_ptr<Table> Made() const {
    std::unique_ptr<Table> table;
    Ok(Table::Create(options_, &table));
    return table;
  }

  static void Ok(const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message.c_str());
    Check(status.ok(), "a verb failed");
  }

  void Step() {
    switch (input_.Below(16)) {
      case 0:
      case 1:
      case 2:
        return Insert();
      case 3:
      case 4:
        return Find();
      case 5:
      case 6:
        return Erase();
      case 7:
        return FindOrInsert();
      case 8:
        return Accumulate();
      case 9:
        return Apply();
      case 10:
        return EraseIf();
      case 11:
        return ExportWhileChanging();
      case 12:
        return Ok(table_->ShrinkToFit());
      case 13:
        return Ok(table_->Reserve(input_.Below(4) * 3000));
      case 14:
        return Reload();
      default:
        break;
    }
    if (input_.Below(4) != 0) return Insert();
    Ok(table_->Clear());
    oracle_.rows().clear();
  }

  /// Draws the keys of a batch into ints_, texts_ and views_.
  Keys Batch() {
    std::mt19937 random = input_.Random();
    const uint32_t rarely = input_.Below(32);
    uint32_t most = (const uint32_t[]){3, 40, 40, 300}[random() % 4];
    // a batch of this size is divided among several threads
    if (rarely == 1 || (rarely < 12 && collisions_ == 4)) most = 9000;
    const size_t count = random() % (most + 1);
    ints_.resize(count);
    texts_.resize(options_.key_type == KeyType::kString ? count : 0);
    for (size_t i = 0; i < count; ++i) {
      ints_[i] = testing::KeyNumber(collisions_, random() % pool_);
      if (!texts_.empty()) texts_[i] = TextOf(ints_[i]);
    }
    views_.assign(texts_.begin(), texts_.end());
    const bool strings = options_.key_type == KeyType::kString;
    return {strings ? nullptr : ints_.data(), strings ? views_.data() : nullptr, count};
  }

  std::string TextOf(int64_t n) const {
    if (n == -5) return "";
    if (collisions_ == 5) return testing::TextOfGroup(Mix64(static_cast<uint64_t>(n)) % 500, 7);
    std::string text = n % 7 == 0 ? std::string(2, '\0') : std::string();
    text += std::to_string(n);
    if (n % 5 == 0) text += std::string(static_cast<size_t>(n & 127), 'x');
    return text;
  }

  testing::DrawnRows RowsFor(const Keys& keys) {
    return testing::DrawRows(options_, keys.size, input_.Random());
  }

  void Insert() {
    const Keys keys = Batch();
    const testing::DrawnRows in = RowsFor(keys);
    Ok(table_->InsertOrAssign(keys, in.values(), executor_.get()));
    for (size_t i = 0; i < keys.size; ++i) oracle_.Assign(keys, i, in.rows[i]);
  }

  void Accumulate() {
    const Keys keys = Batch();
    const bool with_old = input_.Below(2) == 1;
    const testing::DrawnRows in = RowsFor(keys), old = RowsFor(keys);
    const DType dtype = options_.value_dtype;
    // 16-bit sums are rounded, so the table and the map could differ
    if (dtype == DType::kHalf || dtype == DType::kBFloat16) return;
    const Status status = table_->AccumOrAssign(
        keys, in.packed.data(), with_old ? old.packed.data() : nullptr, executor_.get());
    const bool numeric = dtype != DType::kString && dtype != DType::kBool;
    Check(status.ok() == numeric, "which dtypes add");
    for (size_t i = 0; numeric && i < keys.size; ++i) {
      oracle_.Accumulate(keys, i, in.rows[i], with_old ? &old.rows[i] : nullptr);
    }
  }

  void Erase() {
    const Keys keys = Batch();
    Ok(table_->Erase(keys, executor_.get()));
    for (size_t i = 0; i < keys.size; ++i) oracle_.rows().erase(TableOracle::KeyOf(keys, i));
  }

  void EraseIf() {
    const uint64_t divisor = 2 + input_.Below(5);
    uint64_t erased = 0, expected = 0;
    const auto doomed = [&](uint64_t word) { return Mix64(word + 1) % divisor == 0; };
    Ok(table_->EraseIf([&](uint64_t word, const char*) { return doomed(word); }, &erased));
    for (auto at = oracle_.rows().begin(); at != oracle_.rows().end();) {
      const bool strings = options_.key_type == KeyType::kString;
      const bool dies =
          doomed(strings ? HashBytes(at->first) : testing::ValueOf<uint64_t>(at->first));
      expected += dies;
      at = dies ? oracle_.rows().erase(at) : std::next(at);
    }
    Check(erased == expected, "how many rows EraseIf erased");
  }

  /// Reads a batch by `verb`, and compares the values and `found` with the expected ones.
  template <typename Verb>
  void Read(const Keys& keys, const std::vector<bool>& there, const Verb& verb) {
    const size_t width = SizeOf(options_.value_dtype);
    const size_t elements = keys.size * options_.dim;
    std::vector<uint64_t> out(elements * width / 8 + 1, 0x5555555555555555ULL);
    Strings sink(elements);
    const auto found = std::make_unique<bool[]>(keys.size + 1);
    const bool strings = options_.value_dtype == DType::kString;
    char* const bytes = reinterpret_cast<char*>(out.data());
    Ok(verb(ValuesOut{strings ? nullptr : bytes, strings ? &sink : nullptr}, found.get()));
    for (size_t i = 0; i < keys.size; ++i) {
      Check(found[i] == there[i], "found");
      const std::vector<std::string> row = oracle_.Read(keys, i);
      for (size_t c = 0; c < options_.dim; ++c) {
        const size_t at = i * options_.dim + c;
        Check(row[c] == (strings ? sink.got[at] : std::string(bytes + at * width, width)), "value");
      }
    }
  }

  void Find() {
    const Keys keys = Batch();
    std::vector<bool> there(keys.size);
    for (size_t i = 0; i < keys.size; ++i) {
      there[i] = oracle_.rows().count(TableOracle::KeyOf(keys, i)) > 0;
    }
    const TableStats before = table_->Stats();
    Read(keys, there, [&](const ValuesOut& out, bool* found) {
      return table_->Find(keys, out, found, executor_.get());
    });
    const TableStats after = table_->Stats();
    const auto hits = static_cast<uint64_t>(std::count(there.begin(), there.end(), true));
    Check(after.hits - before.hits == hits, "hits");
    Check(after.misses - before.misses == keys.size - hits, "misses");
    const auto flags = std::make_unique<bool[]>(keys.size + 1);
    Ok(table_->Find(keys, {}, flags.get(), executor_.get()));
    Check(std::equal(there.begin(), there.end(), flags.get()), "Contains");
  }

  void FindOrInsert() {
    const Keys keys = Batch();
    std::vector<bool> there(keys.size);
    for (size_t i = 0; i < keys.size; ++i) {
      there[i] = oracle_.rows().count(TableOracle::KeyOf(keys, i)) > 0;
      oracle_.FindOrInsert(keys, i);
    }
    Read(keys, there, [&](const ValuesOut& out, bool* found) {
      return table_->FindOrInsert(keys, out, found, executor_.get());
    });
  }

  void Apply() {
    const Keys keys = Batch();
    std::mt19937 random = input_.Random();
    std::vector<float> grads(keys.size * options_.dim + 1);
    for (float& g : grads) g = static_cast<float>(static_cast<int>(random() % 64) - 32);
    const DType dtype = options_.value_dtype;
    if (IsFloating(dtype) && dtype != DType::kFloat32) return;
    const Status status = table_->Apply(*FindRule("momentum"), "sgd", {0.5, 0.5, 0}, keys,
                                        grads.data(), executor_.get());
    if (dtype != DType::kFloat32) return Check(!status.ok(), "Apply to integers");
    Ok(status);
    oracle_.AddMomentumSlot();
    std::unordered_map<std::string, std::pair<size_t, std::vector<float>>> sums;
    for (size_t i = 0; i < keys.size; ++i) {
      auto& [first, sum] =
          sums.try_emplace(TableOracle::KeyOf(keys, i), i, std::vector<float>(options_.dim))
              .first->second;
      for (size_t c = 0; c < options_.dim; ++c) sum[c] += grads[i * options_.dim + c];
    }
    for (const auto& [key, sum] : sums) oracle_.Momentum(keys, sum.first, sum.second, 0.5F, 0.5F);
  }

  /// Calls visit(batch, layout) for all rows of the table.
  template <typename Visit>
  void Export(const Visit& visit) const {
    RowBatch batch;
    uint64_t next = 0;
    for (ExportCursor cursor; !cursor.done;) {
      Ok(table_->ExportBatch(&cursor, &batch));
      Check(batch.hash_begin == next, "where a batch begins");
      next = batch.hash_last + 1;
      for (const uint64_t word : batch.words) {
        const uint64_t hash = Mix64(word);
        Check(hash >= batch.hash_begin && hash <= batch.hash_last, "range of a batch");
      }
      visit(batch, table_->layout());
    }
    Check(next == 0, "where the last batch ends");
  }

  static std::string KeyOf(const RowBatch& batch, size_t i) {
    return batch.keys.empty() ? BytesOf(batch.words[i]) : std::string(batch.keys[i]);
  }

  /// Runs other verbs between the batches of an export. The export must visit all rows that exist
  /// from its start to its end.
  void ExportWhileChanging() {
    if (exporting_) return;
    exporting_ = true;
    std::unordered_map<std::string, bool> visited;  // keys that exist throughout
    for (const auto& [key, row] : oracle_.rows()) visited[key] = false;
    std::unordered_set<std::string> exported;
    Export([&](const RowBatch& batch, const RowLayout&) {
      for (size_t i = 0; i < batch.size(); ++i) {
        const std::string key = KeyOf(batch, i);
        Check(exported.insert(key).second, "a row exported twice");
        if (visited.count(key) > 0) visited[key] = true;
      }
      if (batch.size() == 0 || input_.Below(2) == 0) return;
      Step();
      for (auto at = visited.begin(); at != visited.end();) {
        at = oracle_.rows().count(at->first) == 0 ? visited.erase(at) : std::next(at);
      }
    });
    for (const auto& [key, seen] : visited)
      Check(seen, "a row that existed throughout was not exported");
    exporting_ = false;
  }

  /// Exports and compares every row, slots included.
  void ExpectAll() {
    size_t rows = 0;
    Export([&](const RowBatch& batch, const RowLayout& layout) {
      const size_t width = SizeOf(options_.value_dtype);
      const RowSlot* slot = layout.FindSlot("sgd", "momentum");
      Check((slot != nullptr) == oracle_.has_momentum(), "slots");
      for (size_t i = 0; i < batch.size(); ++i, ++rows) {
        const auto at = oracle_.rows().find(KeyOf(batch, i));
        Check(at != oracle_.rows().end(), "an exported key");
        const char* const row = batch.rows.data() + i * layout.stride();
        for (size_t c = 0; c < options_.dim; ++c) {
          const std::string value = batch.values.empty()
                                        ? std::string(row + c * width, width)
                                        : std::string(batch.values[i * options_.dim + c]);
          Check(value == at->second.values[c], "an exported value");
          if (slot == nullptr) continue;
          Check(std::string(row + slot->offset + 4 * c, 4) == at->second.momentum[c],
                "an exported slot");
        }
      }
    });
    Check(rows == oracle_.rows().size(), "number of exported rows");
    Check(table_->Stats().rows == rows, "rows in the statistics");
  }

  /// Saves the table or its changes, and continues with a table restored from the files.
  void SaveAndRestore() {
    if (exporting_) return;
    const bool delta = input_.Below(4) != 0;
    const bool consistent = input_.Below(2) == 0;
    std::unique_ptr<Table> fresh = Made();
    Ok(chain_.Save(table_.get(), delta, consistent));
    Ok(chain_.Restore(fresh.get(), executor_.get()));
    table_ = std::move(fresh);
  }

  /// Copies all rows to a new table with LoadRows, as a restore does.
  void Reload() {
    if (exporting_) return;
    if (input_.Below(4) != 0) return SaveAndRestore();
    chain_ = {};
    std::unique_ptr<Table> fresh = Made();
    if (oracle_.has_momentum()) {
      Ok(fresh->EnsureSlots("sgd", {{"momentum", DType::kFloat32, options_.dim, 0}}));
    }
    Export([&](const RowBatch& batch, const RowLayout& layout) {
      const std::vector<int64_t> ints(batch.words.begin(), batch.words.end());
      const bool strings = options_.key_type == KeyType::kString;
      const Keys keys{strings ? nullptr : ints.data(), strings ? batch.keys.data() : nullptr,
                      batch.size()};
      const bool texts = options_.value_dtype == DType::kString;
      Ok(fresh->LoadRows(layout, keys, {batch.rows.data(), texts ? batch.values.data() : nullptr},
                         executor_.get()));
    });
    table_ = std::move(fresh);
  }

  Input input_;
  ForcedLevel level_;  // destroyed after the table
  TableOptions options_;
  TableOracle oracle_;
  std::unique_ptr<Table> table_;
  testing::SavedChain chain_;
  uint32_t pool_ = 0, collisions_ = 0;
  bool exporting_ = false;
  std::unique_ptr<Executor> executor_;
  std::vector<int64_t> ints_;
  std::vector<std::string> texts_;
  std::vector<std::string_view> views_;
};

}  // namespace
}  // namespace de::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  de::engine::Run(data, size).All();
  return 0;
}

#if !defined(DE_LIBFUZZER)
int main(int argc, char** argv) {
  return de::engine::testing::FuzzMain(argc, argv, [](std::mt19937_64* random, size_t) {
    std::string bytes(10 + (*random)() % 190, '\0');
    for (char& byte : bytes) byte = static_cast<char>((*random)());
    return bytes;
  });
}
#endif
