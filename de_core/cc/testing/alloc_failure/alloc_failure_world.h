// A table with known rows for the sweeps of alloc_failure.h, and the allowed states of its rows
// after a verb that ran out of memory.
#ifndef DE_CORE_TESTING_ALLOC_FAILURE_WORLD_H_
#define DE_CORE_TESTING_ALLOC_FAILURE_WORLD_H_

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/alloc_failure/alloc_failure.h"
#include "de_core/cc/testing/batches.h"

namespace de::engine::testing {

/// The state of a row as one bit: kAbsent, or the number of times that the batch was written or
/// added to the row. A set of states is a sum of bits.
inline constexpr uint32_t kAbsent = 1, k0 = 2, k1 = 4, k2 = 8, k3 = 16;

/// Allowed states of rows: of keys outside the batch, of the batch's keys that had a row, and of
/// the batch's keys that had none.
struct Allowed {
  uint32_t others = k0;
  uint32_t old = k0;
  uint32_t fresh = kAbsent;
};

/// Kinds of tables.
struct WorldKind {
  const char* name;
  KeyType key_type;
  DType value_dtype;
  size_t dim;
  const char* policy;  ///< in the format of ParseRowPolicy
};

inline constexpr WorldKind kKinds[] = {
    {"int64", KeyType::kInt64, DType::kFloat32, 16, ""},
    {"string keys", KeyType::kString, DType::kFloat32, 4, ""},
    {"string keys and values", KeyType::kString, DType::kString, 2, ""},
};

class World {
 public:
  /// Creates a table in which the first `old` keys have a row. The batch contains the last 2/5 of
  /// these keys, new keys, and some of its keys a second time.
  World(const WorldKind& kind, size_t old) : kind_(kind), old_(old), first_(old - old * 2 / 5) {
    TableOptions options;
    options.key_type = kind.key_type;
    options.value_dtype = kind.value_dtype;
    options.dim = kind.dim;
    EXPECT_TRUE(ParseRowPolicy(kind.policy, &options.policy).ok());
    EXPECT_TRUE(Table::Create(options, &table).ok());
    for (size_t i = 0; i < old + old * 3 / 5; ++i) {
      ints_.push_back(static_cast<int64_t>(i * 0x9e3779b97f4a7c15ULL));
      names_.push_back("the key of number " + std::to_string(i));
    }
    for (const std::string& name : names_) views_.emplace_back(name);
    for (size_t i = first_; i < ints_.size(); ++i) batch_of_.push_back(i);
    for (size_t i = first_; i < first_ + 64; ++i) batch_of_.push_back(i);
    for (const size_t i : batch_of_) {
      batch_ints_.push_back(ints_[i]);
      batch_views_.push_back(views_[i]);
    }
    written_ = RowsOf(batch_of_, 1);
    added_.assign(batch_of_.size() * kind.dim, kStep);
    // Repeated keys add 0, so that each row changes once.
    for (size_t j = ints_.size() - first_; j < batch_of_.size(); ++j) {
      std::fill_n(added_.begin() + static_cast<std::ptrdiff_t>(j * kind.dim), kind.dim, 0.0F);
    }
    std::vector<size_t> all(old);
    for (size_t i = 0; i < old; ++i) all[i] = i;
    EXPECT_TRUE(table->InsertOrAssign(Some(0, old), RowsOf(all, 0).values(), nullptr).ok());
    if (!floats()) return;
    // Besides the slots whose contents are checked, add slots before and after them in the row.
    const auto ensure = [&](const char* owner) {
      EXPECT_TRUE(table->EnsureSlots(owner, {{"momentum", DType::kFloat32, kind.dim, 0}}).ok());
    };
    ensure("before");
    ensure("watched");
    ensure("behind");
    std::vector<float> slots(old * kind.dim);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = SlotOf(i / kind.dim);
    EXPECT_TRUE(table
                    ->AssignSlot("watched", "momentum", 4 * kind.dim, Some(0, old),
                                 reinterpret_cast<const char*>(slots.data()))
                    .ok());
  }

  bool floats() const { return kind_.value_dtype == DType::kFloat32; }
  size_t dim() const { return kind_.dim; }
  size_t old() const { return old_; }

