// Selection of the rows to keep, compared with sorting all rows.
#include "de_core/cc/engine/policy/row_rank.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace de::engine {
namespace {

TEST(RowRank, OrdersValuesAsIntegersAndStaysBelowTheTop) {
  const int64_t values[] = {std::numeric_limits<int64_t>::min(), -5, -1, 0, 1, 7,
                            std::numeric_limits<int64_t>::max()};
  for (size_t i = 1; i < 7; ++i) EXPECT_LT(RankOf(values[i - 1]), RankOf(values[i]));
  EXPECT_TRUE((RowRank{RankOf(values[6]), ~uint64_t{0}}) < kAboveAll);
}

TEST(Selection, KeepsWhatSortingKeeps) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t n = random() % 700, k = random() % 300;
    const bool highest = random() % 2 == 0;
    std::vector<RowRank> rows;
    for (size_t i = 0; i < n; ++i) rows.push_back({random() % 20, random()});
    Selection selection(k, highest);
    for (const RowRank& row : rows) selection.Offer(row);
    std::vector<RowRank> chosen = selection.Take();
    std::sort(rows.begin(), rows.end());
    if (highest) std::reverse(rows.begin(), rows.end());
    rows.resize(std::min(n, k));
    std::sort(rows.begin(), rows.end());
    std::sort(chosen.begin(), chosen.end());
    ASSERT_EQ(chosen.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(chosen[i].rank, rows[i].rank);
      EXPECT_EQ(chosen[i].hash, rows[i].hash);
    }
  }
}

TEST(Selection, FirstKeptOfSeveralTablesLeavesExactlyTheReserved) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    const size_t tables = 1 + random() % 3;
    std::vector<std::vector<RowRank>> all(tables);
    const size_t n = random() % 200, reserved = random() % 220;
    for (size_t i = 0; i < n; ++i) all[random() % tables].push_back({random() % 5, random()});
    const Candidates wanted(n, reserved);
    std::vector<RowRank> candidates;
    for (const auto& rows : all) {
      Selection selection(wanted.count, wanted.highest);
      for (const RowRank& row : rows) selection.Offer(row);
      for (const RowRank& row : selection.Take()) candidates.push_back(row);
    }
    const RowRank kept = FirstKept(wanted, candidates, reserved == 0);
    size_t stay = 0;
    for (const auto& rows : all) {
      for (const RowRank& row : rows) stay += !(row < kept);
    }
    EXPECT_EQ(stay, std::min(n, reserved));
  }
}

}  // namespace
}  // namespace de::engine
