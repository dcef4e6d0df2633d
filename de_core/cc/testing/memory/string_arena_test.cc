// Byte strings of a shard, compared with a map of std::string.
#include "de_core/cc/engine/memory/string_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace de::engine {
namespace {

TEST(StringArena, GivesBackWhatWasPut) {
  StringArena arena;
  const std::string zeros(3, '\0');
  const std::string longest(1 << 20, 'x');
  const StringArena::Ref a = arena.Put("a"), b = arena.Put(zeros), c = arena.Put(longest);
  EXPECT_EQ(StringArena::Get(a), "a");
  EXPECT_EQ(StringArena::Get(b), zeros);
  EXPECT_EQ(StringArena::Get(c), longest);
  EXPECT_EQ(arena.Put(""), 0U);
  EXPECT_EQ(StringArena::Get(0), "");
  const size_t live = arena.live_bytes();
  arena.Free(0);
  EXPECT_EQ(arena.live_bytes(), live);
}

TEST(StringArena, AgreesWithAMapOverRandomVerbs) {
  StringArena arena;
  std::map<StringArena::Ref, std::string> oracle;
  std::mt19937_64 random(11);
  const auto text = [&] {
    const size_t length = random() % 20 == 0 ? random() % 40000 : random() % 60;
    return std::string(length, static_cast<char>(random()));
  };
  for (int step = 0; step < 20000; ++step) {
    const std::string bytes = text();
    if (random() % 2 == 0 || oracle.empty()) {
      const StringArena::Ref ref = arena.Put(bytes);
      if (ref != 0) {
        ASSERT_TRUE(oracle.emplace(ref, bytes).second) << "two strings in one cell";
      }
      continue;
    }
    auto at = oracle.lower_bound(oracle.begin()->first + random() % 100000);
    if (at == oracle.end()) at = oracle.begin();
    ASSERT_EQ(StringArena::Get(at->first), at->second);
    arena.Free(at->first);
    oracle.erase(at);
  }
  for (const auto& [ref, bytes] : oracle) ASSERT_EQ(StringArena::Get(ref), bytes);
  size_t live = 0;
  for (const auto& [ref, bytes] : oracle) {
    live += (bytes.size() + 15) / 8 * 8;
    arena.Free(ref);
  }
  EXPECT_GT(live, 0U);
  EXPECT_EQ(arena.live_bytes(), 0U);
}

TEST(StringArena, FreedCellsAreReused) {
  StringArena arena;
  const std::string text(100, 'y');
  for (int i = 0; i < 100; ++i) arena.Free(arena.Put(text));
  const size_t held = arena.bytes();
  for (int i = 0; i < 100000; ++i) arena.Free(arena.Put(text));
  EXPECT_EQ(arena.bytes(), held);
}

TEST(StringArena, HeldMemoryIsCounted) {
  StringArena arena;
  EXPECT_EQ(arena.bytes(), 0U);
  arena.Put(std::string(1000000, 'z'));
  EXPECT_GE(arena.bytes(), 1000000U);
  EXPECT_EQ(arena.live_bytes(), 1000008U);
}

}  // namespace
}  // namespace de::engine
