// Compares which rows a full table keeps with exact orders, on sequences of accesses.
#include <gtest/gtest.h>

#include <cmath>
#include <list>
#include <memory>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

constexpr size_t kBound = 40000;          ///< several times the rows that an eviction ranks
constexpr size_t kEvicted = kBound / 16;  ///< rows that a full table evicts of those it ranks
constexpr size_t kKeys = 200000;
constexpr size_t kBatch = 256;
constexpr size_t kBatches = 4000;

/// A cache of kBound keys that evicts exactly the first keys of an order.
class Exact {
 public:
  virtual ~Exact() = default;
  /// Returns whether the key was present. Makes it present.
  virtual bool Use(int64_t key) = 0;
};

class ExactLru final : public Exact {
 public:
  bool Use(int64_t key) override {
    const auto at = places_.find(key);
    const bool hit = at != places_.end();
    if (hit) order_.erase(at->second);
    places_[key] = order_.insert(order_.end(), key);
    if (order_.size() > kBound) {
      places_.erase(order_.front());
      order_.pop_front();
    }
    return hit;
  }

 private:
  std::list<int64_t> order_;  ///< the key that was not used for longest is first
  std::unordered_map<int64_t, std::list<int64_t>::iterator> places_;
};

/// Evicts a part of the keys at once, as the table does. The part is what lets LFU follow a drift:
/// a new key stays until the next eviction, and meanwhile collects uses. If LFU evicted one key per
/// new key, it would be the new key before it.
class ExactLfu final : public Exact {
 public:
  bool Use(int64_t key) override {
    const auto at = uses_.find(key);
    const bool hit = at != uses_.end();
    const bool is_full = !hit && uses_.size() == kBound;
    for (size_t i = 0; is_full && i < kEvicted; ++i) {
      uses_.erase(std::get<2>(*order_.begin()));
      order_.erase(order_.begin());
    }
    const uint64_t before = hit ? at->second : 0;
    const uint64_t tie = Mix64(static_cast<uint64_t>(key));
    order_.erase({before, tie, key});
    order_.insert({before + 1, tie, key});
    uses_[key] = before + 1;
    return hit;
  }

 private:
  std::set<std::tuple<uint64_t, uint64_t, int64_t>> order_;  ///< by uses
  std::unordered_map<int64_t, uint64_t> uses_;
};

/// Draws keys from a Zipf distribution, whose popular keys change with `drift`.
class Accesses {
 public:
  Accesses(double exponent, double drift) : drift_(drift) {
    double sum = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      sum += std::pow(static_cast<double>(i + 1), -exponent);
      sums_.push_back(sum);
    }
  }

  std::vector<int64_t> Next() {
    std::vector<int64_t> keys(kBatch);
    for (int64_t& key : keys) {
      const double drawn = std::uniform_real_distribution<double>(0, sums_.back())(random_);
      const auto rank = std::lower_bound(sums_.begin(), sums_.end(), drawn) - sums_.begin();
      key = static_cast<int64_t>((static_cast<size_t>(rank) * 7919 + static_cast<size_t>(shift_)) %
                                 kKeys);
      shift_ += drift_;
    }
    return keys;
  }

 private:
  const double drift_;
  double shift_ = 0;
  std::vector<double> sums_;
  std::mt19937_64 random_{11};
};

struct Case {
  const char* name;
  RowColumn column;
  double exponent, drift;
};

class TableEviction : public ::testing::TestWithParam<Case> {};

TEST_P(TableEviction, HasTheHitRateOfTheExactOrderAndStaysWithinTheBound) {
  const Case& param = GetParam();
  TableOptions options;
  options.policy.evict_by = param.column;
  options.policy.max_rows = kBound;
  std::unique_ptr<Table> table;
  ASSERT_TRUE(Table::Create(std::move(options), &table).ok());
  std::unique_ptr<Exact> exact;
  if (param.column == RowColumn::kTime) {
    exact = std::make_unique<ExactLru>();
  } else {
    exact = std::make_unique<ExactLfu>();
  }
  Accesses accesses(param.exponent, param.drift);
  const std::vector<float> values(kBatch);
  double hits = 0, exact_hits = 0, counted = 0;
  for (size_t batch = 0; batch < kBatches; ++batch) {
    const std::vector<int64_t> ints = accesses.Next();
    const Keys keys = KeysOf(ints);
    bool found[kBatch];
    ASSERT_TRUE(table->Find(keys, {}, found, nullptr).ok());
    ASSERT_TRUE(table->InsertOrAssign(keys, RowsIn(values), nullptr).ok());
    ASSERT_LE(table->size(), kBound);
    const bool warm = batch >= kBatches / 4;
    std::set<int64_t> earlier;
    for (size_t i = 0; i < kBatch; ++i) {
      const bool hit = exact->Use(ints[i]);
      // Of equal keys of a batch, the table is asked about only the first.
      if (!warm || !earlier.insert(ints[i]).second) continue;
      hits += found[i];
      exact_hits += hit;
      ++counted;
    }
  }
  EXPECT_NEAR(hits / counted, exact_hits / counted, 0.01);
  EXPECT_GT(exact_hits / counted, 0.1);
  RecordProperty("difference", std::to_string((hits - exact_hits) / counted));
}

INSTANTIATE_TEST_SUITE_P(Orders, TableEviction,
                         ::testing::Values(Case{"LruZipf", RowColumn::kTime, 1.05, 0},
                                           Case{"LruDrift", RowColumn::kTime, 1.05, 0.001},
                                           Case{"LfuZipf", RowColumn::kUses, 1.05, 0},
                                           Case{"LfuDrift", RowColumn::kUses, 1.05, 0.001}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace de::engine
