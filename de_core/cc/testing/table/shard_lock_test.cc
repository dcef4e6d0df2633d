// Which threads may hold the lock at the same time, and that no thread waits forever.
#include "de_core/cc/engine/table/shard_lock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace de::engine {
namespace {

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(ShardLock, ReadersShareIt) {
  ShardLock lock;
  ASSERT_TRUE(lock.try_lock_shared());
  EXPECT_TRUE(lock.try_lock_shared());
  lock.unlock_shared();
  lock.unlock_shared();
}

TEST(ShardLock, AWriterKeepsReadersOut) {
  ShardLock lock;
  lock.lock();
  EXPECT_FALSE(lock.try_lock_shared());
  EXPECT_FALSE(lock.try_lock_shared()) << "a try that failed must leave nothing behind";
  lock.unlock();
  EXPECT_TRUE(lock.try_lock_shared());
  lock.unlock_shared();
  lock.lock();
  lock.unlock();
}

TEST(ShardLock, WritersExcludeEachOther) {
  ShardLock lock;
  std::atomic<int> inside{0}, overlaps{0};
  RunThreads(4, [&](int) {
    for (int i = 0; i < 500; ++i) {
      const std::lock_guard<ShardLock> guard(lock);
      overlaps += inside.fetch_add(1) != 0;
      std::this_thread::yield();  // another thread that can take the lock takes it now
      inside.fetch_sub(1);
    }
  });
  EXPECT_EQ(overlaps, 0);
}

TEST(ShardLock, ReadersSeeWholeWrites) {
  ShardLock lock;
  std::array<int64_t, 16> row{};
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::thread writer([&] {
    for (int64_t i = 1; i <= 2000; ++i) {
      const std::lock_guard<ShardLock> guard(lock);
      for (size_t c = 0; c < row.size(); ++c) {
        if (c == row.size() / 2) std::this_thread::yield();
        row[c] = i;
      }
    }
    stop = true;
  });
  RunThreads(2, [&](int) {
    while (!stop) {
      const std::shared_lock<ShardLock> guard(lock);
      for (const int64_t element : row) torn += element != row[0];
    }
  });
  writer.join();
  EXPECT_EQ(torn, 0);
}

TEST(ShardLock, AWaitingWriterComesBeforeNewReaders) {
  ShardLock lock;
  lock.lock_shared();
  std::atomic<bool> wrote{false};
  std::thread writer([&] {
    lock.lock();
    wrote = true;
    lock.unlock();
  });
  // As soon as a writer waits, new readers must wait.
  while (!wrote && lock.try_lock_shared()) {
    lock.unlock_shared();
    std::this_thread::yield();
  }
  EXPECT_FALSE(wrote) << "the writer must wait for the reader inside";
  lock.unlock_shared();
  writer.join();
  EXPECT_TRUE(wrote);
  EXPECT_TRUE(lock.try_lock_shared());
  lock.unlock_shared();
}

TEST(ShardLock, AStreamOfReadersDoesNotStarveAWriter) {
  ShardLock lock;
  std::atomic<int> written{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (; written < 200; ++written) {
      const std::lock_guard<ShardLock> guard(lock);
    }
    stop = true;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  RunThreads(3, [&](int) {
    while (!stop && std::chrono::steady_clock::now() < deadline) {
      const std::shared_lock<ShardLock> guard(lock);
    }
  });
  EXPECT_TRUE(stop) << "after ten minutes the writer had its turn only " << written << " times";
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace de::engine