  /// Returns keys [begin, end) of all keys: first the keys with a row, then the keys without.
  Keys Some(size_t begin, size_t end) const {
    return kind_.key_type == KeyType::kString ? Keys{nullptr, views_.data() + begin, end - begin}
                                              : Keys{ints_.data() + begin, nullptr, end - begin};
  }
  Keys all() const { return Some(0, ints_.size()); }
  Keys batch() const {
    return kind_.key_type == KeyType::kString ? KeysOf(batch_views_) : KeysOf(batch_ints_);
  }
  /// Returns rows for the batch. A row that was written to is in state k1.
  Values written() const { return written_.values(); }
  /// Returns the values that one update adds to the rows of the batch; shape (batch, dim). They are
  /// 0 for repeated keys. They also serve as gradients: an optimizer with learning rate -1 adds
  /// them.
  const float* added() const { return added_.data(); }

  /// Reads all keys. Returns a complaint about a row whose state is not allowed, or an empty
  /// string.
  std::string Check(const Allowed& allowed) const {
    Output out(this, all().size);
    const Status status = table->Find(all(), out.values(), out.found(), nullptr);
    if (!status.ok()) return "find afterwards: " + status.message;
    uint64_t present = 0;
    for (size_t i = 0; i < all().size; ++i) {
      present += out.found()[i];
      const uint32_t is = out.StateOf(i);
      const uint32_t may = i < first_ ? allowed.others : i < old_ ? allowed.old : allowed.fresh;
      if ((is & may) == 0) {
        return "row " + std::to_string(i) + " is " + std::to_string(is) + ", may be " +
               std::to_string(may);
      }
    }
    if (table->size() != present) {
      return "size() is " + std::to_string(table->size()) + ", rows found are " +
             std::to_string(present);
    }
    const std::string complaint = CheckExport(present);
    return complaint.empty() ? CheckSlots() : complaint;
  }

  /// Reads all keys from the table and returns the states of their rows.
  std::vector<uint32_t> States(const Table& of) const {
    Output out(this, all().size);
    std::vector<uint32_t> states(all().size);
    if (!of.Find(all(), out.values(), out.found(), nullptr).ok()) return {};
    for (size_t i = 0; i < states.size(); ++i) states[i] = out.StateOf(i);
    return states;
  }

  /// Returns an empty table of the same kind.
  std::unique_ptr<Table> Another() const {
    std::unique_ptr<Table> made;
    EXPECT_TRUE(Table::Create(table->options(), &made).ok());
    return made;
  }

  /// Receives the values of a batch. Set usually allocates nothing.
  class Output final : public ValueSink {
   public:
    Output(const World* world, size_t keys)
        : world_(world), found_(new bool[keys]()), floats_(keys * world->dim(), -1.0F) {
      texts_.resize(world->floats() ? 0 : keys * world->dim());
      for (std::string& text : texts_) text.reserve(64);
    }
    ValuesOut values() {
      if (world_->floats()) return RowsTo(&floats_);
      return {nullptr, this};
    }
    bool* found() const { return found_.get(); }
    void Set(size_t element, std::string_view bytes) override {
      texts_[element].assign(bytes.data(), bytes.size());
    }
    /// Returns the state of key i of all(). The batch must have been all().
    uint32_t StateOf(size_t i) const {
      const size_t dim = world_->dim();
      for (const auto& [times, state] : {std::pair{0, k0}, {1, k1}, {2, k2}, {3, k3}}) {
        bool based = true, bare = true;
        for (size_t c = 0; c < dim; ++c) {
          if (world_->floats()) {
            const float value = floats_[i * dim + c];
            const float sum = static_cast<float>(times) * kStep;
            based = based && value == World::BaseOf(i, c) + sum;
            bare = bare && value == sum;
          } else {
            based = based && texts_[i * dim + c] == World::TextOf(i, c, times);
            bare = bare && times == 0 && texts_[i * dim + c].empty();
          }
        }
        if (!found_[i]) return bare ? kAbsent : 0;
        if (based || (bare && i >= world_->old())) return state;
      }
      return 0;
    }

   private:
    const World* world_;
    std::unique_ptr<bool[]> found_;
    std::vector<float> floats_;
    std::vector<std::string> texts_;
  };

  std::unique_ptr<Table> table;

 private:
  static constexpr float kStep = 1 << 20;

