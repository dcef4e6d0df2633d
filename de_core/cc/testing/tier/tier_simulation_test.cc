// A tiered table on a simulated disk, beside a std::unordered_map with the same rows. The disk and
// the memory fail as a seed says. Each row that is read must be right, or the error must name the
// file. One thread, no clock and no random number of the system: a seed always gives the same run.
//
//   DE_SIM_FIRST=0 DE_SIM_SEEDS=1000 tier_simulation_test     # `make test-all` runs 1,500
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <tuple>
#include <unordered_map>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/engine/save/table_save.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/string_sink.h"
#include "de_core/cc/testing/tier/equal_hashes.h"
#include "de_core/cc/testing/tier/simulated_disk.h"

namespace {
uint64_t g_random_words = 0;  // the linker replaces the random words and the clock of the system
}  // namespace

// NOLINTBEGIN: names that the linker gives
extern "C" ssize_t __wrap_getrandom(void* to, size_t bytes, unsigned) {
  const uint64_t word = de::engine::Mix64(++g_random_words);
  std::memcpy(to, &word, std::min(bytes, sizeof(word)));
  return static_cast<ssize_t>(bytes);
}
extern "C" int64_t __wrap__ZNSt6chrono3_V212system_clock3nowEv() { return 1; }
// NOLINTEND

namespace de::engine {
namespace {

using testing::Fault;
using testing::Faults;
using testing::SimulatedDisk;

constexpr size_t kUniverse = 500;
constexpr char kOwner[] = "o";
constexpr float kFirstSlot = 0.5F;  // initial value of the slot

/// The permitted states of a key's row.
struct Row {
  bool exists = false;
  float value = 0;
  int64_t score = 0;
  float slot = kFirstSlot;
  bool is_trained = false;  ///< by "sgd"
  float average = 0;        ///< the value after the last step of "sgd"
  bool operator==(const Row& other) const {
    const auto all = [](const Row& row) {
      return std::tie(row.value, row.score, row.slot, row.is_trained, row.average);
    };
    return exists == other.exists && (!exists || all(*this) == all(other));
  }
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        has_texts_(seed % 2 == 1),
        is_honest_(seed / 2 % 2 == 0),
        memory_fails_(seed / 4 % 2 == 1),
        dim_(1 + random_() % 12) {
    g_random_words = seed << 32;
    for (size_t i = 0; i < kUniverse; ++i) {
      ints_.push_back(static_cast<int64_t>(i * 7919) - 999);
      texts_.push_back(TextOf(i));
      rows_.emplace(texts_.back(), std::vector<Row>(1));
    }
    TableOptions options;
    options.key_type = has_texts_ ? KeyType::kString : KeyType::kInt64;
    options.dim = dim_;
    options.policy.columns[static_cast<size_t>(RowColumn::kScore)] = true;
    disk_ = std::make_shared<SimulatedDisk>(random_());
    disk_->on_read = disk_->on_write = [this] {
      ++uses_;
      used_locked_ += table_ != nullptr && static_cast<TieredTable&>(*table_).is_locked();
    };
    std::unique_ptr<DiskRows> cold;
    DiskOptions disk_options;
    disk_options.directory = "sim";
    disk_options.segment_bytes = uint64_t{8192} << random_() % 3;
    disk_options.own_thread = false;
    EXPECT_TRUE(DiskRows::Create(disk_options, disk_, options.key_type, &cold).ok());
    const uint64_t memory = 3000 + random_() % 8000;
    EXPECT_TRUE(TieredTable::Create(options, memory, std::move(cold), &table_).ok());
  }

  void Run(size_t steps) {
    for (step_ = 0; step_ < steps && !::testing::Test::HasFailure(); ++step_) {
      ChooseFaults();
      Step();
      disk_->faults = {};
      is_calm_ = is_honest_;
      if (is_honest_ || random_() % 4 == 0) disk_->capacity = ~size_t{0};
      CheckSize();
      if (step_ % 8 == 0) LookUp(Some(12));
    }
    LookUp(Some(kUniverse));
    EXPECT_EQ(used_locked_, 0U) << "the disk was used while the table was locked";
  }

  uint64_t digest() const { return digest_; }
  size_t right() const { return right_; }
  size_t errors() const { return errors_; }
  size_t uses() const { return uses_; }

 private:
  using Batch = std::vector<size_t>;  // numbers of distinct keys

  /// Texts 4 n + 2 and 4 n + 3 have the same hash. Some texts are long.
  static std::string TextOf(size_t i) {
    if (i % 4 < 2) return "key " + std::to_string(i) + std::string(i % 16 == 0 ? 200 : 0, 'k');
    return testing::TextOfGroup(i, i / 4);
  }

