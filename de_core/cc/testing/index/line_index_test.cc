// The index finds the same keys as a map, and a search visits only the lines that it must.
#include "de_core/cc/engine/index/line_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "de_core/cc/engine/index/simd_lines.h"
#include "de_core/cc/testing/forced_level.h"

namespace de::engine {
namespace {

bool AnyRow(uint32_t) { return true; }

/// Free index lines.
std::vector<IndexLine> Lines(uint32_t size) { return std::vector<IndexLine>(size); }

/// Returns a hash whose home is line `home` of `size`.
uint64_t HashOfHome(uint32_t home, uint32_t size) {
  const uint64_t hash = ((uint64_t{home} << 32) + size - 1) / size;
  EXPECT_EQ(ReduceLow32(hash, size), home);
  return hash;
}

uint32_t OverflowOf(const std::vector<IndexLine>& lines) {
  uint32_t sum = 0;
  for (const IndexLine& line : lines) sum += line.overflow;
  return sum;
}

TEST(LineIndex, FindsAWordInEachPlaceOfALine) {
  std::vector<IndexLine> lines = Lines(1);
  LineIndex index(lines.data(), 1);
  const uint64_t words[kEntriesPerLine] = {0, ~uint64_t{0}, 1, uint64_t{1} << 63, 77};
  for (uint32_t i = 0; i < kEntriesPerLine; ++i) index.Insert(words[i], 5, 100 + i);
  for (uint32_t i = 0; i < kEntriesPerLine; ++i) {
    const auto at = index.Find(words[i], 5, AnyRow);
    ASSERT_TRUE(at.found());
    EXPECT_EQ(lines[at.line].rows[at.entry], 100 + i);
    EXPECT_EQ(MatchWord(lines[0], words[i]), 1U << at.entry);
  }
  EXPECT_FALSE(index.Find(78, 5, AnyRow).found());
}

TEST(LineIndex, AWordMatchesInBothHalves) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20000; ++round) {
    // Many words are equal in one half, so a comparison must check both halves.
    const uint64_t halves[4] = {0, 0xffffffffULL, 0x80000000ULL, random() >> 32};
    const auto word = [&] { return halves[random() % 4] << 32 | halves[random() % 4]; };
    IndexLine line{};
    for (uint64_t& each : line.words) each = word();
    line.used = static_cast<uint8_t>(random());
    const uint64_t wanted = word();
    uint32_t expected = 0;
    for (uint32_t i = 0; i < kEntriesPerLine; ++i) {
      if (line.words[i] == wanted && (line.used >> i & 1) != 0) expected |= 1U << i;
    }
    ASSERT_EQ(MatchWord(line, wanted), expected);
  }
}

TEST(LineIndex, AFreePlaceMatchesNoWord) {
  std::vector<IndexLine> lines = Lines(1);
  LineIndex index(lines.data(), 1);
  EXPECT_FALSE(index.Find(0, 0, AnyRow).found());
  index.Erase(index.Insert(42, 0, 7), 0);
  EXPECT_FALSE(index.Find(42, 0, AnyRow).found()) << "an erased word still lies in the line";
  EXPECT_EQ(MatchWord(lines[0], 42), 0U);
}

TEST(LineIndex, AgreesWithAMapWhenAllCollide) {
  for (const uint32_t size : {1U, 2U, 3U, 7U, 64U}) {
    std::vector<IndexLine> lines = Lines(size);
    LineIndex index(lines.data(), size);
    std::map<uint64_t, uint32_t> oracle;
    std::mt19937_64 random(size);
    const auto hash_of = [&](uint64_t word) {
      const auto home = static_cast<uint32_t>(word % 3) * (size - 1) / 2;
      return HashOfHome(home, size) | (word * 7 % 32) << 32;  // with any filter bit
    };
    for (int step = 0; step < 20000; ++step) {
      const uint64_t word = random() % (size * 6);
      const auto at = index.Find(word, hash_of(word), AnyRow);
      const auto known = oracle.find(word);
      ASSERT_EQ(at.found(), known != oracle.end());
      if (at.found()) {
        ASSERT_EQ(lines[at.line].rows[at.entry], known->second);
      }
      if (random() % 2 == 0) {
        if (!at.found()) continue;
        index.Erase(at, hash_of(word));
        oracle.erase(known);
      } else if (!at.found() && oracle.size() < size * kEntriesPerLine) {
        const auto row = static_cast<uint32_t>(random());
        index.Insert(word, hash_of(word), row);
        oracle[word] = row;
      }
    }
    std::map<uint64_t, uint32_t> visited;
    ForEachEntry(lines.data(), size, [&](uint64_t word, uint32_t row) {
      ASSERT_TRUE(visited.emplace(word, row).second);
    });
    EXPECT_EQ(visited, oracle);
  }
}

TEST(LineIndex, ErasingAllLeavesNothingToPass) {
  constexpr uint32_t kSize = 8;
  std::vector<IndexLine> lines = Lines(kSize);
  LineIndex index(lines.data(), kSize);
  const uint64_t hash = HashOfHome(6, kSize);
  for (uint64_t word = 0; word < 20; ++word) index.Insert(word, hash, 0);
  EXPECT_EQ(lines[6].overflow, 15);
  EXPECT_EQ(lines[7].overflow, 10);
  EXPECT_EQ(lines[0].overflow, 5) << "probing goes on at the first line after the last";
  EXPECT_EQ(lines[1].overflow, 0);
  for (uint64_t word = 0; word < 20; ++word) index.Erase(index.Find(word, hash, AnyRow), hash);
  EXPECT_EQ(OverflowOf(lines), 0U) << "a search would visit lines nobody passed";
}