  /// Rows of some keys, as they are after `times` writes.
  struct Rows {
    std::vector<float> floats;
    std::vector<std::string> texts;
    std::vector<std::string_view> views;
    Values values() const {
      if (views.empty()) return RowsIn(floats);
      return {nullptr, views.data()};
    }
  };
  Rows RowsOf(const std::vector<size_t>& numbers, int times) const {
    Rows rows;
    for (const size_t i : numbers) {
      for (size_t c = 0; c < dim(); ++c) {
        rows.floats.push_back(BaseOf(i, c) + static_cast<float>(times) * kStep);
        rows.texts.push_back(TextOf(i, c, times));
      }
    }
    if (!floats()) rows.views.assign(rows.texts.begin(), rows.texts.end());
    return rows;
  }

  static float BaseOf(size_t i, size_t c) { return static_cast<float>(1 + i * 16 + c); }
  static float SlotOf(size_t i) { return static_cast<float>(i + 7); }
  static std::string TextOf(size_t i, size_t c, int times) {
    return "row " + std::to_string(i) + "." + std::to_string(c) + " written" +
           std::string(static_cast<size_t>(times) * 9, '+');
  }

  std::string CheckExport(uint64_t present) const {
    uint64_t exported = 0;
    RowBatch rows;
    for (ExportCursor cursor; !cursor.done; exported += rows.size()) {
      const Status status = table->ExportBatch(&cursor, &rows);
      if (!status.ok()) return "export afterwards: " + status.message;
    }
    if (exported == present) return "";
    return "export visits " + std::to_string(exported) + " rows of " + std::to_string(present);
  }

  /// Checks the slots of rows that no verb writes to.
  std::string CheckSlots() const {
    if (!floats() || !table->layout().HasOwner("watched")) return "";
    std::vector<float> slots(first_ * dim());
    const std::unique_ptr<bool[]> found(new bool[first_]);
    const Status status = table->FindSlot("watched", "momentum", 4 * dim(), Some(0, first_),
                                          reinterpret_cast<char*>(slots.data()), found.get());
    if (!status.ok()) return "slots afterwards: " + status.message;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (found[i / dim()] && slots[i] != SlotOf(i / dim())) {
        return "the slot of row " + std::to_string(i / dim()) + " is " + std::to_string(slots[i]);
      }
    }
    return "";
  }

  WorldKind kind_;
  size_t old_, first_;
  std::vector<int64_t> ints_, batch_ints_;
  std::vector<std::string> names_;
  std::vector<std::string_view> views_, batch_views_;
  std::vector<size_t> batch_of_;
  Rows written_;
  std::vector<float> added_;
};

/// A verb of a table and its effect on rows.
struct Verb {
  std::string name;
  std::function<Status(World&, Executor*)> run;
  Allowed failed{};
  Allowed done{};
  std::function<void(World&)> prepare = {};  ///< called once before the sweep
  /// called after the verb succeeded; returns a complaint or an empty string
  std::function<std::string(const World&, int runs)> verify = {};
};

/// Sweeps a verb (see Sweep) in a new world: once on the caller's thread, and once in a larger
/// world on a pool of two threads.
inline void SweepVerb(const WorldKind& kind, const Verb& verb) {
  for (const size_t threads : {size_t{0}, size_t{2}}) {
    World world(kind, threads == 0 ? 1200 : 9000);
    if (verb.prepare) verb.prepare(world);
    if (::testing::Test::HasFailure()) return;
    const auto body = [&](Fault fault, int64_t nth) -> std::string {
      std::unique_ptr<PoolThreads> pool;
      if (threads > 0) pool = std::make_unique<PoolThreads>(threads);
      Faults::Arm(fault, nth);
      Status status = verb.run(world, pool.get());
      Faults::Disarm();
      const bool failed = !status.ok();
      if (failed && !Faults::fired) return "failed by itself: " + status.message;
      if (failed && status.code != Code::kResourceExhausted) return "wrong code: " + status.message;
      std::string complaint = world.Check(failed ? verb.failed : verb.done);
      if (complaint.empty() && verb.verify && !failed) complaint = verb.verify(world, 1);
      if (!complaint.empty()) return complaint;
      status = verb.run(world, pool.get());
      if (!status.ok()) return "failed with memory back: " + status.message;
      complaint = world.Check(verb.done);
      if (complaint.empty() && verb.verify) complaint = verb.verify(world, 2);
      return complaint.empty() ? "" : "with memory back: " + complaint;
    };
    const std::string name = verb.name + ", " + kind.name + (threads == 0 ? "" : ", threads");
    Report(Sweep(name, threads == 0 ? 5 : 3, body));
  }
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_ALLOC_FAILURE_WORLD_H_
