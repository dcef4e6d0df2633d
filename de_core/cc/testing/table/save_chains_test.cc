// The chains of saves of one table: the last save of each chain, and the changes recorded for its
// next delta.
#include "de_core/cc/engine/backend/save_chains.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/table/shard_changes.h"

namespace de::engine {
namespace {

SnapshotId IdFrom(uint8_t first) {
  SnapshotId id{};
  id[0] = first;
  return id;
}

class SaveChainsTest : public ::testing::Test {
 protected:
  SaveChainsTest() {
    for (size_t i = 0; i < kShards; ++i) {
      shards_.push_back(std::make_unique<Shard>(layout_, &arena_, /*seed=*/1));
    }
  }

  /// Reports a change to the observer of the key's shard, as writers do.
  void Write(uint64_t word) {
    Shard* shard = shards_[ShardOfHash(Mix64(word))].get();
    if (shard->watch == nullptr) return;
    shard->watch->BeforeWrite(word, Mix64(word), static_cast<uint32_t>(word), nullptr, true);
  }

  std::set<uint64_t> Since(uint64_t generation) const {
    std::set<uint64_t> words;
    for (const auto& shard : shards_) {
      const DirtyKeys keys = shard->watch->dirty->Since(generation);
      EXPECT_FALSE(keys.everything || keys.by_bits);
      words.insert(keys.words.begin(), keys.words.end());
    }
    return words;
  }

  uint64_t Cut() {
    uint64_t generation = 0;
    EXPECT_TRUE(chains_.Cut(&generation).ok());
    return generation;
  }

  void Add(const std::string& chain, uint8_t id, uint64_t generation, bool commit) {
    EXPECT_TRUE(chains_.Add(chain, {IdFrom(id), id, generation}, commit).ok());
  }

  /// Returns the id of a chain's last save, 0 if there is none.
  int Last(const std::string& chain) const {
    SavePoint point;
    const Status status = chains_.Last(chain, &point);
    if (status.ok()) return point.id[0];
    EXPECT_EQ(status.code, Code::kFailedPrecondition);
    EXPECT_NE(status.message.find("Received: chain=" + chain), std::string::npos);
    return 0;
  }

  bool Watched() const {
    size_t watched = 0;
    for (const auto& shard : shards_) watched += shard->watch != nullptr;
    EXPECT_TRUE(watched == 0 || watched == kShards);
    return watched > 0;
  }

  const RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  Arena arena_;
  std::vector<std::unique_ptr<Shard>> shards_;
  SaveChains chains_{std::make_unique<ShardChanges>(&shards_)};
};

TEST_F(SaveChainsTest, a_save_is_the_last_of_its_chain_once_it_is_committed) {
  EXPECT_EQ(Last("a"), 0);
  Add("a", 1, Cut(), /*commit=*/false);
  EXPECT_EQ(Last("a"), 0);
  EXPECT_EQ(chains_.Commit("b", IdFrom(1)).code, Code::kNotFound);
  EXPECT_EQ(chains_.Commit("a", IdFrom(2)).code, Code::kNotFound);
  EXPECT_TRUE(chains_.Commit("a", IdFrom(1)).ok());
  EXPECT_EQ(Last("a"), 1);
  EXPECT_EQ(chains_.Commit("a", IdFrom(1)).code, Code::kNotFound) << "once";
  Add("b", 2, Cut(), /*commit=*/true);
  EXPECT_EQ(Last("a"), 1);
  EXPECT_EQ(Last("b"), 2);
  Add("a", 3, Cut(), /*commit=*/false);
  Add("a", 4, Cut(), /*commit=*/true);
  EXPECT_EQ(Last("a"), 4);
  EXPECT_EQ(chains_.Commit("a", IdFrom(3)).code, Code::kNotFound) << "a later save came";
  EXPECT_EQ(chains_.entries().size(), 2U);
}

TEST_F(SaveChainsTest, shards_are_watched_while_there_is_a_chain_or_a_save) {
  EXPECT_FALSE(Watched());
  EXPECT_EQ(chains_.bytes(), 0U);
  Cut();
  Write(7);
  EXPECT_TRUE(Watched()) << "a save under way may ask";
  chains_.Abandon();
  EXPECT_FALSE(Watched()) << "a first save that failed";
  EXPECT_EQ(chains_.bytes(), 0U);
  Add("a", 1, Cut(), true);
  EXPECT_TRUE(Watched());
  Write(7);
  EXPECT_GT(chains_.bytes(), 0U);
}

TEST_F(SaveChainsTest, a_watch_for_a_consistent_save_stays) {
  Cut();
  HeldBudget budget(layout_, 1 << 20);
  shards_[3]->watch->held = std::make_unique<BeforeImages>(layout_, 0, &budget);
  chains_.Abandon();
  ASSERT_NE(shards_[3]->watch, nullptr);
  EXPECT_EQ(shards_[3]->watch->dirty, nullptr);
  EXPECT_NE(shards_[3]->watch->held, nullptr);
  EXPECT_EQ(shards_[4]->watch, nullptr);
  shards_[3]->watch.reset();  // destroyed before the budget
}

TEST_F(SaveChainsTest, every_chain_is_told_what_changed_since_its_own_last_save) {
  std::mt19937_64 random(1);
  std::map<std::string, std::set<uint64_t>> changed, pending;  // since the chain's saves
  std::map<std::string, uint8_t> pending_id;
  for (int round = 1; round <= 200; ++round) {
    for (int i = 0; i < 20; ++i) {
      const uint64_t word = random() % 500;
      Write(word);
      for (auto& [chain, words] : changed) words.insert(word);
      for (auto& [chain, words] : pending) words.insert(word);
    }
    const std::string chain(1, static_cast<char>('a' + random() % 3));
    const auto id = static_cast<uint8_t>(round);
    const uint64_t generation = Cut();
    switch (random() % 4) {
      case 1:
        Add(chain, id, generation, /*commit=*/false);
        pending[chain].clear();
        pending_id[chain] = id;
        break;
      case 2:
        Add(chain, id, generation, /*commit=*/true);
        changed[chain].clear();
        pending.erase(chain);
        break;
      case 3:
        chains_.Abandon();
        if (pending.count(chain) == 0) break;
        ASSERT_TRUE(chains_.Commit(chain, IdFrom(pending_id[chain])).ok());
        changed[chain] = pending[chain];
        pending.erase(chain);
        break;
      default:
        chains_.Abandon();
    }
    for (const auto& entry : chains_.entries()) {
      ASSERT_EQ(entry.last.has_value(), changed.count(entry.chain) == 1);
      ASSERT_EQ(entry.pending.has_value(), pending.count(entry.chain) == 1);
      if (entry.last) {
        ASSERT_EQ(Since(entry.last->generation), changed[entry.chain]);
      }
      if (entry.pending) {
        ASSERT_EQ(Since(entry.pending->generation), pending[entry.chain]);
      }
    }
    ASSERT_EQ(Watched(), changed.size() + pending.size() > 0);
  }
}

}  // namespace
}  // namespace de::engine