TEST(LineIndex, ASearchStopsAtALineNobodyPassed) {
  std::vector<IndexLine> lines = Lines(4);
  LineIndex index(lines.data(), 4);
  for (uint64_t word = 0; word < kEntriesPerLine; ++word) index.Insert(word, 0, 0);
  // Line 0 is full, but no key went on to line 1. Put an entry into line 1 that a search finds only
  // if it visits line 1 wrongly.
  lines[1].words[0] = 99;
  lines[1].used = 1;
  EXPECT_FALSE(index.Find(99, 0, AnyRow).found());
}

TEST(LineIndex, ASearchGoesOnOnlyBehindKeysOfItsFilterBit) {
  std::vector<IndexLine> lines = Lines(4);
  LineIndex index(lines.data(), 4);
  const auto hash_of = [](uint64_t kind) { return kind << 32; };  // line 0 is the home line of all
  for (uint64_t word = 0; word < kEntriesPerLine; ++word) index.Insert(word, hash_of(1), 0);
  const auto passed = [&](uint64_t kind) {
    return (Passed(lines[0]) & PassBit(hash_of(kind))) != 0;
  };
  EXPECT_FALSE(passed(2));
  index.Insert(50, hash_of(2), 7);  // its home line 0 is full, so it goes on to line 1
  EXPECT_TRUE(passed(2));
  EXPECT_FALSE(passed(3)) << "none of this kind passed";
  EXPECT_EQ(FindRow(lines.data(), 4, 50, hash_of(2), AnyRow), 7U);
  EXPECT_EQ(FindRow(lines.data(), 4, 51, hash_of(2), AnyRow), kNoRow);
  EXPECT_EQ(FindRow(lines.data(), 4, 50, hash_of(3), AnyRow), kNoRow) << "visited line 1";
  index.Erase(index.Find(50, hash_of(2), AnyRow), hash_of(2));
  EXPECT_FALSE(passed(2)) << "the last that passed is gone";
}

TEST(LineIndex, TheHomeLineTellsTheRowOrThatTheKeyIsAway) {
  for (const SimdLevel level : {SimdLevel::kScalar, SimdLevel::kAvx512}) {
    const ForcedLevel forced(level);
    std::vector<IndexLine> lines = Lines(1);
    LineIndex index(lines.data(), 1);
    const auto probe = [&](uint64_t word) {
      return AtSimdLevel(
          [&line = lines[0], word](auto compare) { return ProbeHome(compare, line, word); });
    };
    EXPECT_TRUE(probe(0).away) << "an entry that is free has no key";
    for (uint32_t word = 0; word < kEntriesPerLine; ++word) index.Insert(word, 0, 10 + word);
    for (uint32_t word = 0; word < kEntriesPerLine; ++word) {
      EXPECT_FALSE(probe(word).away);
      EXPECT_EQ(probe(word).row, 10 + word);
    }
    EXPECT_TRUE(probe(99).away);
    EXPECT_EQ(probe(99).row, 0U);
    uint64_t rows;  // the words' neighbors in the line are no words
    std::memcpy(&rows, lines[0].rows, sizeof(rows));
    EXPECT_TRUE(probe(rows).away);
  }
}

TEST(LineIndex, AnOverflowCountThatIsFullStaysSafe) {
  constexpr uint32_t kSize = 80;
  std::vector<IndexLine> lines = Lines(kSize);
  LineIndex index(lines.data(), kSize);
  constexpr uint64_t kCount = 300;
  for (uint64_t word = 0; word < kCount; ++word) index.Insert(word, 0, static_cast<uint32_t>(word));
  EXPECT_EQ(lines[0].overflow, 255);
  for (uint64_t word = 0; word < kCount - 1; ++word) {
    index.Erase(index.Find(word, 0, AnyRow), 0);
  }
  const auto last = index.Find(kCount - 1, 0, AnyRow);
  ASSERT_TRUE(last.found()) << "a count that lost its number must never reach zero";
  EXPECT_EQ(lines[last.line].rows[last.entry], kCount - 1);
}

TEST(LineIndex, EqualWordsAreToldApartByTheirRows) {
  std::vector<IndexLine> lines = Lines(2);
  LineIndex index(lines.data(), 2);
  for (uint32_t row = 0; row < 8; ++row) index.Insert(1234, 0, row);
  for (uint32_t row = 0; row < 8; ++row) {
    const auto at = index.Find(1234, 0, [&](uint32_t each) { return each == row; });
    ASSERT_TRUE(at.found());
    EXPECT_EQ(lines[at.line].rows[at.entry], row);
  }
  EXPECT_FALSE(index.Find(1234, 0, [](uint32_t) { return false; }).found());
}

TEST(LineIndex, ASearchOfCorruptLinesEnds) {
  std::vector<IndexLine> lines = Lines(16);
  for (IndexLine& line : lines) {
    line.used = 0xff;
    line.overflow = 0xff;
    line.filter = 0xffff;
  }
  const LineIndex index(lines.data(), 16);
  EXPECT_FALSE(index.Find(1, 0, AnyRow).found());
}

}  // namespace
}  // namespace de::engine