  Batch Some(size_t most) {
    std::set<size_t> chosen;
    const size_t count = 1 + random_() % most, range = random_() % 3 == 0 ? 60 : kUniverse;
    for (size_t i = 0; i < count; ++i) chosen.insert(random_() % range);
    return {chosen.begin(), chosen.end()};
  }
  Keys KeysOf(const Batch& batch) {
    batch_ints_.clear();
    batch_texts_.clear();
    for (const size_t i : batch) {
      batch_ints_.push_back(ints_[i]);
      batch_texts_.push_back(texts_[i]);
    }
    return {has_texts_ ? nullptr : batch_ints_.data(), has_texts_ ? batch_texts_.data() : nullptr,
            batch.size()};
  }
  std::vector<Row>& Of(size_t i) { return rows_.at(texts_[i]); }

  void ChooseFaults() {
    is_calm_ = false;
    const auto chance = [&](unsigned most) {
      return random_() % 3 == 0 ? static_cast<unsigned>(random_() % most) : 0U;
    };
    disk_->faults.create_error = chance(300);
    disk_->faults.write_error = chance(400);
    disk_->faults.part_error = chance(400);
    disk_->faults.read_error = chance(100);
    if (random_() % 10 == 0) disk_->capacity = random_() % (1 << 18);
    if (is_honest_) return;
    disk_->faults.lost = chance(20);
    disk_->faults.torn = chance(20);
    disk_->faults.delayed = chance(40);
    disk_->faults.misdirected = chance(20);
    disk_->faults.flipped = chance(40);
    disk_->faults.misread = chance(40);
  }

  /// Runs a verb while memory may run out. Its error must name a file, or say that memory ran out.
  Status Try(const std::function<Status()>& verb) {
    const bool fails = memory_fails_ && random_() % 3 == 0;
    const auto fault = random_() % 2 == 0 ? Fault::kOnce : Fault::kForGood;
    const auto nth = static_cast<int64_t>(1 + random_() % (random_() % 2 == 0 ? 20 : 300));
    Status status;
    try {
      if (fails) Faults::Arm(fault, nth);
      status = verb();
      Faults::Disarm();
    } catch (const std::exception& error) {
      Faults::Disarm();
      ADD_FAILURE() << Where() << "a verb threw " << error.what();
    }
    const bool no_memory = fails && Faults::fired;
    if (!status.ok()) {
      ++errors_;
      const bool names_file = status.message.find("sim/rows-") != std::string::npos;
      EXPECT_TRUE(no_memory || (names_file && !is_calm_)) << Where() << status.message;
    }
    digest_ = Mix64(digest_ ^ (status.ok() ? 1 : HashBytes(status.message)));
    return status;
  }

  /// Runs a verb that changes the rows of `batch`: change(old row) is the new row. With
  /// `may_be_initial`, a verb that fails may insert an initial row.
  template <typename Change>
  void Write(const Batch& batch, const std::function<Status()>& verb, const Change& change,
             bool may_be_initial = false) {
    const bool ok = Try(verb).ok();
    for (const size_t i : batch) {
      std::vector<Row> after;
      if (!ok) after = Of(i);
      Row initial;
      initial.exists = true;
      for (const Row& row : Of(i)) {
        AddTo(&after, change(row));
        if (!ok && may_be_initial && !row.exists) AddTo(&after, initial);
      }
      Of(i) = std::move(after);
    }
  }
  static void AddTo(std::vector<Row>* rows, const Row& row) {
    if (std::find(rows->begin(), rows->end(), row) == rows->end()) rows->push_back(row);
  }

  /// Keeps those rows for which is_so(row) holds: at least one.
  template <typename IsSo>
  void Narrow(size_t i, const char* verb, const IsSo& is_so) {
    std::vector<Row> kept;
    for (const Row& row : Of(i)) {
      if (is_so(row)) kept.push_back(row);
    }
    ASSERT_FALSE(kept.empty()) << Where() << verb << " returns a wrong row of key " << i
                               << ", which should be " << Of(i)[0].exists << " " << Of(i)[0].value;
    Of(i) = std::move(kept);
    ++right_;
  }

  void LookUp(const Batch& batch) {
    const Keys keys = KeysOf(batch);
    std::vector<float> values(batch.size() * dim_, -1);
    const auto found = std::make_unique<bool[]>(batch.size());
    const Status status =
        Try([&] { return table_->FindToTrain(keys, RowsTo(&values), found.get(), nullptr); });
    if (!status.ok()) {  // one row of the batch may be lost, but not the others
      if (batch.size() == 1) return;
      for (const size_t i : batch) LookUp({i});
      return;
    }
    for (size_t j = 0; j < batch.size(); ++j) {
      for (size_t c = 1; c < dim_; ++c)
        EXPECT_EQ(values[j * dim_ + c], values[j * dim_]) << Where();
      Narrow(batch[j], "a lookup", [&](const Row& row) {
        return row.exists == found[j] && (!row.exists || row.value == values[j * dim_]);
      });
    }
  }

