// The stages of the pipeline: every key goes through each stage once, in order, with the right
// distance.
#include "de_core/cc/engine/index/pipeline.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace de::engine {
namespace {

class Pipeline : public ::testing::TestWithParam<size_t> {};

TEST_P(Pipeline, passes_every_key_through_all_stages_in_order) {
  for (size_t keys = 0; keys <= 3 * kPipelineRing; ++keys) {
    const size_t begin = GetParam(), end = begin + keys;
    std::array<size_t, 6> next;
    next.fill(begin);
    std::vector<size_t> place(end), ring(kPipelineRing, end);
    const auto stage = [&](size_t number) {
      return [&, number](size_t j, size_t at) {
        ASSERT_EQ(j, next[number]++);
        ASSERT_LT(at, kPipelineRing);
        if (number == 0) {
          place[j] = at;
          ring[at] = j;
        } else {
          ASSERT_LT(j, next[number - 1]) << "before the stage before it";
        }
        ASSERT_EQ(at, place[j]);
        ASSERT_EQ(ring[at], j) << "another key has taken its place";
      };
    };
    size_t rested = begin;
    RunPipeline(begin, end, stage(0), stage(1), stage(2), stage(3), stage(4), stage(5),
                [&](size_t used) {
                  EXPECT_EQ(used, next[5]);
                  EXPECT_GT(used, rested);
                  rested = used;
                });
    for (const size_t reached : next) ASSERT_EQ(reached, end);
    EXPECT_EQ(rested > begin, keys >= 3 * kPipelineLag + kPipelineStride) << keys;
  }
}

TEST_P(Pipeline, keeps_the_stages_a_lag_apart) {
  const size_t begin = GetParam(), end = begin + 1000;
  std::array<size_t, 6> done{};
  const auto count = [&](size_t number) { return [&, number](size_t, size_t) { ++done[number]; }; };
  const auto use = [&](size_t j, size_t) {
    ++done[5];
    // the last keys of the batch may pass the stages at smaller distances
    if (j + 4 * kPipelineLag > end) return;
    for (const size_t stage : {2, 4}) {
      EXPECT_GE(done[stage - 2] - done[stage], kPipelineLag - kPipelineStride);
      EXPECT_LE(done[stage - 2] - done[stage], kPipelineLag + kPipelineStride);
    }
  };
  RunPipeline(begin, end, count(0), count(1), count(2), count(3), count(4), use);
  EXPECT_EQ(done[5], 1000U);
}

// Start keys of a batch, including positions inside a ring.
INSTANTIATE_TEST_SUITE_P(Begins, Pipeline, ::testing::Values(0, 1, 4, 63, 1000));

}  // namespace
}  // namespace de::engine
