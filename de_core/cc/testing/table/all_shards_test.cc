// Locks of all shards: a thread takes all locks or no lock, and waits as documented.
#include "de_core/cc/engine/table/all_shards.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace de::engine {
namespace {

class AllShardsTest : public ::testing::Test {
 protected:
  AllShardsTest() {
    for (size_t i = 0; i < kShards; ++i) {
      shards_.push_back(std::make_unique<Shard>(layout_, &arena_, /*seed=*/1));
    }
  }

  ShardLock& LockOf(size_t shard) { return shards_[shard]->lock; }

  /// Number of shards that a writer could lock now.
  size_t Free() {
    size_t free = 0;
    for (const auto& shard : shards_) {
      if (!shard->lock.try_lock()) continue;
      ++free;
      shard->lock.unlock();
    }
    return free;
  }

  const RowLayout layout_{KeyType::kInt64, DType::kFloat32, 1};
  Arena arena_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

TEST_F(AllShardsTest, a_writer_has_all_of_them_and_gives_them_back) {
  {
    const AllShards<true> all(shards_);
    EXPECT_TRUE(all.held());
    EXPECT_EQ(Free(), 0U);
    EXPECT_FALSE(AllShards<true>(shards_).held());
    EXPECT_EQ(Free(), 0U) << "one that got none gave back what it did not have";
  }
  EXPECT_EQ(Free(), kShards);
}

TEST_F(AllShardsTest, readers_have_all_of_them_at_once) {
  {
    const AllShards<false> one(shards_);
    const AllShards<false> another(shards_);
    EXPECT_TRUE(one.held());
    EXPECT_TRUE(another.held());
    EXPECT_FALSE(AllShards<true>(shards_).held());
    EXPECT_TRUE(LockOf(3).try_lock_shared());
    LockOf(3).unlock_shared();
  }
  EXPECT_EQ(Free(), kShards);
}

TEST_F(AllShardsTest, a_writer_has_none_where_somebody_has_one) {
  for (const uint32_t taken : {0U, 7U, kShards - 1}) {
    LockOf(taken).lock_shared();
    EXPECT_FALSE(AllShards<true>(shards_).held());
    LockOf(taken).unlock_shared();
    EXPECT_EQ(Free(), kShards);
  }
}

TEST_F(AllShardsTest, a_reader_has_none_where_two_are_taken_once_the_first_is_free) {
  bool held = true;
  // A late reader may find the first lock free and wait for the other. Then try again.
  for (int tries = 0; tries < 100 && held; ++tries) {
    LockOf(2).lock();
    LockOf(9).lock();
    std::atomic<bool> done{false};
    std::thread reader([&] {
      held = AllShards<false>(shards_).held();
      done = true;
    });
    for (int waits = 0; waits < 100; ++waits) std::this_thread::yield();
    LockOf(2).unlock();
    for (int waits = 0; waits < 1000 && !done; ++waits) std::this_thread::yield();
    LockOf(9).unlock();
    reader.join();
    EXPECT_EQ(Free(), kShards);
  }
  EXPECT_FALSE(held);
}

TEST_F(AllShardsTest, a_reader_waits_for_the_first_that_is_taken) {
  LockOf(5).lock();
  std::atomic<bool> begun{false};
  std::atomic<bool> held{false};
  std::thread reader([&] {
    begun = true;
    held = AllShards<false>(shards_).held();
  });
  while (!begun) std::this_thread::yield();
  for (int waits = 0; waits < 100; ++waits) std::this_thread::yield();
  EXPECT_FALSE(held);
  LockOf(5).unlock();
  reader.join();
  EXPECT_TRUE(held);
  EXPECT_EQ(Free(), kShards);
}

TEST_F(AllShardsTest, a_range_leaves_the_others_alone) {
  LockOf(3).lock();
  LockOf(7).lock();
  {
    const AllShards<true> all(shards_, 4, 6);
    EXPECT_TRUE(all.held());
    EXPECT_EQ(Free(), kShards - 5);
  }
  EXPECT_EQ(Free(), kShards - 2);
  EXPECT_FALSE(AllShards<true>(shards_, 4, 7).held());
  EXPECT_FALSE(AllShards<true>(shards_, 3, 3).held());
  LockOf(3).unlock();
  LockOf(7).unlock();
  EXPECT_EQ(Free(), kShards);
}

TEST_F(AllShardsTest, a_batch_of_a_writer_is_seen_whole) {
  int counters[kShards] = {};
  std::thread writer([&] {
    for (int done = 0; done < 300;) {
      const AllShards<true> all(shards_);
      if (!all.held()) continue;
      for (int& counter : counters) ++counter;
      ++done;
    }
  });
  for (int seen = 0; seen < 300;) {
    const AllShards<false> all(shards_);
    if (!all.held()) continue;
    for (const int counter : counters) ASSERT_EQ(counter, counters[0]);
    seen = counters[0];
  }
  writer.join();
}

}  // namespace
}  // namespace de::engine