  void CheckSize() {
    size_t least = 0, most = 0;
    for (size_t i = 0; i < kUniverse; ++i) {
      const auto exists = [](const Row& row) { return row.exists; };
      least += std::all_of(Of(i).begin(), Of(i).end(), exists);
      most += std::any_of(Of(i).begin(), Of(i).end(), exists);
    }
    EXPECT_GE(table_->size(), least) << Where();
    EXPECT_LE(table_->size(), most) << Where();
  }

  std::string Where() const {
    return "step " + std::to_string(step_) + ", verb " + std::to_string(verb_) + ": ";
  }

  Batch All() const {
    Batch all(kUniverse);
    for (size_t i = 0; i < kUniverse; ++i) all[i] = i;
    return all;
  }

  void Step();
  void ReadSlots(const Batch& batch);
  void Export();
  void SaveAndRestore();

  std::mt19937_64 random_;
  const bool has_texts_, is_honest_, memory_fails_;
  const size_t dim_;
  std::vector<int64_t> ints_, batch_ints_;
  std::vector<std::string> texts_;
  std::vector<std::string_view> batch_texts_;
  std::unordered_map<std::string, std::vector<Row>> rows_;  ///< by text, what each row may be
  std::shared_ptr<SimulatedDisk> disk_;
  std::unique_ptr<TableBackend> table_;
  bool is_calm_ = true;  ///< no row may be lost: the disk reported all of its faults
  size_t step_ = 0, verb_ = 0, right_ = 0, errors_ = 0, uses_ = 0, used_locked_ = 0;
  uint64_t digest_ = 0;
};

void Simulation::Step() {
  const Batch batch = Some(40);
  const Keys keys = KeysOf(batch);
  const float value = static_cast<float>(random_() % 1000);
  const auto score = static_cast<int64_t>(random_() % 100);
  const std::vector<float> values(batch.size() * dim_, value), slots(batch.size(), value);
  const std::vector<int64_t> scores(batch.size(), score);
  std::vector<float> out(batch.size() * dim_);
  const auto written = [](Row row, float to) {
    if (!row.exists) row = Row();
    row.exists = true;
    row.value = to;
    return row;
  };
  const Values rows = RowsIn(values);
  const std::vector<SlotSpec> specs = {{"m", DType::kFloat32, 1, kFirstSlot}};
  verb_ = random_() % 18;
  switch (verb_) {
    case 0:
    case 1:
    case 2:
    case 3:
      return Write(
          batch, [&] { return table_->InsertOrAssign(keys, rows, nullptr); },
          [&](const Row& row) { return written(row, value); });
    case 4:
      return Write(
          batch, [&] { return table_->AccumOrAssign(keys, values.data(), nullptr, nullptr); },
          [&](const Row& row) { return written(row, row.exists ? row.value + value : value); });
    case 5: {
      const std::vector<double> hyper = {1.0};
      const double momentum = 0;  // so the average is the last value
      return Write(
          batch,
          [&] {
            return table_->Apply(*FindRule("sgd"), "sgd", hyper, keys, values.data(), nullptr,
                                 &momentum);
          },
          [&](const Row& row) {
            Row after = written(row, (row.exists ? row.value : 0) - value);
            after.is_trained = true;
            after.average = after.value;
            return after;
          },
          /*may_be_initial=*/true);
    }
    case 6:
      return Write(
          batch, [&] { return table_->FindOrInsert(keys, RowsTo(&out), nullptr, nullptr); },
          [&](const Row& row) { return row.exists ? row : written(row, 0); });
    case 7:
      return Write(
          batch, [&] { return table_->Erase(keys, nullptr); }, [](const Row&) { return Row(); });
    case 8:
      return Write(
          batch, [&] { return WriteColumn(*table_, RowColumn::kScore, keys, scores.data()); },
          [&](Row row) {
            row.score = score;
            return row;
          });
    case 9: {
      if (!Try([&] { return table_->EnsureSlots(kOwner, specs); }).ok()) return;
      return Write(
          batch,
          [&] {
            return table_->AssignSlot(kOwner, "m", sizeof(float), keys,
                                      reinterpret_cast<const char*>(slots.data()));
          },
          [&](Row row) {
            row.slot = value;
            return row;
          });
    }
    case 10:
      if (random_() % 4 != 0) return ReadSlots(batch);
      return Write(
          All(), [&] { return table_->DropSlots(kOwner); },
          [](Row row) {
            row.slot = kFirstSlot;
            return row;
          });
    case 11:
      if (random_() % 6 != 0) return LookUp(batch);
      return Write(All(), [&] { return table_->Clear(); }, [](const Row&) { return Row(); });
    case 12: {
      uint64_t evicted = 0;
      const RowRank least{RankOf(score / 8), 0};
      return Write(
          All(), [&] { return table_->EvictBelow(RowColumn::kScore, least, &evicted); },
          [&](const Row& row) { return row.score < score / 8 ? Row() : row; });
    }
    case 13:
      return Write(batch, [&] { return table_->Touch(keys); }, [](const Row& row) { return row; });
    case 14:
      return Write(
          All(), [&] { return table_->TakeAverages("sgd"); },
          [](Row row) {
            if (row.is_trained) row.value = row.average;
            return row;
          });
    case 15:
      return Export();
    case 16:
      return random_() % 3 == 0 ? SaveAndRestore() : LookUp(batch);
    default:
      LookUp(batch);
  }
}

void Simulation::ReadSlots(const Batch& batch) {
  const Keys keys = KeysOf(batch);
  std::vector<int64_t> scores(batch.size());
  const auto found = std::make_unique<bool[]>(batch.size());
  if (!Try([&] {
         return ReadColumn(*table_, RowColumn::kScore, keys, scores.data(), found.get());
       }).ok()) {
    return;
  }
  for (size_t j = 0; j < batch.size(); ++j) {
    Narrow(batch[j], "ReadColumn", [&](const Row& row) {
      return row.exists == found[j] && (!row.exists || row.score == scores[j]);
    });
  }
  std::vector<float> slots(batch.size());
  if (!table_->layout().HasOwner(kOwner)) return;
  if (!Try([&] {
         return table_->FindSlot(kOwner, "m", sizeof(float), keys,
                                 reinterpret_cast<char*>(slots.data()), found.get());
       }).ok()) {
    return;
  }
  for (size_t j = 0; j < batch.size(); ++j) {
    Narrow(batch[j], "FindSlot", [&](const Row& row) {
      return row.exists == found[j] && (!row.exists || row.slot == slots[j]);
    });
  }
}

void Simulation::Export() {
  std::unordered_map<std::string, float> exported;
  const auto key_of = [&](const RowBatch& batch, size_t i) {
    if (has_texts_) return std::string(batch.keys[i]);
    const auto number = static_cast<int64_t>(batch.words[i]);
    return texts_[static_cast<size_t>((number + 999) / 7919)];
  };
  RowBatch batch;
  for (ExportCursor cursor; !cursor.done;) {
    if (!Try([&] { return table_->ExportBatch(&cursor, &batch); }).ok()) return;
    for (size_t i = 0; i < batch.size(); ++i) {
      float value = 0;
      std::memcpy(&value, batch.rows.data() + i * batch.layout.stride(), sizeof(value));
      EXPECT_TRUE(exported.emplace(key_of(batch, i), value).second) << Where() << "exported twice";
    }
  }
  for (size_t i = 0; i < kUniverse; ++i) {
    const auto at = exported.find(texts_[i]);
    Narrow(i, "an export", [&](const Row& row) {
      return row.exists == (at != exported.end()) && (!row.exists || row.value == at->second);
    });
  }
}

void Simulation::SaveAndRestore() {
  StringSink sink;
  const Status saved = Try([&]() -> Status {
    std::unique_ptr<TableSave> save;
    DE_RETURN_IF_ERROR(TableSave::Begin(table_.get(), {}, &save));
    return save->Write(&sink, nullptr);
  });
  if (!saved.ok()) return;
  const std::vector<std::string> files = {sink.bytes()};
  const testing::Readers readers(files);
  RestoreReport report;
  const bool ok =
      Try([&] { return RestoreTable(table_.get(), readers.all, {}, nullptr, &report); }).ok();
  for (size_t i = 0; !ok && i < kUniverse; ++i) AddTo(&Of(i), Row());
}

size_t Setting(const char* name, size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(TierSimulationTest, EachReadIsRightOrNamesTheFile) {
  const size_t first = Setting("DE_SIM_FIRST", 0),
               count = Setting("DE_SIM_SEEDS", kSanitized ? 10 : 300);
  size_t right = 0, errors = 0, uses = 0;
  for (size_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    simulation.Run(150);
    right += simulation.right();
    errors += simulation.errors();
    uses += simulation.uses();
  }
  std::printf("%zu seeds: %zu right rows, %zu errors, %zu uses of the disk\n", count, right, errors,
              uses);
  EXPECT_GT(right, count * 100);
  EXPECT_GT(uses, count * 10);
}

TEST(TierSimulationTest, ASeedAlwaysGivesTheSameRun) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    uint64_t digests[2];
    for (uint64_t& digest : digests) {
      Simulation simulation(seed);
      simulation.Run(60);
      digest = simulation.digest();
    }
    EXPECT_EQ(digests[0], digests[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace de::engine
